"""A running overlay does what the simulator does: the same messages on every link, and the same bytes for one input."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

import catchment
from catchment.broker.hosting import Host
from catchment.broker.inputs import Input
from catchment.simulation.options import Options
from catchment.transport.context import LIMITS
from catchment.transport.entries import input_of
from catchment.transport.jetstream import JetStream, Stored
from catchment.transport.marks import is_marked, mark_of
from catchment.transport.names import input_stream, link_subject, steps_subject
from catchment.transport.recovery import brought_back
from catchment.transport.snapshots import SnapshotStore
from catchment.transport.status import figures_of
from catchment.transport.wire import Connection, open_connection
from catchment.workloads import TRAFFIC_SCHEMA, generate_traffic
from tests.transport.conftest import Live, eventually, run
from tests.transport.streams import everything

LINKS = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"))
INGRESS = ("b1", "b4")
WINDOW = "GROUP BY window(ts, '4 seconds', '2 seconds')"
ASKED = [
    catchment.Subscription("slow", "b3", sql=f"SELECT avg(speed), count(*) FROM traffic WHERE speed < 60 {WINDOW}"),
    catchment.Subscription("roads", "b1", sql=f"SELECT highway, max(speed) FROM traffic {WINDOW}, highway"),
    catchment.Subscription("again", "b4", sql=f"SELECT sum(speed) FROM traffic WHERE speed < 60 {WINDOW}"),
    catchment.Subscription("fast", "b3", sql="SELECT * FROM traffic WHERE speed > 90"),
]
KINDS = {"publication": "publications", "partial": "partials"}
EVENTS = generate_traffic(120, seed=5, duration_us=20_000_000, start_us=1_000_000_000, brokers=list(INGRESS)).sort_by(
    "ts"
)


@asynccontextmanager
async def played(overlay: Live, expected: int) -> AsyncIterator[Connection]:
    """Publish all events in their order, each where it comes in, until subscribers have got so much."""
    got = 0

    async def read(subscription: Any) -> None:
        nonlocal got
        async for _ in subscription:
            got += 1

    async def all_is_there() -> bool:
        return got >= expected

    await overlay.start()
    async with AsyncExitStack() as stack:
        for one in ASKED:
            client = await stack.enter_async_context(catchment.connect(overlay.url, broker=one.at))
            stack.callback(asyncio.create_task(read(await client.subscribe(one.sql, name=one.name))).cancel)
        publishers = {name: await catchment.connect(overlay.url, broker=name) for name in INGRESS}
        for publisher in publishers.values():
            await publisher.advertise("traffic")
        for row in EVENTS.drop_columns(["topic"]).to_pylist():
            await publishers[row.pop("broker")].publish("traffic", row)
        for publisher in publishers.values():
            await publisher.close()
        await eventually(all_is_there)
        connection = await open_connection(overlay.url, "test")
        yield connection
        await connection.close()


@pytest.mark.parametrize("placement", ["late", "early", "adaptive", "cover"])
def test_links_carry_what_the_simulator_says(live: Callable[..., Live], placement: str) -> None:
    at_once = Options(delay_us_min=0, delay_us_max=0)
    overlay = live(*LINKS, placement=placement, schemas={"traffic": TRAFFIC_SCHEMA}, more={"client_lease_us": 10**9})
    simulated = catchment.simulate(
        EVENTS, overlay=overlay.overlay, subscriptions=ASKED, placement=placement, options=at_once
    )
    expected = {
        (row["source"], row["target"], KINDS[row["kind"]]): row["messages"]
        for row in simulated.traffic.to_pylist()
        if row["kind"] in KINDS
    }
    assert {kind for _, _, kind in expected} == ({"publications"} if placement == "late" else set(KINDS.values()))

    async def test() -> None:
        rows = simulated.notifications.num_rows + simulated.deliveries.num_rows
        async with played(overlay, rows) as connection:
            found = {}
            for name, figures in (await figures_of(connection, overlay.overlay.brokers)).items():
                assert figures is not None
                for neighbour, link in figures.links.items():
                    for kind in KINDS.values():
                        if link.messages_out.get(kind):
                            found[name, neighbour, kind] = link.messages_out[kind]
            assert found == expected

    run(test())


def test_the_recorded_input_gives_the_frames_that_were_sent(live: Callable[..., Live]) -> None:
    overlay = live(*LINKS, placement="cover", schemas={"traffic": TRAFFIC_SCHEMA})
    values = catchment.oracle(EVENTS, subscriptions=ASKED)

    async def test() -> None:
        async with played(overlay, values.notifications.num_rows + values.deliveries.num_rows) as connection:
            # Whoever stops by itself leaves a snapshot, and nothing of the inputs before it.
            for broker in overlay.brokers.values():
                broker.kill()
            streams = JetStream(connection)
            inputs = {name: await everything(streams, input_stream(name)) for name in overlay.brokers}
            for name in overlay.brokers:
                neighbours = overlay.description.neighbours(name)
                sent = {
                    one: [stored for stored in inputs[one] if stored.subject == link_subject(one, name)]
                    for one in neighbours
                }
                assert await frames_again(overlay, streams, name, inputs[name], sent) > 0

    run(test())


async def frames_again(
    overlay: Live, streams: JetStream, name: str, stored: list[Stored], sent: dict[str, list[Stored]]
) -> int:
    """Hand the recorded input to the host that the simulator uses; how many frames came, byte by byte as those sent."""
    snapshots = SnapshotStore(streams, name)
    pieces = await snapshots.open()
    described = overlay.description
    broker = brought_back(name, described.neighbours(name), described.settings, described.advice, pieces)
    ends, inputs = set[int](), list[Input]()
    for one in stored:
        if one.subject == steps_subject(name):
            ends.update(msgspec.msgpack.decode(one.data))
            continue
        _, item = input_of(name, one)
        if item is not None and one.position > broker.position:
            inputs.append(Input(item, one.at_us, one.position))
    for messages in sent.values():
        for one in filter(is_marked, messages):
            mark = mark_of(one)
            ends.update((*mark.ends, mark.covers))
    host = Host(broker, {}, LIMITS)
    again: dict[str, list[bytes]] = {one: [] for one in sent}
    for step, _ in host.steps_again(inputs, ends=ends):
        for send in step.sends:
            if send.to in again:
                again[send.to] += send.frames
    for neighbour, messages in sent.items():
        frames = [one.data for one in messages if one.data]
        assert again[neighbour] == frames[len(frames) - len(again[neighbour]) :], (name, neighbour)
    return sum(map(len, again.values()))
