import os
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from catchment.model.errors import ConfigurationError
from catchment.pipeline.session import _is_loopback, _require_master, spark_session

pytestmark = pytest.mark.spark


def environment_of_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable], "cache": [os.environ["NUMBA_CACHE_DIR"]]})


def test_python_workers_run_this_python_and_share_the_compiled_code(spark: SparkSession) -> None:
    rows = spark.range(0, 1, 1, 1).mapInArrow(environment_of_worker, "python string, cache string").collect()
    assert [tuple(row) for row in rows] == [(sys.executable, os.environ["NUMBA_CACHE_DIR"])]


def test_the_session_has_what_our_jobs_count_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "100000"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert "RocksDB" in (spark.conf.get("spark.sql.streaming.stateStore.providerClass") or "")


def test_it_opens_nothing_to_the_network(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_a_second_call_returns_the_running_session_with_the_given_config(spark: SparkSession) -> None:
    try:
        again = spark_session(config={"spark.sql.shuffle.partitions": "3"})
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2, 4]", "spark://127.0.0.1:7077", "spark://localhost:1"]
)
def test_masters_on_this_machine(master: str) -> None:
    assert _is_loopback(master)


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local[*]", "local[2, 4]", "local-cluster[2, 1, 1024]", "spark://a:7077", "spark://a:1,b:2",
     "spark://[::1]:7077", "yarn", "k8s://https://h:443", "mesos://h:5050"],
)  # fmt: skip
def test_masters_that_spark_knows(master: str) -> None:
    _require_master(master)


@pytest.mark.parametrize(
    "master", ["bogus", "local[x]", "local[]", "spark://host", "spark://", "yarn://", "Yarn", "k8s://"]
)
def test_other_masters_are_refused_before_java_starts(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"master is '.*'; accepted are local, local\[4\]"):
        spark_session(master=master)


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "spark://localhost.example:1", "yarn", "k8s://https://h"])
def test_masters_elsewhere(master: str) -> None:
    assert not _is_loopback(master)
