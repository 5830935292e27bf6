import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catchment import oracle, replay
from catchment.oracle import differences
from tests.pipeline.cluster import SparkCluster
from tests.pipeline.scenario import INITIAL, OVERLAY, events

pytestmark = pytest.mark.spark

SQUARES_AND_WHERE = """
import json, os, pathlib, sys
import pyarrow as pa
from catchment.pipeline.session import spark_session

def squares(batches):
    worker = pathlib.Path.cwd().parents[1].name
    for batch in batches:
        ids = batch.column("id").to_pylist()
        columns = [[i * i for i in ids], [worker] * len(ids)]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], ["square", "worker"])

wait_for_all_workers = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.cores.max": "2",
}
spark = spark_session(master=sys.argv[1], config=wait_for_all_workers)
rows = spark.range(0, 1000, 1, 4).mapInArrow(squares, "square long, worker string").collect()
print(json.dumps({
    "master": spark.sparkContext.master,
    "sum": sum(row.square for row in rows),
    "workers": sorted({row.worker for row in rows}),
}))
"""


@pytest.mark.long
def test_a_job_runs_on_both_workers_of_a_real_cluster(spark_cluster: SparkCluster) -> None:
    result = json.loads(spark_cluster.run(SQUARES_AND_WHERE, timeout_s=180))
    assert result == {
        "master": spark_cluster.master,
        "sum": sum(i * i for i in range(1000)),
        "workers": ["work1", "work2"],
    }


SAME_JOB = """
import sys
from catchment import replay, spark_session, stream
from tests.pipeline.scenario import EVENTS_SCHEMA, INITIAL, OVERLAY

folder = sys.argv[2]
spark = spark_session(master=sys.argv[1], config={"spark.cores.max": "2"})
run = replay(spark, spark.read.parquet(f"{folder}/in"), subscriptions=INITIAL, overlay=OVERLAY, engine="shared")
run.notifications.write.parquet(f"{folder}/replay/notifications")
run.deliveries.write.parquet(f"{folder}/replay/deliveries")
run.traffic.write.parquet(f"{folder}/replay/traffic")
source = spark.readStream.schema(EVENTS_SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
job = stream(spark, source, checkpoint=f"{folder}/checkpoint", subscriptions=INITIAL, overlay=OVERLAY,
             lateness="1 hour", trigger="available now")
job.await_termination()
job.end()
print(len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1)
"""


def test_the_same_job_gives_the_same_results_on_a_cluster(
    spark: SparkSession, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    table = events(3_000, seed=5, duration_us=120_000_000)
    (tmp_path / "in").mkdir()
    for number in range(3):
        pq.write_table(table.slice(number * 1_000, 1_000), tmp_path / "in" / f"{number}.parquet")
    executors = spark_cluster.run(SAME_JOB, str(tmp_path), timeout_s=300)
    assert executors.split() == ["2"]
    answer = oracle(table, subscriptions=INITIAL)
    for folder in (tmp_path / "replay", tmp_path / "checkpoint" / "results"):
        notifications = spark.read.parquet(str(folder / "notifications")).drop("batch").toArrow()
        deliveries = spark.read.parquet(str(folder / "deliveries")).drop("batch").toArrow()
        assert differences(answer, notifications, deliveries) == [], folder.name
    here = replay(spark, spark.createDataFrame(table), subscriptions=INITIAL, overlay=OVERLAY).traffic
    there = spark.read.parquet(str(tmp_path / "replay" / "traffic"))
    assert sorted(map(tuple, there.collect())) == sorted(map(tuple, here.collect()))
