"""A streaming job in a process of its own, for the tests to kill: `python -m tests.pipeline.streaming_job FOLDER`.

Reads `FOLDER/in/*.parquet`, one file a batch, and carries out `FOLDER/commands/*.json` in order, each exactly once.
"""

import json
import sys
import time
from pathlib import Path

from catchment import CatchmentError, Subscription, spark_session, stream
from catchment.pipeline.stream import Job
from tests.pipeline.scenario import EVENTS_SCHEMA, INITIAL, LATENESS, OVERLAY

POLL_S = 0.05


def carry_out(job: Job, command: dict[str, str]) -> None:
    # A command that was cut off by a kill may have been carried out already; saying it again is then an error.
    try:
        if "unsubscribe" in command:
            job.unsubscribe(command["unsubscribe"])
        else:
            job.subscribe(Subscription(command["name"], command["at"], sql=command["sql"]))
    except CatchmentError:
        pass


def main(folder: Path) -> None:
    spark = spark_session("killed", master="local[2]")
    source = spark.readStream.schema(EVENTS_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    job = stream(
        spark,
        source,
        checkpoint=str(folder / "checkpoint"),
        subscriptions=INITIAL,
        overlay=OVERLAY,
        lateness=LATENESS,
        trigger="100 milliseconds",
        idle_after=None,
    )
    (folder / "started").touch()
    while job.is_active:
        for command in sorted((folder / "commands").glob("*.json")):
            carry_out(job, json.loads(command.read_text()))
            command.rename(command.with_suffix(".done"))
        (folder / "status.new").write_text(json.dumps(job.status()))
        (folder / "status.new").rename(folder / "status.json")
        if (folder / "end").exists():
            job.end()
            (folder / "ended").touch()
            return
        time.sleep(POLL_S)
    job.await_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
