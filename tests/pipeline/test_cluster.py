import json

import pytest

from tests.pipeline.cluster import SparkCluster

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


def test_a_job_runs_on_both_workers_of_a_real_cluster(spark_cluster: SparkCluster) -> None:
    result = json.loads(spark_cluster.run(SQUARES_AND_WHERE, timeout_s=180))
    assert result == {
        "master": spark_cluster.master,
        "sum": sum(i * i for i in range(1000)),
        "workers": ["work1", "work2"],
    }
