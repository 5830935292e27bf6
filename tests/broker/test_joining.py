"""Events of one topic that wait together from one side."""

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.joining import Joined, JoinedMessage
from catchment.broker.peers import HERE


def batch(*values: int, column: str = "x") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({column: pa.array(values, pa.int64())})


def published(*values: int, notes: pa.RecordBatch | None = None) -> m.Published:
    return m.Published("t", batch(*values), notes)


def joined(*messages: m.Published | m.PublishEvents, side: str = "left") -> Joined:
    return Joined(side, [JoinedMessage("left", message, 0) for message in messages])


def test_messages_of_one_side_with_the_same_columns_are_joined() -> None:
    one = joined(published(1))
    assert one.takes("left", published(2))
    assert not one.takes("right", published(2))
    assert not one.takes("left", m.Published("t", batch(2, column="y")))


def test_events_with_notes_are_not_joined_with_others() -> None:
    noted, other = batch(7, column="a/mark"), batch(7, column="b/mark")
    one = joined(published(1, notes=noted))
    assert one.takes("left", published(2, notes=noted))
    assert not one.takes("left", published(2))
    assert not one.takes("left", published(2, notes=other))
    assert not joined(published(1)).takes("left", published(2, notes=noted))


def test_requests_of_clients_are_joined() -> None:
    assert joined(m.PublishEvents(1, "t", batch(1)), side=HERE).takes(HERE, m.PublishEvents(5, "t", batch(2)))


def test_notes_stand_in_the_order_of_events() -> None:
    one = joined(published(1, notes=batch(7, column="a/mark")), published(2, notes=batch(8, column="a/mark")))
    notes = one.notes()
    assert notes is not None
    assert notes.to_pydict() == {"a/mark": [7, 8]}
    assert joined(published(1), published(2)).notes() is None
    assert joined(m.PublishEvents(1, "t", batch(1)), side=HERE).notes() is None
