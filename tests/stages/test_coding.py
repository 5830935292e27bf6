"""Every event falls into the cell of its own group, however many keys there are and however many values they have."""

import json

import numpy as np
import pyarrow as pa
import pytest

from catchment import Schema, Subscription
from catchment.stages import Active, compile_plan
from catchment.stages.coding import Coded


@pytest.mark.parametrize(
    ("key_count", "value_count", "event_count"), [(4, 60_000, 60_000), (10, 100, 20_000), (70, 2, 500)]
)
def test_groups_pair_only_keys_that_occur_together(key_count: int, value_count: int, event_count: int) -> None:
    random = np.random.default_rng(1)
    values = np.stack([random.permutation(np.arange(event_count) % value_count) for _ in range(key_count)])
    names = [f"k{number}" for number in range(key_count)]
    columns = {name: pa.array(of_key.astype(str)) for name, of_key in zip(names, values, strict=True)}
    batch = pa.record_batch({"ts": pa.array(np.zeros(event_count, np.int64)), **columns})
    sql = f"SELECT count(*) FROM t GROUP BY window(ts, '1 second'), {', '.join(names)}"
    plan = compile_plan([Active(Subscription("s", sql=sql))], {"t": Schema(dict.fromkeys(names, "string"))}, None)
    topic = plan.topics["t"]
    coded = Coded.of(topic.layouts[0], np.zeros(event_count, np.int64), batch, topic)
    assert coded.groups is not None
    got = [tuple(json.loads(text)) for text in coded.groups.take(pa.array(coded.codes)).to_pylist()]
    assert got == list(zip(*values.astype(str).tolist(), strict=True))
