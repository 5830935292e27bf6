"""What a stream remembers for its placement: enough to go on, and no more than open windows need."""

import msgspec
import pyarrow as pa
import pytest

from catchment import Overlay, Schema, Subscription
from catchment.model.events import as_events
from catchment.overlay import topic_tree
from catchment.overlay.placement import Carried, Strategy
from catchment.pipeline.placing import OngoingTraffic
from catchment.stages import Active, LotRows, Plan, compile_plan, lots_of, origins_of, prepared_lots

OVERLAY = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
SCHEMA = Schema.of({"n": "int", "who": "string"})
SECOND_US, PERIOD_US = 1_000_000, 2_000_000
SECONDS = 60


def plan_of(*names: str) -> Plan:
    sql = "SELECT who, sum(n) FROM t GROUP BY window(ts, '4 seconds', '2 seconds'), who"
    active = [Active(Subscription(name, "b3", sql=sql)) for name in names]
    return compile_plan(active, {"t": SCHEMA}, OVERLAY)


def lots_at(plan: Plan, second: int) -> LotRows:
    """Six events of a group that never comes again."""
    rows = [
        {
            "event_id": second * 6 + n,
            "topic": "t",
            "broker": f"b{1 + n % 2}",
            "ts": second * SECOND_US + n,
            "n": n,
            "who": f"w{second}",
        }
        for n in range(6)
    ]
    table = pa.Table.from_pylist(rows).cast(
        pa.schema([
            ("event_id", pa.int64()), ("topic", pa.string()), ("broker", pa.string()),
            ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("who", pa.string()),
        ])
    )  # fmt: skip
    batch = as_events(table, SCHEMA).combine_chunks().to_batches()[0]
    topic = plan.topics["t"]
    return lots_of(topic, batch, *topic.matcher.match_slots(batch), origins_of(plan, batch), PERIOD_US)


@pytest.mark.parametrize("placement", ["late", "early", "adaptive", "selective", "coordinated", "cover"])
def test_memory_is_bounded_by_open_windows_and_nothing_is_lost(placement: str) -> None:
    plan, tree = plan_of("s"), topic_tree(OVERLAY)
    saved: bytes | None = None
    sent = Carried.none(len(tree.links))
    sizes, everything = [], []
    for second in range(SECONDS):
        everything.append(lots_at(plan, second))
        ongoing = OngoingTraffic(tree, Strategy(placement, PERIOD_US), saved)
        sent += ongoing.advance(plan, {"t": everything[-1]}, second * SECOND_US)
        saved = ongoing.saved()
        sizes.append(len(msgspec.msgpack.decode(saved)["t"]["series"]))
    last = OngoingTraffic(tree, Strategy(placement, PERIOD_US), saved)
    sent += last.advance(plan, {}, None)
    prepared = prepared_lots(plan.topics["t"], len(OVERLAY), everything, Strategy(placement).grain)
    whole = Strategy(placement, PERIOD_US).carried(tree, prepared.series, prepared.cells)
    assert sent.publications.messages.tolist() == whole.publications.messages.tolist()
    assert sent.partials.messages.tolist() == whole.partials.messages.tolist()
    assert sent.transitions == whole.transitions
    assert (sent.publications.messages + sent.partials.messages).sum() > 0
    assert max(sizes) <= 16


def test_questions_that_are_asked_no_more_are_forgotten() -> None:
    before, after, tree = plan_of("s", "r"), plan_of("r"), topic_tree(OVERLAY)
    ongoing = OngoingTraffic(tree, Strategy("selective", PERIOD_US), None)
    for second in range(4):
        ongoing.advance(before, {"t": lots_at(before, second)}, second * SECOND_US)
    later = OngoingTraffic(tree, Strategy("selective", PERIOD_US), ongoing.saved())
    later.advance(after, {"t": lots_at(after, 4)}, 4 * SECOND_US)
    named = {who[0] for *_, who in msgspec.msgpack.decode(later.saved())["t"]["series"]}
    assert named == {"r"}
