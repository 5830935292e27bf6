"""A broker that is made anew from a snapshot, of any moment, sends the same frames as one that lived on."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice, At, Reply
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import AdviceAttached, AdviceRemoved, Attached, Input, Item, Replied, Room, Woken
from catchment.broker.memory import freeze, restored
from catchment.broker.snapshot_pieces import FORMAT, PieceHead, SnapshotPiece
from catchment.broker.store import StoreReply
from catchment.model.errors import CheckpointError
from tests.broker.test_subscriber_count import COUNT
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])


class Forgetful(Wire):
    """Every broker is made anew from a snapshot before each frame."""

    def run(self, choose: Any = None) -> None:
        def forget_and_choose(count: int) -> int:
            for desk in self.desks.values():
                desk.broker = restored(freeze(desk.broker).pieces(), self.settings, [COUNT()])
            return choose(count) if choose is not None else 0

        super().run(forget_and_choose)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["advertise", "unadvertise", "subscribe", "subscribe", "unsubscribe", "publish", "run"]),
        st.sampled_from(["b1", "b2", "b3"]),
        st.integers(0, 4),
    ),
    max_size=14,
)


@given(STEPS, st.sampled_from(["bound", "covering", "each"]), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_it_goes_on_as_if_nothing_had_happened(steps: list, summary: str, random: Any) -> None:  # type: ignore[type-arg]
    seed = random.random()
    traces = []
    for kind in (Wire, Forgetful):
        wire = kind(LINE, [COUNT], summary=summary)
        random.seed(seed)
        for step, broker, number in steps:
            client = f"{broker}/c"
            if step == "run":
                wire.run(random.randrange)
            elif step == "subscribe":
                wire.subscribe(client, f"s{number}", f"speed >= {number} AND speed < {2 * number + 1}")
            elif step == "unsubscribe":
                wire.unsubscribe(client, f"s{number}")
            elif step == "publish":
                wire.publish(client, float(number), ids=[f"{number}"])
            else:
                getattr(wire, step)(client)
        wire.run(random.randrange)
        traces.append((wire.trace, [broker.counters for broker in wire.brokers.values()]))
    assert traces[0] == traces[1]


# -- pieces that are damaged, missing, or of something else ---------------------------------------------------------


def many_pieces(name: str = "b1", *, later: int = 0) -> list[bytes]:
    """A snapshot of a broker with so much to remember that it takes several pieces."""
    desk, voice = Desk(Broker(name, [], Settings(schemas=SCHEMAS))), Voice("c")
    desk.hand(Attached("c"))
    for number in range(100):
        desk.hand(voice.says(m.SubscribeTo(number + 1, f"s{number}", f"SELECT * FROM traffic WHERE speed > {number}")))
    desk.hand(*[Woken()] * later)
    return list(freeze(desk.broker).pieces())


def test_pieces_say_which_they_are_and_bring_the_broker_back() -> None:
    pieces = many_pieces()
    heads = [SnapshotPiece.read(data).head for data in pieces]
    assert len(heads) > 4
    assert {(head.broker, head.position) for head in heads} == {("b1", 101)}
    assert [head.number for head in heads] == list(range(1, len(heads) + 1))
    assert [head.is_last for head in heads] == [False] * (len(heads) - 1) + [True]
    back = restored(pieces, Settings(schemas=SCHEMAS))
    assert (back.name, back.position, len(back.subscribed), back.is_full) == ("b1", 101, 100, False)
    assert list(freeze(back).pieces()) == pieces


def test_that_there_is_no_room_is_remembered() -> None:
    desk = Desk(Broker("b1", [], Settings(schemas=SCHEMAS)))
    desk.hand(Room("b1", is_full=True))
    back = restored(freeze(desk.broker).pieces(), Settings(schemas=SCHEMAS))
    assert (back.is_full, back.has_room) == (True, False)
    back.step([Input(Room("b1", is_full=False), 0, 2)])
    assert back.has_room


def test_a_piece_that_is_damaged_is_refused() -> None:
    pieces = many_pieces()
    for place in (40, 60, len(pieces[1]) - 1):
        damaged = bytearray(pieces[1])
        damaged[place] ^= 1
        with pytest.raises(CheckpointError, match=r"a piece of a snapshot, .* bytes, does not fit its checksum"):
            restored([pieces[0], bytes(damaged), *pieces[2:]], Settings(schemas=SCHEMAS))
    with pytest.raises(CheckpointError, match="does not fit its checksum"):
        restored([pieces[0], pieces[1][:-1], *pieces[2:]], Settings(schemas=SCHEMAS))
    with pytest.raises(CheckpointError, match="3 bytes are no piece of a snapshot"):
        restored([pieces[0], b"CSN", *pieces[2:]], Settings(schemas=SCHEMAS))


def test_another_format_is_refused_by_its_number() -> None:
    first, *others = many_pieces()
    other = first[:5] + bytes([9]) + first[6:]
    with pytest.raises(CheckpointError, match=f"a piece of a snapshot has the format 9; accepted is {FORMAT}"):
        restored([other, *others], Settings(schemas=SCHEMAS))


@pytest.mark.parametrize(
    ("chosen", "refused"),
    [
        (lambda one, other, foreign: [], "no pieces of a snapshot are given"),
        (lambda one, other, foreign: one[1:], "piece 2 of the snapshot of 'b1' at 101 is given; accepted is piece 1"),
        (lambda one, other, foreign: [*one[:2], *one[3:]], "piece 4 .* is given; accepted is piece 3"),
        (lambda one, other, foreign: [*one[:2], *one[1:]], "piece 2 .* is given; accepted is piece 3"),
        (lambda one, other, foreign: [one[0], one[2], one[1], *one[3:]], "piece 3 .* is given; accepted is piece 2"),
        (lambda one, other, foreign: one[:-1], "is the last that is given, and more belong to it"),
        (lambda one, other, foreign: [*one[:3], *other[3:]], "piece 2 .* at 101 is given before those of another"),
        (lambda one, other, foreign: [*one, *other[1:]], "at 101 is given before those of another"),
        (lambda one, other, foreign: [*one[:1], *foreign[1:]], "'b1' at 101 is given; accepted are pieces of 'b2'"),
    ],
)
def test_pieces_of_which_one_is_missing_or_of_another_snapshot_are_refused(chosen: Any, refused: str) -> None:
    given = chosen(many_pieces(), many_pieces(later=1), many_pieces("b2"))
    with pytest.raises(CheckpointError, match=refused):
        restored(given, Settings(schemas=SCHEMAS))


def test_pieces_of_two_attempts_at_the_same_position_are_told_apart() -> None:
    def after(*steps: list[Item]) -> list[bytes]:
        desk = Desk(Broker("b1", [], Settings(schemas=SCHEMAS)))
        for step in steps:
            desk.hand(*step)
        return list(freeze(desk.broker).pieces())

    one, other = after([Attached("c")]), after([Attached("d")])
    # Their first pieces have no ids and are the same; the second of a third has other ids before it.
    head, body = SnapshotPiece.read(other[1]).head, SnapshotPiece.read(other[1]).body
    third = PieceHead(head.broker, head.position, head.number, head.is_last, b"another", None)
    with pytest.raises(CheckpointError, match="of which piece 1 is another than the one before"):
        restored([one[0], SnapshotPiece.of(third, body).data], Settings(schemas=SCHEMAS))


def test_only_ids_since_an_earlier_snapshot_need_be_written() -> None:
    settings_, voice = Settings(schemas=SCHEMAS), Voice("c")
    desk = Desk(Broker("b1", [], settings_))
    desk.hand(Attached("c"), voice.says(m.AdvertiseTopic(1, "traffic")))

    def publish(ids: list[str]) -> None:
        events = pa.RecordBatch.from_pydict({"event_id": ids, "speed": [1.0] * len(ids)})
        desk.hand(voice.says(m.PublishEvents(2, "traffic", events)), at_us=1)

    publish([f"a{number}" for number in range(8_000)])
    first = [SnapshotPiece.read(data) for data in freeze(desk.broker).pieces()]
    with_ids = [piece for piece in first if piece.head.ids is not None]
    assert [len(piece.data) <= 101_000 for piece in first] == [True] * len(first)
    assert len(with_ids) == 2
    publish(["b0"])
    assert with_ids[-1].head.ids is not None
    later = list(freeze(desk.broker).pieces(ids_after=with_ids[-1].head.ids.end))
    assert sum(map(len, later)) < 10_000
    back = restored([*(piece.data for piece in with_ids), *later], settings_)
    assert len(back.ingress.recent) == 8_001
    with pytest.raises(CheckpointError, match="ids are given from 8000 on; accepted are all from 0 on"):
        restored(later, settings_)


class Late(Advice):
    """Remembers in all the ways there are, and waits for everything that can be waited for."""

    name = "late"

    def __init__(self) -> None:
        self._begun_us: int | None = None

    def on_begin(self, at: At) -> None:
        self._begun_us = at.state["begun"] = at.now_us
        at.advertise("traffic")
        at.subscribe("all", "SELECT * FROM traffic")
        at.wake("later", 500)
        at.state["read"] = at.read("key")

    def on_received(self, at: At, message: m.ForClient) -> None:
        at.state.setdefault("received", []).append(str(message))

    def on_timer(self, at: At, key: str) -> None:
        at.tell("b2", [key, self._begun_us])

    def on_reply(self, at: At, reply: Reply) -> None:
        at.tell("b2", [reply.request == at.state["read"], reply.key])

    def saved(self) -> Any:
        return self._begun_us

    def restore(self, at: At, saved: Any) -> None:
        self._begun_us = saved


def test_advice_that_came_and_went_while_the_broker_ran_is_remembered() -> None:
    agreed = Settings(schemas=SCHEMAS)
    neighbour = Voice("b2")
    desk = Desk(Broker("b1", ["b2"], agreed, [COUNT()], catalogue={"late": Late}))
    desk.hand(AdviceAttached("late"), AdviceRemoved("subscriber count"), at_us=3)
    memory = list(freeze(desk.broker).pieces())
    desk.broker = restored(memory, agreed, [COUNT()], catalogue={"late": Late})
    assert list(freeze(desk.broker).pieces()) == memory
    assert desk.broker.weaver.names == ("late",)
    step = desk.hand(neighbour.says(m.Confirmed(1)), Replied(StoreReply(1, None, 0)), Woken(), at_us=600)
    assert [str(one) for one in neighbour.hears(step)] == ["TELL late ['later', 3]", "TELL late [True, 'key']"]
    assert desk.broker.weaver.states["late"]["received"] == ["acknowledged #1", "acknowledged #2"]
    desk.hand(AdviceRemoved("late"), at_us=700)
    assert restored(freeze(desk.broker).pieces(), agreed, [COUNT()], catalogue={"late": Late}).weaver.names == ()


def test_advice_that_nobody_gives_is_refused_by_name() -> None:
    agreed = Settings(schemas=SCHEMAS)
    desk = Desk(Broker("b1", [], agreed, [COUNT()], catalogue={"late": Late}))
    desk.hand(AdviceAttached("late"))
    with pytest.raises(CheckpointError, match="a snapshot has the advice 'late'; given are subscriber count"):
        restored(freeze(desk.broker).pieces(), agreed, [COUNT()])
    assert desk.outcome(AdviceAttached("other")).reason == (
        "advice 'other' is not in the catalogue of 'b1'; there are late"
    )


def test_a_catalogue_that_makes_something_else_is_refused() -> None:
    def broken() -> Advice:
        raise KeyError("no")

    desk = Desk(Broker("b1", [], Settings(schemas=SCHEMAS), catalogue={"count": COUNT, "broken": broken}))
    assert "accepted is an advice of that name" in desk.outcome(AdviceAttached("count")).reason
    assert desk.outcome(AdviceAttached("broken")).reason == "advice 'broken' cannot be made: KeyError: 'no'"
