"""A checkpoint with one file missing, cut short or altered: refused with its name, or the answers are still right.

One real checkpoint is made and copied for each case. It has live state of several batches, remembered ids, what a
placement learned, versions of subscriptions, and Spark's own files.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from catchment import Overlay, Subscription, stream
from catchment.model.errors import CheckpointError
from catchment.pipeline.sinks import BatchResults, ParquetSink
from catchment.pipeline.stream import Job
from tests.pipeline.growing import Source, finished

pytestmark = pytest.mark.spark

COUNT = Subscription("count", "b1", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '100 seconds')")
SUM = Subscription("sum", "b2", sql="SELECT sum(vehicles) FROM traffic GROUP BY window(ts, '100 seconds')")
EVERYTHING = Subscription("everything", "b2", sql="SELECT * FROM traffic")
OVERLAY = Overlay.from_links([("b1", "b2")])
DAMAGES = ("missing", "cut short", "altered")
RESULTS = ("notifications", "deliveries", "dropped", "traffic")


@dataclass(frozen=True)
class Made:
    """A job that was stopped; more input waits for it."""

    source: Source
    checkpoint: Path

    def resume(self, checkpoint: Path, **options: Any) -> Job:
        return stream(
            self.source.spark,
            self.source.stream,
            checkpoint=str(checkpoint),
            subscriptions=[COUNT, EVERYTHING],
            overlay=OVERLAY,
            placement="adaptive",
            deduplicate=True,
            trigger="available now",
            **options,
        )


def publish(source: Source, *numbers: int) -> None:
    """Files in which each event but the first repeats the last of the file before it."""
    for number in numbers:
        source.publish(*((f"e{at}", at * 10) for at in range(max(0, number * 3 - 1), number * 3 + 3)))


def fail_at(path: Path, batch: int) -> Callable[[BatchResults, int], None]:
    """The usual results, until a batch that fails after it was told."""

    def write(results: BatchResults, batch_id: int) -> None:
        ParquetSink(str(path)).write(results, batch_id)
        if batch_id == batch:
            raise RuntimeError("as if killed")

    return write


def answers(job: Job) -> dict[str, list[Any]]:
    return {name: sorted(map(str, getattr(job, name).collect())) for name in RESULTS}


def damage(file: Path, how: str) -> None:
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "cut short":
        file.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])


@pytest.fixture(scope="module", params=["stopped", "killed"])
def made(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp(request.param)
    made = Made(Source(spark, folder), folder / "checkpoint")
    publish(made.source, 0)
    finished(made.resume(made.checkpoint)).subscribe(SUM)
    publish(made.source, 1, 2)
    finished(made.resume(made.checkpoint))
    publish(made.source, 3, 4)
    if request.param == "killed":
        job = made.resume(made.checkpoint, sink=fail_at(made.checkpoint / "results", 3))
        with pytest.raises(StreamingQueryException, match="as if killed"):
            job.await_termination()
    return made


def files(checkpoint: Path) -> list[Path]:
    """All that a checkpoint consists of; results belong to whoever reads them."""
    found = (path.relative_to(checkpoint) for path in checkpoint.rglob("*") if path.is_file())
    return sorted(path for path in found if path.parts[0] != "results" and path.name[0] not in "._")


class Unstarted:
    """Stands for a job where only the look at its checkpoint is wanted."""

    is_active = False


def refusal(made: Made, checkpoint: Path) -> str | None:
    """Why a job would not start, without starting it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("catchment.pipeline.stream.Job", lambda *_: Unstarted())
        try:
            made.resume(checkpoint)
        except CheckpointError as error:
            return str(error)
    return None


def outcome(made: Made, checkpoint: Path) -> dict[str, list[Any]] | str:
    """The answers of a job that goes on and ends, or what it was refused with."""
    try:
        job = finished(made.resume(checkpoint))
        job.end()
        return answers(job)
    except (CheckpointError, StreamingQueryException) as error:
        return str(error)


def copied(made: Made, folder: Path) -> Path:
    shutil.copytree(made.checkpoint, folder)
    return folder


