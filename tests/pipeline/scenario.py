"""One stream with everything in it: all kinds of windows, groups, regular subscriptions, changes, late events."""

import numpy as np
import pyarrow as pa

from catchment import Overlay, Subscription
from catchment.workloads import generate_traffic

BROKERS = ("b1", "b2", "b3")
OVERLAY = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
LATENESS = "4 seconds"
EVENTS_SCHEMA = (
    "event_id string, topic string, broker string, ts timestamp, highway string, segment string, road_type string, "
    "speed double, vehicles bigint"
)
COLUMNS = [column.split()[0] for column in EVENTS_SCHEMA.split(", ")]

INITIAL = [
    Subscription("everything", "b1", sql="SELECT * FROM traffic"),
    Subscription("slow", "b2", sql="SELECT highway, speed FROM traffic WHERE speed < 30"),
    Subscription(
        "sliding",
        "b3",
        sql="SELECT avg(speed), sum(vehicles), count(*) FROM traffic GROUP BY window(ts, '20 seconds', '2 seconds')",
    ),
    Subscription(
        "groups",
        "b1",
        sql="SELECT road_type, max(speed), var_samp(speed), count(DISTINCT segment) FROM traffic WHERE speed > 50 "
        "GROUP BY window(ts, '30 seconds'), road_type HAVING count(*) > 2",
    ),
]

CHANGES: list[Subscription | str] = [
    Subscription(
        "sampling",
        "b2",
        sql="SELECT median(speed), min(highway) FROM traffic WHERE vehicles > 1 "
        "GROUP BY window(ts, '5 seconds', '17 seconds')",
    ),
    "slow",
    Subscription(
        "odd", "b3", sql="SELECT sum(speed) AS total FROM traffic GROUP BY window(ts, '7 seconds', '3 seconds')"
    ),
    "sliding",
    Subscription("slow", "b3", sql="SELECT * FROM traffic WHERE speed < 20"),
    Subscription("sliding", "b2", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '20 seconds', '2 seconds')"),
    "sampling",
]


def events(count: int, *, seed: int, duration_us: int) -> pa.Table:
    """Traffic in an order of arrival that jitters by more than the lateness now and then."""
    table = generate_traffic(count, seed=seed, brokers=BROKERS, duration_us=duration_us).select(COLUMNS)
    random = np.random.default_rng(seed)
    jitter_us = random.integers(0, 3_000_000, count)
    jitter_us[random.random(count) < 0.002] = 20_000_000
    arrival = np.argsort(table.column("ts").cast(pa.int64()).to_numpy() + jitter_us, kind="stable")
    return table.take(pa.array(arrival))
