"""For all tests: Hypothesis without a clock; one local Spark session and one real cluster, each only if asked for."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from catchment.pipeline.session import spark_session
from tests.pipeline.cluster import SparkCluster

# A busy machine is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("catchment-tests", master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster"), worker_count=2) as cluster:
        yield cluster
