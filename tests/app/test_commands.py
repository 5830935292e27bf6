"""The commands, in this process and with the session of the tests, but for the one that a signal must reach."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner, Result

import catchment
from catchment.app.config import load_configuration
from catchment.app.failures import explanation
from catchment.app.main import DISTRIBUTION, app
from catchment.app.running import Ran, Watched, run_job, with_options
from catchment.lab import bench_simulation
from catchment.lab.progress import Steps
from catchment.pipeline.topics import AbsentTopicWarning
from tests.workloads.tools import REAL_DATA

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAFFIC, QUESTIONS = EXAMPLES / "traffic.toml", EXAMPLES / "traffic.sql"
SOURCE = Path(__file__).parents[2] / "src"


def called(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def told(*arguments: object) -> Any:
    result = called(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table().to_pylist()
    return rows


# check ---------------------------------------------------------------------------------------------------------------


def test_check_lists_what_a_file_asks() -> None:
    listed = told("check", TRAFFIC)
    assert [one["subscription"] for one in listed][:2] == ["slow-roads", "busy-major-roads"]
    assert listed[0]["window"] == "sliding, 20 seconds every 2 seconds"
    assert "busy-major" in called("check", TRAFFIC).stdout


def test_check_tells_what_a_subscription_would_do() -> None:
    sql = (
        "SELECT median(vehicles), avg(speed) FROM traffic WHERE road_type IN ('MAJOR_ROAD') AND (speed > 3 "
        "OR NOT speed > 3 OR speed IS NULL) GROUP BY window(ts, '20 seconds', '2 seconds')"
    )
    content = told("check", TRAFFIC, "--sql", sql, "--at", "north", "--sample", 2_000)
    assert content["where"] == "road_type = 'MAJOR_ROAD'"
    assert content["shares its question with"] == ["busy-major-roads", "busy-major-roads-average"]
    assert content["window"]["slices in a window"] == 10
    assert content["under the placement"] == "early: partials travel"
    assert content["hops to the farthest broker"] == 2
    assert content["operators"][0]["what travels"] == "the values themselves"
    assert content["questions"] == "3 with it, 3 without"
    assert content["selectivity"]["sampled events of the topic"] == 2_000
    assert 0.2 < content["selectivity"]["share"] < 0.7
    shown = called("check", TRAFFIC, "--name", "crawling", "--sample", 0)
    assert shown.exit_code == 0
    assert "speed < 5" in shown.stdout


@pytest.mark.spark
def test_check_estimates_on_files(spark: SparkSession) -> None:
    content = told("check", EXAMPLES / "station.toml", "--name", "frost", "--sample", 5)
    assert content["selectivity"] == {"sampled events of the topic": 4, "matched": 1, "share": 0.25}


def test_check_needs_no_file_for_one_subscription() -> None:
    sql = "SELECT avg(speed), count(*) FROM t WHERE highway = '401' GROUP BY window(ts, '1 minute')"
    content = told("check", "--sql", sql)
    assert (content["topic"], content["where"]) == ("t", "highway = '401'")
    assert [one["what travels"] for one in content["operators"]] == ["depends on the type of speed", "a count"]
    typed = told("check", "--sql", sql, "--attributes", "speed=int, highway=string")
    assert [one["what travels"] for one in typed["operators"]] == ["count and sum", "a count"]
    assert typed["answered by"].startswith("plain Spark SQL")


@pytest.fixture
def untyped(spark: SparkSession, tmp_path: Path) -> Path:
    """A job over a Parquet file that says its columns itself, one of whose subscriptions has a slip of the pen."""
    rows = [(n, "traffic", "b", datetime(2024, 1, 1, 0, 0, n, tzinfo=UTC), n, f"{n}") for n in range(8)]
    schema = "event_id long, topic string, broker string, ts timestamp, speed int, name string"
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(tmp_path / "events"))
    (tmp_path / "asked.sql").write_text(
        "-- name: fine\nSELECT sum(speed), max(name) FROM traffic WHERE ts >= '2024-01-01 00:00:04'"
        " GROUP BY window(ts, '1 minute');\n-- name: slip\nSELECT * FROM traffik WHERE speed > 3;\n"
    )
    job = tmp_path / "job.toml"
    job.write_text('subscriptions = "asked.sql"\nsource = { format = "parquet", path = "events" }\n')
    return job


SLIP = "no event has the topic 'traffik', which slip asks about; topics there: traffic"


@pytest.mark.spark
def test_check_takes_the_columns_of_files_where_no_topic_is_declared(untyped: Path) -> None:
    content = told("check", untyped, "--name", "fine")
    assert content["selectivity"] == {"sampled events of the topic": 8, "matched": 4, "share": 0.5}
    assert [one["what travels"] for one in content["operators"]] == ["count and sum", "the greatest value"]
    assert content["warning"] is None
    slip = told("check", untyped, "--name", "slip")
    assert slip["warning"] == [SLIP.replace("no event has", "no event among the first 8 has")]
    wrong = called("check", untyped, "--sql", "SELECT max(pace) FROM traffic GROUP BY window(ts, '1 minute')")
    assert wrong.exit_code == 2
    assert "topic 'traffic' has no attribute 'pace'; it has broker, name, speed, ts" in wrong.stderr


@pytest.mark.spark
def test_a_topic_that_no_event_has_is_named(untyped: Path, spark: SparkSession) -> None:
    result = called("replay", untyped, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["warnings"] == [SLIP]
    assert f"warning: {SLIP}\n" in result.stderr
    assert content["facts"]["events"] == 8
    ran = called("run", untyped, "--checkpoint", untyped.parent / "ck", "--available-now")
    assert ran.exit_code == 0, ran.output
    assert f"warning: {SLIP.replace('event', 'event so far')}" in ran.stderr


@pytest.mark.spark
def test_in_python_files_that_cannot_have_a_topic_say_so(untyped: Path, spark: SparkSession) -> None:
    slip = catchment.Subscription("slip", sql="SELECT * FROM traffik")
    publications = spark.read.parquet(str(untyped.parent / "events"))
    with pytest.warns(AbsentTopicWarning, match=SLIP) as caught:
        catchment.replay(spark, publications, subscriptions=[slip])
    assert caught[0].filename == __file__
    with pytest.warns(AbsentTopicWarning, match=SLIP):
        catchment.replay(spark, publications.where("speed > 3"), subscriptions=[slip])
    # Of a topic that is worked out nobody can tell without reading.
    catchment.replay(spark, publications.selectExpr("lower(topic) AS topic", "* EXCEPT (topic)"), subscriptions=[slip])


def test_the_version_is_that_of_the_distribution() -> None:
    result = called("--version")
    assert (result.exit_code, result.stdout) == (0, f"catchment {version(DISTRIBUTION)}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check"], "there is nothing to check; accepted are a TOML file, --sql, or both"),
        (["check", TRAFFIC, "--sql", "SELECT * FROM t", "--attributes", "x=int"], "traffic.toml says the types"),
        (["check", TRAFFIC, "--sql", "SELECT avg(pace) FROM traffic"], "aggregates without GROUP BY"),
        (
            ["check", TRAFFIC, "--sql", "SELECT * FROM tides", "--at", "north"],
            "unknown topic 'tides'",
        ),
        (
            ["check", TRAFFIC, "--sql", "SELECT * FROM traffic", "--at", "east"],
            "no broker 'east'; known",
        ),
        (
            ["check", TRAFFIC, "--name", "nobody"],
            "has no subscription 'nobody'; there are slow-roads",
        ),
        (["replay"], "accepted is one of: a TOML file, --source with --subscriptions, --workload"),
        (["replay", "--source", "x.csv"], "--source is given without --subscriptions"),
        (["replay", "--source", "x.csv", "--subscriptions", QUESTIONS], "--topic NAME --attributes"),
        (["replay", "--source", "x", "--subscriptions", QUESTIONS], "the format of x is unknown"),
        (["replay", "--workload", "tides"], "workload is 'tides'; accepted are traffic, stock"),
        (["replay", "gone.toml"], "cannot read gone.toml: No such file or directory"),
        (["run", TRAFFIC], "options.checkpoint is missing; accepted is a folder, or --checkpoint"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[object], message: str) -> None:
    result = called(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


# replay --------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_replay_of_the_stations_keeps_bad_rows_aside_and_agrees_with_the_oracle(
    spark: SparkSession, tmp_path: Path
) -> None:
    content = told("replay", EXAMPLES / "station.toml", "--output", tmp_path / "out", "--verify")
    assert content["facts"]["events"] == 8
    assert content["facts"]["quarantined rows"] == 4
    assert content["facts"]["rejected events"] == 1
    assert content["verification"]["differences"] == []
    assert content["verification"]["values"] == 4
    assert sorted(row["reason"] for row in rows_of(tmp_path / "out" / "quarantined")) == [
        "5 fields, expected 7",
        "celsius 'warm': not a number",
        "time 'yesterday': not an ISO 8601 time",
        "wind 'NaN': NaN and infinities are no values",
    ]
    assert rows_of(tmp_path / "out" / "rejected") == [
        {"event_id": "r-012", "reason": "the broker is not in the overlay"}
    ]
    strongest = [r["exact"] for r in rows_of(tmp_path / "out" / "notifications") if r["output"] == "strongest"]
    assert sorted(strongest) == ["19.2", "20.4"]
    assert {(row["source"], row["target"]) for row in content["traffic"]} >= {("hill", "town"), ("harbour", "town")}
    again = called("replay", EXAMPLES / "station.toml", "--output", tmp_path / "out")
    assert again.exit_code == 2
    assert "out is not empty; accepted is a new folder, or --overwrite" in again.stderr


class Clock:
    """A clock that only what is measured moves."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now


