"""How much one client may ask for: each refusal names its limit, and when to try again if that helps."""

from typing import Any

import pyarrow as pa
import pytest

from catchment.broker import messages as m
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import Attached
from catchment.broker.limits import ClientLimits
from catchment.broker.memory import freeze, restored
from catchment.model.errors import ConfigurationError
from tests.broker.wire import SCHEMAS, Desk, Voice

ALL = "SELECT * FROM traffic"
S = 1_000_000


def limited(**limits: Any) -> tuple[Desk, Voice]:
    """A broker with a client that advertises, at the time 0."""
    settings = Settings(schemas=SCHEMAS, limits=ClientLimits(**limits))
    desk, client = Desk(Broker("b1", [], settings)), Voice("c")
    client.hears(desk.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")), at_us=0))
    return desk, client


def events(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"speed": [1.0] * count})


def answer(desk: Desk, client: Voice, message: m.Message, at_us: int = 0) -> Any:
    (said,) = (one for one in client.hears(desk.hand(client.says(message), at_us=at_us)) if hasattr(one, "request"))
    return said


def test_events_beyond_the_rate_are_refused_until_time_has_passed() -> None:
    desk, client = limited(events_per_second=10)

    def publish(count: int, at_us: int) -> Any:
        return answer(desk, client, m.PublishEvents(2, "traffic", events(count)), at_us)

    assert str(publish(10, 0)) == "acknowledged #2"
    refused = publish(1, 0)
    assert refused.reason == (
        "'c' publishes more than 10 events a second (limits.events_per_second); accepted again in 100 ms"
    )
    assert refused.retry_us == 100_000
    assert isinstance(publish(1, 99_999), m.Refused)
    assert isinstance(publish(1, 100_000), m.Acknowledged)
    # Whoever was silent has a second's worth, and no more.
    assert isinstance(publish(10, 60 * S), m.Acknowledged)
    assert publish(5, 60 * S).retry_us == 500_000


def test_a_batch_beyond_a_seconds_worth_is_taken_and_paid_off() -> None:
    desk, client = limited(events_per_second=10)
    assert isinstance(answer(desk, client, m.PublishEvents(2, "traffic", events(30))), m.Acknowledged)
    refused = answer(desk, client, m.PublishEvents(3, "traffic", events(1)), 2 * S)
    assert refused.retry_us == 100_000
    assert isinstance(answer(desk, client, m.PublishEvents(3, "traffic", events(1)), 2 * S + 100_000), m.Acknowledged)


def test_the_rate_is_held_over_a_restart_and_by_stamps_that_run_backwards() -> None:
    desk, client = limited(events_per_second=10)
    answer(desk, client, m.PublishEvents(2, "traffic", events(10)), 5 * S)
    pieces = [piece.data for piece in freeze(desk.broker).cut()]
    again = Desk(restored(pieces, desk.broker.settings))
    again.position = desk.position
    said = client.says(m.PublishEvents(3, "traffic", events(1)))
    for place in (desk, again):
        (refused,) = client.hears(place.hand(said, at_us=1 * S))
        assert isinstance(refused, m.Refused)
        assert refused.retry_us == 100_000


def test_one_client_does_not_pay_for_another() -> None:
    desk, client = limited(events_per_second=10)
    other = Voice("d")
    other.hears(desk.hand(Attached("d"), other.says(m.AdvertiseTopic(1, "traffic")), at_us=0))
    both = (
        client.says(m.PublishEvents(2, "traffic", events(11))),
        other.says(m.PublishEvents(2, "traffic", events(9))),
    )
    step = desk.hand(*both, client.says(m.PublishEvents(3, "traffic", events(1))), at_us=0)
    assert [type(one) for one in client.hears(step)] == [m.Acknowledged, m.Refused]
    assert [type(one) for one in other.hears(step)] == [m.Acknowledged]


def test_too_many_subscriptions_and_topics_are_refused() -> None:
    desk, client = limited(subscriptions=2, topics=1)
    for number in (2, 3):
        assert isinstance(answer(desk, client, m.SubscribeTo(number, f"s{number}", ALL)), m.Acknowledged)
    refused = answer(desk, client, m.SubscribeTo(4, "s4", ALL))
    assert refused.reason == "'c' has 2 subscriptions; accepted are at most 2 (limits.subscriptions)"
    assert refused.retry_us == -1
    answer(desk, client, m.UnsubscribeFrom(5, "s2"))
    assert isinstance(answer(desk, client, m.SubscribeTo(6, "s4", ALL)), m.Acknowledged)
    reason = answer(desk, client, m.AdvertiseTopic(7, "stock")).reason
    assert reason == "'c' advertises 1 topics; accepted are at most 1 (limits.topics)"
    # What is advertised already may be said again.
    assert isinstance(answer(desk, client, m.AdvertiseTopic(8, "traffic")), m.Acknowledged)


def test_a_request_that_is_too_large_is_refused_and_the_next_is_not() -> None:
    desk, client = limited(request_bytes=1_000)
    large = pa.RecordBatch.from_pydict({"highway": ["x" * 2_000]})
    reason = answer(desk, client, m.PublishEvents(2, "traffic", large)).reason
    assert reason.startswith("a request of 'c' has 2")
    assert reason.endswith("bytes; accepted are at most 1000 (limits.request_bytes)")
    assert isinstance(answer(desk, client, m.PublishEvents(3, "traffic", events(1))), m.Acknowledged)


@pytest.mark.parametrize("name", ["request_bytes", "events_per_second", "subscriptions", "topics"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is 0; accepted are numbers from 1 on"):
        ClientLimits(**{name: 0})
