"""`kill -9` at random moments: every notification exactly once, with the oracle's values."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from catchment import Subscription, oracle
from catchment.oracle import differences
from catchment.pipeline.ledger import Ledger
from tests.pipeline.scenario import CHANGES, INITIAL, events

pytestmark = pytest.mark.spark

DEADLINE_S = 600
POLL_S = 0.05


class KilledJob:
    """The job of `streaming_job`, started, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kills = 0
        for name in ("in", "commands"):
            (folder / name).mkdir()

    def start(self) -> None:
        (self.folder / "started").unlink(missing_ok=True)
        with (self.folder / f"log{self.kills}").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.streaming_job", str(self.folder)],
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait((self.folder / "started").exists, "start")

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def stop(self) -> None:
        """Leave nothing running, whatever has failed."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait(self, condition: object, what: str) -> None:
        assert callable(condition)
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self._process.poll() is None, f"the job died: {self._tail()}"
            assert time.monotonic() < deadline, f"the job did not {what} in time: {self._tail()}"
            time.sleep(POLL_S)

    def _tail(self) -> str:
        return (self.folder / f"log{self.kills}").read_text()[-3000:]

    def status(self) -> dict[str, int]:
        path = self.folder / "status.json"
        return json.loads(path.read_text()) if path.exists() else {"batch": -1, "events": 0, "dropped": 0}

    def publish(self, table: pa.Table, number: int) -> None:
        # Written aside, so that the job never sees half a file.
        aside = self.folder / f"{number}.parquet"
        pq.write_table(table, aside)
        aside.rename(self.folder / "in" / f"{number:05d}.parquet")

    def command(self, number: int, change: Subscription | str) -> None:
        say = (
            {"unsubscribe": change}
            if isinstance(change, str)
            else {"name": change.name, "at": change.at, "sql": change.sql}
        )
        aside = self.folder / f"{number}.command"
        aside.write_text(json.dumps(say))
        aside.rename(self.folder / "commands" / f"{number:05d}.json")

    def end(self) -> None:
        (self.folder / "end").touch()
        self.wait((self.folder / "ended").exists, "end")
        self._process.wait(60)


def run(folder: Path, *, event_count: int, file_count: int, kills: int, seed: int) -> pa.Table:
    """Publish, change subscriptions and kill at random moments until everything has been read."""
    chance = random.Random(seed)
    table = events(event_count, seed=seed, duration_us=event_count * 2_000)
    size = -(-event_count // file_count)
    job = KilledJob(folder)
    try:
        job.start()
        published, changed = 0, 0
        kill_at = sorted(chance.sample(range(1, file_count - 1), kills))
        change_at = sorted(chance.sample(range(1, file_count - 2), len(CHANGES)))
        while published < file_count:
            job.publish(table.slice(published * size, size), published)
            published += 1
            if changed < len(CHANGES) and published >= change_at[changed]:
                job.command(changed, CHANGES[changed])
                changed += 1
            if kill_at and published >= kill_at[0]:
                kill_at.pop(0)
                # Somewhere within the next batches, so that every step of a batch is cut off now and then.
                seen = job.status()["batch"]
                job.wait(lambda seen=seen: job.status()["batch"] > seen, "make progress")
                time.sleep(chance.random() * 1.5)
                job.kill()
                job.start()
        job.wait(lambda: job.status()["events"] + job.status()["dropped"] >= event_count, "read everything")
        job.wait(lambda: not list((folder / "commands").glob("*.json")), "obey")
        job.end()
    finally:
        job.stop()
    assert job.kills == kills
    return table


def verify(spark: SparkSession, folder: Path, table: pa.Table) -> None:
    def result(name: str) -> DataFrame:
        return spark.read.parquet(str(folder / "checkpoint" / "results" / name))

    arrivals = result("deliveries").where("subscription = 'everything'").select("event_id", "batch").toArrow()
    dropped = set(result("dropped").toArrow().column("event_id").to_pylist())
    batch_of = dict(zip(arrivals.column("event_id").to_pylist(), arrivals.column("batch").to_pylist(), strict=True))
    ids = table.column("event_id").to_pylist()
    assert dropped, "the scenario has late events"
    assert dropped | batch_of.keys() == set(ids), "every event is read or reported as dropped"
    order = sorted((row for row, name in enumerate(ids) if name not in dropped), key=lambda row: batch_of[ids[row]])
    arrived = table.take(pa.array(order))
    batches = [batch_of[ids[row]] for row in order]
    answer = oracle(arrived, subscriptions=INITIAL, changes=positions(folder, batches), lateness_us=4_000_000)
    notifications = result("notifications").drop("batch").toArrow()
    deliveries = result("deliveries").select("subscription", "event_id").toArrow()
    found = differences(answer, notifications, deliveries)
    assert not found, f"{len(found)} differences, first: {found[:5]}"
    assert answer.lines


def positions(folder: Path, batches: list[int]) -> list[tuple[int, Subscription | str]]:
    """Before which arrival each change took effect: the first event of the first batch that ran with it."""
    ledger_names = sorted((folder / "checkpoint" / "ledger").glob("0*"))
    content = ledger_names[-1].read_bytes().partition(b"\n")[2]
    steps = msgspec.json.decode(content, type=Ledger).steps
    changes: list[tuple[int, Subscription | str]] = []
    for number, change in enumerate(CHANGES):
        version = number + 2  # the first version is the initial subscriptions
        took = [step.batch for step in steps if step.version >= version]
        position = sum(batch < took[0] for batch in batches) if took else len(batches)
        changes.append((position, change))
    return changes


def test_killed_at_random_moments(spark: SparkSession, tmp_path: Path) -> None:
    table = run(tmp_path, event_count=6_000, file_count=12, kills=1, seed=1)
    verify(spark, tmp_path, table)


@pytest.mark.long
@pytest.mark.parametrize("seed", [7])
def test_killed_ten_times_over_200_000_events(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    table = run(tmp_path, event_count=200_000, file_count=60, kills=10, seed=seed)
    verify(spark, tmp_path, table)
