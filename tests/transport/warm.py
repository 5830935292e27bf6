"""Imported once by the process that forks brokers: what is compiled here, no broker has to compile again."""

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker
from catchment.broker.inputs import Attached
from tests.broker.wire import SCHEMAS, Desk, Voice
from tests.transport import processes

__all__ = ["processes"]

_voice = Voice("c")
_desk = Desk(Broker("b", ["n"], processes.settings_of(SCHEMAS), [Aggregation(SCHEMAS, AggregationOptions())]))
_desk.hand(Attached("c"))
for _number, _sql in enumerate(
    [
        "SELECT * FROM traffic WHERE speed > 1",
        "SELECT avg(speed) FROM traffic WHERE speed < 9 GROUP BY window(ts, '20 seconds', '5 seconds')",
        "SELECT highway, sum(vehicles) FROM traffic GROUP BY window(ts, '10 seconds'), highway",
    ],
    1,
):
    _desk.hand(_voice.says(m.SubscribeTo(_number, f"s{_number}", _sql)))
_desk.hand(_voice.says(m.AdvertiseTopic(4, "traffic")))
for _time_us in (1, 100_000_000):
    _events = {
        "speed": [5.0],
        "highway": ["401"],
        "vehicles": [1],
        "ts": pa.array([_time_us], pa.timestamp("us", "UTC")),
    }
    _desk.hand(_voice.says(m.PublishEvents(4 + _time_us, "traffic", pa.RecordBatch.from_pydict(_events))))
