"""Sessions that others started, whose workers run another Python than the driver, or one without this package."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).parents[2] / "src"
JOB = """
import json, os, sys
sys.path[:0] = sys.argv[2:]
import catchment
from datetime import datetime, UTC
from catchment.pipeline.java import prepare_java
from pyspark.sql import SparkSession

prepare_java(os.environ)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
events = spark.createDataFrame(
    [(n, "t", "b", datetime(2026, 1, 1, 0, 0, n, tzinfo=UTC), float(n)) for n in range(3)],
    "event_id long, topic string, broker string, ts timestamp, x double",
)
asked = catchment.Subscription("s", sql="SELECT median(x) AS x FROM t GROUP BY window(ts, '1 minute')")
folder = sys.argv[1]
events.write.parquet(folder + "/events")
run = catchment.replay(spark, events, subscriptions=[asked])
found = {"replay": [row.value for row in run.notifications.collect()]}
if os.environ["ALSO_STREAM"]:
    stream = spark.readStream.schema(events.schema).parquet(folder + "/events")
    job = catchment.stream(
        spark, stream, checkpoint=folder + "/checkpoint", subscriptions=[asked], trigger="available now"
    )
    job.await_termination()
    job.end()
    found["stream"] = [row.value for row in job.notifications.collect()]
found["python"] = spark.sparkContext.pythonExec
spark.sparkContext.pythonExec = os.environ["PYSPARK_PYTHON"]
spark.sparkContext.environment.pop("PYTHONPATH", None)
try:
    catchment.replay(spark, events, subscriptions=[asked]).notifications.collect()
except Exception as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python of the same version that has no packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def told(driver: Path | str, folder: Path, *sys_path: str, **environment: str) -> dict[str, object]:
    command = [str(driver), "-c", JOB, str(folder), *sys_path]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_workers_of_another_python_get_that_of_the_driver_or_name_what_they_lack(
    bare_python: Path, tmp_path: Path
) -> None:
    found = told(sys.executable, tmp_path, PYSPARK_PYTHON=str(bare_python), ALSO_STREAM="yes")
    assert (found["replay"], found["stream"], found["python"]) == ([1.0], [1.0], sys.executable)
    said = str(found["error"])
    assert f"the Python worker {bare_python} on " in said
    assert f"cannot import catchment, which {sys.executable} of the driver can" in said
    assert "set PYSPARK_PYTHON or spark.pyspark.python to a Python with catchment installed" in said


def test_workers_find_a_package_that_only_the_driver_was_shown(bare_python: Path, tmp_path: Path) -> None:
    packages = sysconfig.get_path("purelib")  # on PYTHONPATH, the link of an editable installation is not followed
    environment = {"PYSPARK_PYTHON": str(bare_python), "PYTHONPATH": packages, "ALSO_STREAM": ""}
    found = told(bare_python, tmp_path, str(SOURCE), **environment)
    assert (found["replay"], found["python"]) == ([1.0], str(bare_python))
    assert "cannot import catchment, which" in str(found["error"])