@pytest.mark.spark
def test_starting_is_not_counted_as_answering(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def start(*_: object) -> None:
        clock.now += 1_000

    monkeypatch.setattr("catchment.app.replaying.time", clock)
    monkeypatch.setattr("catchment.app.replaying.start_workers", start)
    facts = told("replay", "--workload", "traffic", "--events", 100, "--subscriptions-count", 20)["facts"]
    assert facts["seconds starting"] >= 1_000
    assert facts["seconds answering"] < 1
    assert facts["events a second"] > 100


@pytest.mark.spark
def test_replay_from_options_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"event_id": "e1", "ts": "2024-01-01", "x": 1}\n{"event_id": "e2", "ts": "?"}\n')
    (tmp_path / "q.sql").write_text("-- name: all\nSELECT * FROM t;\n")
    result = called(
        "replay", "--source", tmp_path / "a.jsonl", "--subscriptions", tmp_path / "q.sql", "--topic", "t",
        "--attributes", "x=int",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = {line.split("  ")[1]: line.split()[-1] for line in result.stdout.splitlines() if "  " in line.strip()}
    assert (shown["events"], shown["quarantined rows"], shown["deliveries"]) == ("1", "1", "1")


@pytest.mark.spark
def test_replay_of_a_workload_agrees_with_the_oracle_and_a_difference_is_exit_code_1(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("replay", "--workload", "stock", "--events", 2_000, "--subscriptions-count", 30, "--verify")
    content = told(*arguments)
    assert content["verification"]["subscriptions"] == 30
    assert content["verification"]["values"] > 10
    assert content["verification"]["deliveries"] > 10
    assert content["verification"]["differences"] == []
    monkeypatch.setattr(
        "catchment.app.replaying.verify",
        lambda *_, **__: catchment.lab.verifying.Verification(  # type: ignore[attr-defined]
            subscriptions=1, values=1, deliveries=0, differences=("missing: [one]",)
        ),
    )
    result = called(*arguments)
    assert result.exit_code == 1
    assert "1 differences from the oracle, among them:\n  missing: [one]" in result.stderr


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(("workload", "count"), [("traffic", 990), ("stock", 810)])
def test_replay_of_the_real_data_gives_the_answers_of_the_oracle(
    workload: str, count: int, spark: SparkSession
) -> None:
    data = REAL_DATA / workload
    if not data.is_dir():
        pytest.skip(f"the public data is not in {data}")
    content = told("replay", "--workload", workload, "--data", data, "--subscriptions-count", count, "--verify")
    assert content["facts"]["subscriptions"] == count
    assert content["verification"]["differences"] == []
    assert content["verification"]["values"] > 10_000


def test_an_error_inside_a_task_is_told_in_its_own_words() -> None:
    text = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in run\n'
        "catchment.model.errors.EventError: the file is odd; accepted are even ones\n"
        "\n\tat org.apache.spark.Something(Something.scala:1)"
    )
    assert explanation(PySparkException(message=text)) == "the file is odd; accepted are even ones"
    other = "Job aborted.\nTraceback (most recent call last):\nZeroDivisionError: division by zero\n\tat java.lang"
    assert explanation(PySparkException(message=other)) == "ZeroDivisionError: division by zero"
    java = "An error occurred while calling o5.parquet.\n: java.io.IOException: /x is no folder\n\tat java.lang"
    assert explanation(Py4JError(java)) == "IOException: /x is no folder"
    assert explanation(PySparkException(message="[PATH_NOT_FOUND] no path\nmore")) == "[PATH_NOT_FOUND] no path"


# run -----------------------------------------------------------------------------------------------------------------

FILES = {
    1: "id,time,b,speed\n1,2024-01-01 00:00:00,north,1\n2,2024-01-01 00:00:05,north,x\n3,2024-01-01 00:00:09,south,3\n",
    2: "id,b,time,speed\n4,north,2024-01-01 00:00:12,5\n5,south,2024-01-01 00:00:15\n6,south,2024-01-01 00:00:19,7\n",
}
JOB = """
subscriptions = "asked.sql"
[overlay]
links = [["north", "south"]]
[topics.t]
speed = "float"
[source]
format = "csv"
path = "in"
event_id = "id"
ts = "time"
topic = "t"
broker = { column = "b" }
max_files_per_trigger = 1
[options]
checkpoint = "ck"
trigger = "500 milliseconds"
"""
AVERAGE = "-- name: average\n-- at: north\nSELECT avg(speed) FROM t GROUP BY window(ts, '10 seconds');\n"
FAST = "-- name: fast\n-- at: south\nSELECT * FROM t WHERE speed > 4;\n"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "asked.sql").write_text(AVERAGE)
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def arrive(folder: Path, number: int) -> None:
    """A file appears whole, as the source takes it for finished."""
    draft = folder / f"{number}.tmp"
    draft.write_text(FILES[number])
    os.utime(draft, (1_700_000_000 + number, 1_700_000_000 + number))
    shutil.move(draft, folder / "in" / f"{number}.csv")


