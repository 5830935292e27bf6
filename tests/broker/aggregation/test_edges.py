"""The subscriber's own broker."""

from catchment import Subscription
from catchment.broker.aggregation.edges import Edge, Local
from catchment.broker.aggregation.questions import Questions
from catchment.broker.peers import HERE
from tests.broker.aggregation.tools import COUNT, SCHEMA, SUM, TUMBLING, asked, events, pairs, plain


class EdgeBroker:
    """The edge of a broker, with subscriptions of its clients."""

    def __init__(self, *, by_stride: bool = False, revises: bool = False) -> None:
        self.questions = Questions("t", SCHEMA)
        self.edge = Edge(self.questions, by_stride=by_stride, revises=revises)
        self._by_stride = by_stride

    def subscribe(self, client: str, name: str, sql: str = COUNT, *, acknowledged: bool = True) -> int:
        """Whose number."""
        key = f"b/{len(self.edge.locals) + 1}"
        question = asked(sql, "" if self._by_stride else key)
        wanted = Subscription(name, sql=sql).within({"t": SCHEMA}).aggregate
        assert wanted is not None
        self.edge.locals[key] = Local(client, name, sql, wanted, self.questions.id_of(question))
        number = self.questions.add(question, HERE).number
        if acknowledged:
            self.edge.acknowledge(client, name)
        return number

    def add(self, *several: tuple[int, int], numbers: tuple[int, ...] = (0,)) -> None:
        self.edge.add(pairs(events(*several), *numbers), 10)

    def finish(self, until_us: int) -> dict[str, list[tuple[str, int, str, str, int]]]:
        told, _ = self.edge.finish_until(until_us)
        return {client: plain(answers) for client, answers in told.items()}


def test_windows_are_finished_once_for_each_client_by_its_own_names() -> None:
    one = EdgeBroker(by_stride=True)
    for client, name, sql in (("c1", "a", COUNT), ("c1", "b", SUM), ("c2", "a", COUNT)):
        one.subscribe(client, name, sql)
    one.add((1, 5), (2, 6), (12, 7))
    assert one.finish(10) == {
        "c1": [("a", 0, "count(*)", "2", 0), ("b", 0, "sum(x)", "11", 0)],
        "c2": [("a", 0, "count(*)", "2", 0)],
    }
    assert one.finish(10) == {}
    assert one.finish(20)["c2"] == [("a", 10, "count(*)", "1", 0)]


def test_having_decides_what_is_told() -> None:
    one = EdgeBroker()
    one.subscribe("c", "many", f"{COUNT} HAVING count(*) > 1")
    one.add((1, 5), (2, 6), (12, 7))
    assert one.finish(20) == {"c": [("many", 0, "count(*)", "2", 0)]}


def test_a_subscription_that_is_not_acknowledged_is_told_nothing() -> None:
    one = EdgeBroker(by_stride=True)
    one.subscribe("c1", "a", acknowledged=False)
    one.subscribe("c2", "a")
    one.add((1, 5))
    assert one.finish(10) == {"c2": [("a", 0, "count(*)", "1", 0)]}
    one.edge.acknowledge("c1", "a")
    one.add((12, 5))
    assert one.finish(20) == {client: [("a", 10, "count(*)", "1", 0)] for client in ("c1", "c2")}


def test_windows_that_begin_before_everybody_knew_are_left_out() -> None:
    one = EdgeBroker(by_stride=True)
    one.subscribe("c1", "a", acknowledged=False)
    one.edge.begin_after(5)
    one.edge.acknowledge("c1", "a")
    one.subscribe("c2", "a", acknowledged=False)
    one.edge.begin_after(15)  # too late to change anything for c1
    one.edge.acknowledge("c2", "a")
    one.add((6, 5), (16, 5), (26, 5))
    assert one.finish(30) == {
        "c1": [("a", 10, "count(*)", "1", 0), ("a", 20, "count(*)", "1", 0)],
        "c2": [("a", 20, "count(*)", "1", 0)],
    }


def test_news_about_one_question_leaves_others_alone() -> None:
    one = EdgeBroker()
    numbers = one.subscribe("c", "a", acknowledged=False), one.subscribe("c", "b", SUM, acknowledged=False)
    one.edge.begin_after(5, one.edge.locals["b/1"].question)
    for name in ("a", "b"):
        one.edge.acknowledge("c", name)
    one.add((6, 5), numbers=numbers)
    assert one.finish(10) == {"c": [("b", 0, "sum(x)", "5", 0)]}


def test_a_value_is_told_again_only_when_it_has_changed_and_with_its_number() -> None:
    one = EdgeBroker(revises=True)
    one.subscribe("c", "a")
    (key,) = one.questions.by_id
    told = []
    for more in ([(1, 5)], [], [(2, 6)]):
        if more:
            one.add(*more)
        answers = one.edge.finish_items([(key, 0)])
        told.append({client: plain(batch) for client, batch in answers.items()})
    assert told == [{"c": [("a", 0, "count(*)", "1", 0)]}, {}, {"c": [("a", 0, "count(*)", "2", 1)]}]
    one.add((3, 7))
    assert one.finish(10) == {"c": [("a", 0, "count(*)", "3", 2)]}


def test_who_has_unsubscribed_is_told_nothing() -> None:
    one = EdgeBroker(by_stride=True, revises=True)
    for client in ("c1", "c2"):
        one.subscribe(client, "a")
    assert one.edge.unsubscribe("c1", "a")
    assert not one.edge.unsubscribe("c1", "a")
    one.add((1, 5))
    assert one.finish(10) == {"c2": [("a", 0, "count(*)", "1", 0)]}


def test_groups_have_values_of_their_own() -> None:
    one = EdgeBroker()
    one.subscribe("c", "a", f"SELECT road, max(x) FROM t {TUMBLING}, road")
    one.edge.add(pairs(events((1, 5), (2, 6), (3, 7), roads=["p", "q", "p"]), 0), 10)
    told, count = one.edge.finish_until(10)
    assert sorted(zip(told["c"].column("group").to_pylist(), told["c"].column("exact").to_pylist(), strict=True)) == [
        ([("road", "p")], "7"),
        ([("road", "q")], "6"),
    ]
    assert count == 2
