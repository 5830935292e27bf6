"""What publishers and subscribers of a bench do: each function runs in a process of its own.

Every other event matches a subscription, exactly one of those that there are: `speed` is below 50 in one event of two,
and `lane` chooses the subscription.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.model.schema import Schema, Type
from catchment.transport.client import Client
from catchment.transport.subscriptions import Subscription
from catchment.transport.wire import open_connection

__all__ = ["SCHEMA", "TOPIC", "batches", "crowd", "foreign", "paced", "questions", "singles", "subscriber"]

TOPIC = "readings"
SCHEMA = Schema({"sent": Type.INT, "speed": Type.FLOAT, "lane": Type.INT, "road": Type.STRING})
TICK_S = 0.001
IN_FLIGHT = 32
"""Batches that are published at the same time."""
FOREIGN_IN_FLIGHT = 5_000
OPENED_TOGETHER = 16
"""Clients of a crowd that connect at the same time."""
Ready = Callable[[], None]


def questions(count: int, kind: str) -> list[str]:
    """The SQL of so many subscriptions, of which every other event matches one."""
    wanted = "*" if kind == "regular" else "avg(speed), count(*)"
    behind = "" if kind == "regular" else " GROUP BY window(ts, '2 seconds', '1 second')"
    return [f"SELECT {wanted} FROM {TOPIC} WHERE speed < 50 AND lane = {lane}{behind}" for lane in range(count)]


def _row(number: int, lanes: int, sent_us: int) -> dict[str, Any]:
    return {"sent": sent_us, "speed": 25.0 + 50.0 * (number % 2), "lane": (number // 2) % lanes, "road": "a road"}


def _table(rows: int, lanes: int) -> pa.RecordBatch:
    numbers = np.arange(rows)
    columns = {
        "sent": np.zeros(rows, np.int64),
        "speed": 25.0 + 50.0 * (numbers % 2),
        "lane": (numbers // 2) % lanes,
        "road": pa.array(["a road"] * rows),
    }
    return pa.RecordBatch.from_pydict(columns)


def _now_us() -> int:
    """Of a clock that all processes of a machine share."""
    return time.monotonic_ns() // 1_000


# -- publishers -------------------------------------------------------------------------------------------------------


async def singles(ready: Ready, url: str, broker: str, count: int, lanes: int, wait: Any) -> float:
    """Publish events one by one; seconds until all are answered."""
    client = await Client(url, broker=broker).open()
    try:
        await client.advertise(TOPIC)
        ready()
        all_done, left = asyncio.Event(), count

        def answered(future: asyncio.Future[Any]) -> None:
            nonlocal left
            left -= 1
            if future.exception() is not None or not left:
                all_done.set()

        begun = time.perf_counter()
        for number in range(count):
            client.publish_soon(TOPIC, _row(number, lanes, 0), wait=wait).add_done_callback(answered)
            if number % 256 == 255:
                await asyncio.sleep(0)
                await client.drain()
        await all_done.wait()
        if left:
            raise RuntimeError(f"{left} events are not answered, or refused")
        return time.perf_counter() - begun
    finally:
        await client.close()


async def batches(ready: Ready, url: str, broker: str, count: int, rows: int, lanes: int, wait: Any) -> float:
    """Publish batches, some at the same time; seconds until all are answered."""
    client = await Client(url, broker=broker).open()
    try:
        await client.advertise(TOPIC)
        ready()
        batch, room = _table(rows, lanes), asyncio.Semaphore(IN_FLIGHT)

        async def publish() -> None:
            async with room:
                await client.publish(TOPIC, batch, wait=wait)

        begun = time.perf_counter()
        await asyncio.gather(*(publish() for _ in range(count)))
        return time.perf_counter() - begun
    finally:
        await client.close()


async def paced(ready: Ready, url: str, broker: str, rate: int, seconds: float, lanes: int) -> dict[str, float]:
    """Publish events one by one at a rate; how many, and how late the last of them was sent."""
    client = await Client(url, broker=broker).open()
    try:
        await client.advertise(TOPIC)
        ready()
        begun, number, total = time.perf_counter(), 0, round(rate * seconds)
        last: asyncio.Future[Any] | None = None
        while number < total:
            due = min(int((time.perf_counter() - begun) * rate) + 1, total)
            sent_us = _now_us()
            while number < due:
                last = client.publish_soon(TOPIC, _row(number, lanes, sent_us))
                number += 1
            await client.drain()
            await asyncio.sleep(TICK_S)
        behind = time.perf_counter() - begun - seconds
        if last is not None:
            await last
        return {"events": total, "behind_s": behind}
    finally:
        await client.close()


async def foreign(ready: Ready, url: str, broker: str, count: int, lanes: int) -> float:
    """Publish JSON on a plain subject, as any NATS client would; seconds until the server has stored all."""
    connection = await open_connection(url, "foreign")
    try:
        ready()
        stored, left, room = asyncio.Event(), count, asyncio.Event()

        def answered(_: asyncio.Future[Any]) -> None:
            nonlocal left
            left -= 1
            room.set()
            if not left:
                stored.set()

        begun = time.perf_counter()
        for number in range(count):
            data = json.dumps(_row(number, lanes, 0)).encode()
            connection.ask(f"catchment.pub.{broker}.{TOPIC}", data).add_done_callback(answered)
            if number % 100 == 99:
                await asyncio.sleep(0)
                while left - (count - number) > FOREIGN_IN_FLIGHT:
                    room.clear()
                    await room.wait()
        await stored.wait()
        return time.perf_counter() - begun
    finally:
        await connection.close()


# -- subscribers ------------------------------------------------------------------------------------------------------


async def subscriber(ready: Ready, url: str, broker: str, asked: list[str], expected: int | None) -> dict[str, Any]:
    """Read until so many events have come, or until values have: when the last came, and how long each took."""
    client = await Client(url, broker=broker).open()
    try:
        there = [await client.subscribe(sql) for sql in asked]
        ready()
        enough, got = asyncio.Event(), 0
        delays: list[np.ndarray[Any, Any]] = []

        async def read(one: Subscription) -> None:
            nonlocal got
            async for content in one.batches():
                if isinstance(content, pa.RecordBatch):
                    got += content.num_rows
                    delays.append(_now_us() - content.column("sent").to_numpy())
                else:
                    got += len(content)
                if expected is None or got >= expected:
                    enough.set()

        tasks = [asyncio.create_task(read(one)) for one in there]
        await enough.wait()
        ended = time.monotonic()
        for task in tasks:
            task.cancel()
        taken = np.concatenate(delays) if delays else np.zeros(0)
        shares = {f"p{share}": float(np.percentile(taken, share)) / 1e3 for share in (50, 99)} if len(taken) else {}
        return {"events": got, "ended": ended, **shares}
    finally:
        await client.close()


# -- many clients -----------------------------------------------------------------------------------------------------


async def crowd(
    ready: Ready, url: str, brokers: Sequence[str], topics: Sequence[str], clients: int, asked: int, seed: int,
    rate: float, seconds: float,
) -> dict[str, float]:  # fmt: skip
    """Be many clients that subscribe to some topics each and publish to one; how many events came, and how late."""
    random, room = Random(seed), asyncio.Semaphore(OPENED_TOGETHER)
    delays: list[float] = []

    async def read(subscription: Subscription) -> None:
        async for content in subscription.batches():
            if isinstance(content, pa.RecordBatch):
                delays.extend((_now_us() - content.column("sent").to_numpy()) / 1e3)

    readers: list[asyncio.Task[None]] = []

    async def come(broker: str, wanted: Sequence[str], published: str) -> tuple[Client, str]:
        async with room:
            client = await Client(url, broker=broker).open()
            there = [await client.subscribe(f"SELECT * FROM {topic}") for topic in wanted]
            readers.extend(asyncio.create_task(read(one)) for one in there)
            await client.advertise(published)
            return client, published

    drawn = [
        (brokers[number % len(brokers)], random.sample(topics, asked), random.choice(topics))
        for number in range(clients)
    ]
    there = await asyncio.gather(*(come(*one) for one in drawn))
    ready()
    try:
        return await _publish_in_turn(there, random, rate * clients, seconds, delays)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*(client.close() for client, _ in there))


async def _publish_in_turn(
    there: Sequence[tuple[Client, str]], random: Random, rate: float, seconds: float, delays: list[float]
) -> dict[str, float]:
    """Publish at a rate for so long, each event by another client."""
    begun, number, total = time.perf_counter(), 0, round(rate * seconds)
    answers: list[asyncio.Future[Any]] = []
    while number < total:
        due = min(int((time.perf_counter() - begun) * rate) + 1, total)
        for _ in range(due - number):
            client, topic = random.choice(there)
            answers.append(client.publish_soon(topic, _row(number, 1, _now_us())))
            number += 1
        await asyncio.sleep(TICK_S)
    behind = time.perf_counter() - begun - seconds
    await asyncio.gather(*answers)
    found = np.array(delays) if delays else np.zeros(1)
    p50, p99 = np.percentile(found, (50, 99)).tolist()
    return {
        "events": total, "delivered": len(delays), "behind_s": behind, "p50_ms": p50, "p99_ms": p99,
        "answered_s": time.perf_counter() - begun - seconds,
    }  # fmt: skip