@pytest.mark.spark
def test_run_drains_what_is_there_and_goes_on_later(spark: SparkSession, job_file: Path) -> None:
    folder = job_file.parent
    arrive(folder, 1)
    first = told("run", job_file, "--available-now")
    assert (first["status"]["events"], first["quarantined"]) == (2, 1)
    arrive(folder, 2)
    second = told("run", job_file, "--available-now", "--end")
    assert (second["status"]["events"], second["quarantined"]) == (4, 2)
    values = {(r["window_start"].second, r["value"]) for r in rows_of(folder / "ck" / "results" / "notifications")}
    assert values == {(0, 2.0), (10, 6.0)}
    reasons = sorted(row["reason"] for row in rows_of(folder / "ck" / "quarantined"))
    assert reasons == ["3 fields, expected 4", "speed 'x': not a number"]


@pytest.mark.spark
def test_run_takes_up_a_changed_file_of_subscriptions(spark: SparkSession, job_file: Path) -> None:
    folder = job_file.parent
    job = with_options(
        load_configuration(job_file), checkpoint=None, output=str(folder / "out"), master=None, available_now=False
    )
    messages = (folder / "messages").open("w+")
    steps = Steps(Console(file=messages, width=200))
    stop = threading.Event()
    ended: list[Ran] = []
    running = threading.Thread(
        target=lambda: ended.append(run_job(job, seconds=120, steps=steps, until=stop.is_set, spark=spark))
    )
    running.start()

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 100
        while text not in (folder / "messages").read_text():
            assert time.monotonic() < deadline, f"{text!r} is not in {(folder / 'messages').read_text()}"
            assert running.is_alive()
            running.join(0.1)

    try:
        wait_for("job started")
        (folder / "asked.sql").write_text(AVERAGE + FAST.replace("FROM t", "FROM tides"))
        wait_for("not taken up: ")  # a mistake stops nobody
        (folder / "asked.sql").write_text(FAST)
        wait_for("subscribe fast")
        wait_for("unsubscribe average")
    finally:
        stop.set()
        running.join()
        messages.close()
    assert ended[0].changes == ["unsubscribe average", "subscribe fast"]
    assert ended[0].status["subscriptions"] == 1


