"""The eight examples of the DEBS'14 paper, with its numbers."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from catchment import Overlay, Schema, Subscription, oracle, simulate
from catchment.model.operators import OPERATORS, Measure
from catchment.model.schema import Type
from catchment.model.window import Window
from catchment.overlay import topic_tree
from catchment.overlay.placement import Adaptive, Early, Fold, Knowledge, Late, Placement
from catchment.stages import Active, compile_plan, lots_of, origins_of, prepared_lots
from tests.stages.local import answers

SCHEMA = Schema({"sym": Type.STRING, "value": Type.FLOAT})
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOURLY = "GROUP BY window(ts, '1 hour', '10 minutes')"
FIGURE_4 = Overlay.from_links([("B1", "B3"), ("B2", "B3"), ("B3", "B4")])


def quotes(*rows: tuple[str, int, float], symbol: str = "IBM") -> pa.Table:
    """Broker, time and value of each publication."""
    return pa.table(
        {
            "event_id": [f"P{number}" for number in range(1, len(rows) + 1)],
            "topic": ["stock"] * len(rows),
            "broker": [broker for broker, _, _ in rows],
            "ts": pa.array([seconds * SECOND_US for _, seconds, _ in rows], pa.timestamp("us", "UTC")),
            "sym": [symbol] * len(rows),
            "value": [value for _, _, value in rows],
        }
    )


def asking(what: str, *, name: str = "S", at: str = "B4", group: str = HOURLY) -> Subscription:
    return Subscription(name, at, sql=f"SELECT {what} FROM stock WHERE sym = 'IBM' {group}")


def test_example_1_an_aggregate_subscription() -> None:
    query = asking("avg(value)").within({"stock": SCHEMA})
    assert str(query.where) == "sym = 'IBM'"
    assert query.aggregate is not None
    assert query.aggregate.window == Window(60 * MINUTE_US, 10 * MINUTE_US)
    assert [output.measure for output in query.aggregate.outputs] == [Measure("avg", "value")]


def test_example_2_operators_of_all_types() -> None:
    states = {name: OPERATORS[name].state(Type.FLOAT).name for name in ("sum", "avg", "median")}
    assert {name: OPERATORS[name].category for name in states} == {
        "sum": "self-decomposable",
        "avg": "indirectly decomposable",
        "median": "not decomposable",
    }
    # An average travels as a sum and a count; a median is fetched: its values travel.
    assert states == {"sum": "real total", "avg": "real total", "median": "values"}


@pytest.mark.parametrize(
    ("window", "numbers_at"),
    [
        (Window(2, 4), {0: 1, 3: 0, 9: 1}),  # sampling
        (Window(4, 4), {0: 1, 3: 1, 9: 1}),  # tumbling
        (Window(6, 3), {0: 2, 3: 2, 9: 2}),  # sliding
    ],
)
def test_example_3_notification_window_ranges(window: Window, numbers_at: dict[int, int]) -> None:
    """A publication is in no window, in one, or in several, as the windows sample, tumble or slide."""
    assert {time: len(window.windows_of(time)) for time in numbers_at} == numbers_at


def test_example_3_the_last_publication_is_in_four_windows() -> None:
    assert sum(len(window.windows_of(9)) for window in (Window(2, 4), Window(4, 4), Window(6, 3))) == 4


VALUES = (4.0, 2.0, 5.0, 9.0, 5.0)


def test_example_4_intermediate_results_whole_and_in_two_parts() -> None:
    for operator, whole, first, second in (
        ("sum", (5, 25.0), (3, 11.0), (2, 14.0)),
        ("avg", (5, 25.0), (3, 11.0), (2, 14.0)),
        ("median", [4, 2, 5, 9, 5], [4, 2, 5], [9, 5]),
    ):
        state = Measure(operator, "value").state(Type.FLOAT)

        def collected(values: Sequence[float]) -> object:
            made = state.create(Type.FLOAT)  # noqa: B023
            for value in values:
                made = state.add(made, value, Type.FLOAT)  # noqa: B023
            return made

        def shown(made: object) -> object:
            if operator == "median":  # noqa: B023
                return state.values(made, Type.FLOAT)  # type: ignore[union-attr, arg-type] # noqa: B023
            count, total, carry, _ = made  # type: ignore[misc]
            return (count, total + carry)

        assert shown(collected(VALUES)) == whole
        parts = collected(VALUES[:3]), collected(VALUES[3:])
        assert [shown(part) for part in parts] == [first, second]
        assert shown(state.merge(*parts, Type.FLOAT)) == whole


@pytest.mark.parametrize("cuts", [(), (3,)])
def test_example_5_results_are_transformed_back(cuts: tuple[int, ...]) -> None:
    events = quotes(*(("B1", minute * 60, value) for minute, value in enumerate(VALUES)))
    window = "GROUP BY window(ts, '10 minutes')"
    asked = [asking(f"{name}(value)", name=name, group=window) for name in ("sum", "avg", "median")]
    notifications, *_ = answers(events, asked, {"stock": SCHEMA}, overlay=FIGURE_4, cuts=cuts)
    found = {row["subscription"]: row["value"] for row in notifications.to_pylist()}
    assert found == {"sum": 25.0, "avg": 5.0, "median": 5.0}


# Examples 6 to 8: figure 4. All four publications fall into one window.
PUBLISHED = quotes(("B1", 1, 5.0), ("B1", 2, 9.0), ("B2", 3, 4.0), ("B2", 4, 2.0))
AVERAGE = asking("avg(value)", group="GROUP BY window(ts, '10 minutes')")


def carried(
    placement: Placement | None, asked: Sequence[Subscription], modes: Sequence[str] = ()
) -> dict[str, tuple[int, int]]:
    """Publications and partials on each link that carries any; `modes` are the brokers that aggregate."""
    plan = compile_plan([Active(one) for one in asked], {"stock": SCHEMA}, FIGURE_4)
    topic, tree = plan.topics["stock"], topic_tree(FIGURE_4)
    batch = PUBLISHED.combine_chunks().to_batches()[0]
    lots = lots_of(topic, batch, *topic.matcher.match_slots(batch), origins_of(plan, batch))
    prepared = prepared_lots(topic, len(FIGURE_4), [lots], "window")
    if placement is None:
        placement = Adaptive(Knowledge.of(tree, prepared.series), period_us=3600 * SECOND_US)
        placement.aggregates[[FIGURE_4.require(broker) for broker in modes]] = True
    fold = Fold(tree, placement, prepared.series).run(prepared.cells)
    counts = zip(tree.link_names, fold.publications.messages.tolist(), fold.partials.messages.tolist(), strict=True)
    return {f"{a}-{b}": (raw, partials) for (a, b), raw, partials in counts if raw or partials}


def total(found: dict[str, tuple[int, int]]) -> int:
    return sum(raw + partials for raw, partials in found.values())


def test_example_6_late_sends_every_publication_over_every_hop() -> None:
    found = carried(Late(), [AVERAGE])
    assert found == {"B1-B3": (2, 0), "B2-B3": (2, 0), "B3-B4": (4, 0)}
    assert total(found) == 8
    answer = oracle(PUBLISHED, subscriptions=[AVERAGE])
    assert [line.value for line in answer.lines] == [5.0]


def test_example_7_early_sends_three_partials() -> None:
    found = carried(Early(), [AVERAGE])
    assert found == {"B1-B3": (0, 1), "B2-B3": (0, 1), "B3-B4": (0, 1)}
    assert total(found) == 3


@pytest.mark.parametrize(("placement", "messages"), [("late", 8), ("early", 3), ("cover", 3)])
def test_examples_6_and_7_with_real_brokers(placement: str, messages: int) -> None:
    found = simulate(PUBLISHED, overlay=FIGURE_4, subscriptions=[AVERAGE], placement=placement)
    rows = found.traffic.to_pylist()
    assert sum(row["messages"] for row in rows if row["kind"] in ("publication", "partial")) == messages
    assert sum(row["messages"] for row in rows if row["kind"] == "notification") == 1
    assert found.notifications.column("value").to_pylist() == [5.0]


REGULAR = Subscription("R", "B4", sql="SELECT * FROM stock WHERE sym = 'IBM' AND value > 4")


def test_example_8_a_broker_forwards_where_a_regular_subscription_wants_everything() -> None:
    # B1 forwards P1 and P2; B2 aggregates P3 and P4; B3 aggregates: P1, P2 and a merged partial.
    assert carried(None, [AVERAGE, REGULAR], modes=["B2", "B3"]) == {
        "B1-B3": (2, 0),
        "B2-B3": (0, 1),
        "B3-B4": (2, 1),
    }
    # B3 forwards: P1, P2 and B2's partial as it is.
    assert carried(None, [AVERAGE, REGULAR], modes=["B2"])["B3-B4"] == (2, 1)


def test_example_8_the_adaptation_engine_comes_to_these_modes() -> None:
    plan = compile_plan([Active(one) for one in (AVERAGE, REGULAR)], {"stock": SCHEMA}, FIGURE_4)
    topic, tree = plan.topics["stock"], topic_tree(FIGURE_4)
    batch = PUBLISHED.combine_chunks().to_batches()[0]
    lots = lots_of(topic, batch, *topic.matcher.match_slots(batch), origins_of(plan, batch))
    prepared = prepared_lots(topic, len(FIGURE_4), [lots], "window")
    adaptive = Adaptive(Knowledge.of(tree, prepared.series), period_us=600 * SECOND_US)
    fold = Fold(tree, adaptive, prepared.series)
    for cell in prepared.cells:
        fold.feed(cell)
    fold.advance(600 * SECOND_US)
    modes = {broker: bool(adaptive.aggregates[FIGURE_4.require(broker)]) for broker in ("B1", "B2")}
    assert modes == {"B1": False, "B2": True}
