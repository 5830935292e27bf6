"""Which partials might pass their types: a stream counts overflows only where some do."""

import pyarrow as pa
import pytest

from catchment import Subscription
from catchment.model.schema import Schema, Type
from catchment.stages import Active, compile_plan, partials_of_accepted
from catchment.stages.holding import HELD
from catchment.stages.partials import has_large_totals

SCHEMA = Schema({"n": "int", "x": "float", "s": "string"})
LARGE_INT = int(HELD["whole total", Type.INT].large["whole"]) << 32


def is_large(measure: str, **columns: list[object]) -> bool:
    sql = f"SELECT count(*), {measure} FROM t GROUP BY window(ts, '10 seconds')"
    plan = compile_plan([Active(Subscription("one", sql=sql))], {"t": SCHEMA}, None)
    count = len(next(iter(columns.values())))
    events = {
        "event_id": pa.array(range(count)),
        "topic": pa.array(["t"] * count),
        "broker": pa.array(["-"] * count),
        "ts": pa.array(range(count), pa.timestamp("us", tz="UTC")),
        **{name: pa.array(values, SCHEMA[name].arrow) for name, values in columns.items()},
    }
    (partials,) = partials_of_accepted(plan, pa.RecordBatch.from_pydict(events))
    return has_large_totals(plan.topics["t"], partials)


@pytest.mark.parametrize(
    ("measure", "columns", "large"),
    [
        ("sum(n)", {"n": [1, -5, None]}, False),
        ("sum(n)", {"n": [LARGE_INT]}, True),
        ("avg(n)", {"n": [-LARGE_INT]}, True),
        ("sum(n)", {"n": [LARGE_INT // 2, LARGE_INT // 2]}, True),
        ("min(n), max(n)", {"n": [-(2**63), 2**63 - 1]}, False),
        ("sum(x)", {"x": [1e139, -1e139]}, False),
        ("sum(x)", {"x": [1e140]}, True),
        ("sum(x)", {"x": [1.7e308, 1.7e308]}, True),
        ("avg(x)", {"x": [-1e200]}, True),
        ("var_samp(x)", {"x": [1e150]}, True),
        ("stddev_samp(x)", {"x": [3.0, 1e9]}, False),
        ("min(x), max(x)", {"x": [1.7e308]}, False),
        ("max(s), median(x)", {"s": ["a", "b"], "x": [1e300, 1.0]}, False),
    ],
)
def test_only_sums_and_variances_can_be_too_large(measure: str, columns: dict[str, list[object]], large: bool) -> None:
    assert is_large(measure, **columns) is large