def test_the_difference_of_two_files_of_subscriptions(job_file: Path) -> None:
    job = load_configuration(job_file)
    asked = job_file.parent / "asked.sql"
    watched = Watched(asked, {one.name: one for one in job.subscriptions}, job)
    assert watched.changes() == []
    asked.write_text(AVERAGE.replace("10", "20") + FAST)
    assert [(verb, one.name) for verb, one in watched.changes()] == [
        ("unsubscribe", "average"),
        ("subscribe", "average"),
        ("subscribe", "fast"),
    ]
    assert watched.changes() == []
    asked.unlink()
    assert watched.changes() == []  # an editor takes a file away before it puts it back


@pytest.mark.spark
def test_ctrl_c_stops_a_run_cleanly(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "catchment.app.main", "run", str(TRAFFIC), "--json"]
    with subprocess.Popen(
        [*command, "--checkpoint", str(tmp_path / "ck"), "--master", "local[1]"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if "job started" in line:
                break
        ledgers = tmp_path / "ck" / "ledger"
        deadline = time.monotonic() + 120
        while not (ledgers.is_dir() and any(ledgers.iterdir())) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert json.loads(output)["status"]["events"] > 0


def test_progress_is_told_once_where_no_terminal_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*, report: Callable[[str], None], **options: Any) -> dict[str, Any]:
        for line in ("1 of 2 [runs] done", "1 of 2 [runs] done", "2 of 2 [runs] done"):
            report(line)
        return {}

    monkeypatch.setattr(bench_simulation, "run", measured)
    result = called("bench", "simulation", "--json")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == ["1 of 2 [runs] done", "2 of 2 [runs] done"]


@pytest.mark.parametrize("command", [["demo"], ["reproduce", "debs14"]])
def test_a_page_that_cannot_be_written_is_refused_before_the_work(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        result = called(*command, "--output", output)
        assert result.exit_code == 2
        line = " ".join(result.stderr.split())
        assert f"error: the page cannot be written to '{output}'" in line
        assert line.endswith("accepted is a folder that can be made and written to")


@pytest.mark.spark
@pytest.mark.parametrize("command", [["replay", TRAFFIC], ["run", TRAFFIC, "--checkpoint", "CHECKPOINT"]])
def test_results_that_cannot_be_written_are_refused_before_the_work(
    command: list[object], tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    outputs = {str(below): "Not a directory", f"file://{below}": "Not a directory", "nowhere://x/y": "No FileSystem"}
    arguments = [tmp_path / "checkpoint" if one == "CHECKPOINT" else one for one in command]
    for output, reason in outputs.items():
        result = called(*arguments, "--output", output)
        assert result.exit_code == 2, result.output
        line = result.stderr.splitlines()[-1]
        assert line.startswith(f"error: the results cannot be written to '{output}' (")
        assert reason in line
        assert line.endswith("accepted is a folder that can be made and written to")
        for step in ("source opened", "job started"):
            assert step not in result.stderr
        assert ("Spark started" in result.stderr) is ("://" in output)
    if "--checkpoint" in command:
        result = called("run", TRAFFIC, "--checkpoint", below)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: the checkpoint cannot be written to '{below}' (Not a directory)")


@pytest.mark.parametrize("given", ["inf", "nan", "1e18", "1", "-3"])
def test_runs_of_no_length_are_refused(given: str) -> None:
    result = called("bench", "placement", f"--seconds={given}")
    assert result.exit_code == 2
    assert "accepted are 2 to 10000" in result.stderr
