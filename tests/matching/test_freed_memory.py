"""No kernel reads memory that is freed: a debugging allocator, which overwrites it, changes no answer."""

import os
import subprocess
import sys

MATCH = """
import pyarrow as pa
from catchment import Filter, Matcher, Schema

conditions = ["speed < 60", "highway LIKE '4%' AND speed >= 60", "highway = '401' OR vehicles IN (1, 3)"]
texts = [f"({one}) AND vehicles < {limit}" for one in conditions for limit in range(400)]
filters = {text: Filter.parse(text) for text in texts}
matcher = Matcher(filters, Schema({"speed": "float", "highway": "string", "vehicles": "int"}))
events = pa.table({"speed": [1.0, 70.0, None], "highway": ["401", "400", "qew"], "vehicles": [1, 200, 3]})
holding = [[text for text in texts if filters[text].matches(event)] for event in events.to_pylist()]
for repeat in (1, 700):
    rows, names = matcher.match(pa.concat_tables([events] * repeat))
    want = {(row, text) for row in range(3 * repeat) for text in holding[row % 3]}
    assert len(want) == len(rows) and want == set(zip(rows.tolist(), names, strict=True)), (len(rows), len(want))
"""


def test_matches_are_the_same_where_freed_memory_is_overwritten() -> None:
    debugging = {**os.environ, "PYTHONMALLOC": "debug"}
    done = subprocess.run([sys.executable, "-c", MATCH], env=debugging, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