@pytest.fixture(scope="module")
def undamaged(made: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    right = outcome(made, copied(made, tmp_path_factory.mktemp("undamaged") / "checkpoint"))
    assert isinstance(right, dict), right
    assert [len(rows) for rows in right.values()] == [3, 15, 0, 3], "windows, events, nothing dropped, links"
    return right


def accepted_though(made: Made, how: str, checkpoint: Path) -> list[Path]:
    """The files without which a job would start; all others are refused by their names."""
    accepted = []
    for file in files(checkpoint):
        content = (checkpoint / file).read_bytes()
        damage(checkpoint / file, how)
        said = refusal(made, checkpoint)
        (checkpoint / file).write_bytes(content)
        if said is None:
            accepted.append(file)
        else:
            assert str(file) in said, f"{how} is {file}"
    return accepted


@pytest.mark.parametrize("how", DAMAGES)
def test_every_file_is_refused_by_name_or_not_needed(
    made: Made, undamaged: dict[str, list[Any]], tmp_path: Path, how: str
) -> None:
    checkpoint = copied(made, tmp_path / "checkpoint")
    accepted = accepted_though(made, how, checkpoint)
    kinds = [file.parts[0] for file in files(checkpoint)]
    assert {"changes", "job.json", "ledger", "pins", "placing", "seen", "spark", "state"} == set(kinds)
    # Of ours, those of batches that will not run again are left: without all of them the answers are still right.
    ours = [file for file in accepted if file.parts[0] != "spark"]
    assert not [file for file in ours if file.parts[0] in ("changes", "job.json")]
    assert len(ours) < len([kind for kind in kinds if kind != "spark"]) / 2
    for file in ours:
        damage(checkpoint / file, how)
    assert outcome(made, checkpoint) == undamaged


@pytest.mark.long
@pytest.mark.parametrize("how", DAMAGES)
def test_each_of_sparks_own_files_is_refused_by_name_or_not_needed(
    made: Made, undamaged: dict[str, list[Any]], tmp_path: Path, how: str
) -> None:
    checkpoint = copied(made, tmp_path / "checkpoint")
    for number, file in enumerate(accepted_though(made, how, checkpoint)):
        if file.parts[0] == "spark":
            copy = copied(made, tmp_path / str(number))
            damage(copy / file, how)
            found = outcome(made, copy)
            # Where a file is gone, the checksum that Hadoop left beside it makes Spark stop and name the folder.
            named = str(file.parent) if how == "missing" else str(file)
            assert found == undamaged or (isinstance(found, str) and named in found), f"{how} is {file}: {found}"


def test_a_file_too_many_is_refused_by_name(made: Made, tmp_path: Path) -> None:
    checkpoint = copied(made, tmp_path / "checkpoint")
    for folder, name in ((next((checkpoint / "state").iterdir()), "part-9.parquet"), (checkpoint / "changes", "x")):
        (folder / name).write_bytes(b"more")
        said = refusal(made, checkpoint)
        assert said is not None
        assert f"{folder.name}/{name} is not" in said
        (folder / name).unlink()


def test_sparks_checkpoint_must_fit_ours(made: Made, tmp_path: Path) -> None:
    checkpoint = copied(made, tmp_path / "checkpoint")
    for name, says in (
        ("offsets", "spark/offsets/[0-9]+ is missing, though that batch was begun"),
        ("commits", "spark/commits/[0-9]+ is missing, though a batch after it is done"),
        ("sources", "spark/sources/[01]/[0-9]+ is missing, though the last batch read what it lists"),
        ("", "spark/offsets/[0-9]+ is missing"),
    ):
        (checkpoint / "spark" / name).rename(tmp_path / "aside")
        said = refusal(made, checkpoint)
        assert said is not None
        assert re.search(says, said), said
        (tmp_path / "aside").rename(checkpoint / "spark" / name)
    assert refusal(made, checkpoint) is None


def test_damage_while_a_job_runs_stops_it_by_name(made: Made, tmp_path: Path) -> None:
    checkpoint = copied(made, tmp_path / "checkpoint")

    def lose_a_file(results: BatchResults, batch_id: int) -> None:
        for folder in (checkpoint / "state").glob("batch=1"):
            next(folder.glob("*.parquet")).unlink()

    job = made.resume(checkpoint, sink=lose_a_file)
    with pytest.raises(StreamingQueryException, match=r"state/batch=1/part-.*parquet is missing; expected are"):
        job.await_termination()
