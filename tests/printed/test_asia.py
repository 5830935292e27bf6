"""The ASIA paper's listings fail on these stories, as they are printed; our brokers do not.

A story is a list of lines. All comes to rest after each; what a semicolon parts is asked at once.
"""

from collections.abc import Iterable
from random import Random
from typing import Protocol

import pytest

from catchment import Overlay
from catchment.broker import messages as m
from tests.broker.test_subscriber_count import COUNT
from tests.broker.wire import Wire
from tests.printed.asia import (
    Algorithm2,
    Algorithm2TellingAll,
    Algorithm3,
    Algorithm4,
    Algorithm4WithoutNothing,
    NeverAtRestError,
    Printed,
)

TREES = [
    [("b1", "b2")],
    [("b1", "b2"), ("b2", "b3")],
    [("b1", "b2"), ("b1", "b3"), ("b1", "b4")],
    [("b1", "b2"), ("b1", "b3"), ("b3", "b4"), ("b3", "b5")],
]
PAIR, PATH = TREES[:2]

FIGURE_2A_LINKS = [("b1", "b4"), ("b2", "b4"), ("b2", "b5"), ("b3", "b4")]
FIGURE_2A = """
    advertise b1/c1
    subscribe b3/c3 all TRUE
    subscribe b5/c4 all TRUE
    publish b1/c1 10
"""


class System(Protocol):
    """What stories need of the printed brokers, and of ours."""

    trace: list[str]

    def advertise(self, client: str) -> object: ...
    def unadvertise(self, client: str) -> object: ...
    def subscribe(self, client: str, name: str, condition: str) -> object: ...
    def unsubscribe(self, client: str, name: str) -> object: ...
    def publish(self, client: str, *speeds: float) -> object: ...
    def run(self) -> None: ...
    def received(self, client: str) -> list[float]: ...


class Ours(Wire):
    """Real brokers that count subscribers."""

    def __init__(self, links: Iterable[tuple[str, str]]) -> None:
        super().__init__(Overlay.from_links(links), [COUNT], summary="bound")

    def received(self, client: str) -> list[float]:
        delivered = [message for message in self.heard[client] if isinstance(message, m.Delivered)]
        return [speed for message in delivered for speed in message.events.column("speed").to_pylist()]

    def known(self, broker: str) -> tuple[int, int]:
        counts = self.brokers[broker].weaver.states["subscriber count"].get("traffic", {"from": {}})["from"]
        return sum(counts.values()), sum(counts.values())


def play(system: System, story: str) -> None:
    for line in story.strip().splitlines():
        for step in line.split(";"):
            what, client, *rest = step.split(maxsplit=3)
            if what == "advertise":
                system.advertise(client)
            elif what == "unadvertise":
                system.unadvertise(client)
            elif what == "subscribe":
                system.subscribe(client, *rest)
            elif what == "unsubscribe":
                system.unsubscribe(client, *rest)
            else:
                assert what == "publish", step
                system.publish(client, *map(float, rest))
        system.run()


def played(algorithm: type[Algorithm2 | Algorithm3], story: str, links: Iterable[tuple[str, str]] = PAIR) -> Printed:
    printed = Printed(algorithm, links)
    play(printed, story)
    return printed


def played_by_us(story: str, links: Iterable[tuple[str, str]] = PAIR) -> Ours:
    ours = Ours(links)
    play(ours, story)
    for broker in ours.brokers.values():
        assert not broker.failures
    return ours


def sent(system: System, beginning: str) -> int:
    return sum(line.startswith(beginning) for line in system.trace)


# -- routing: algorithms 2 and 3 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [Algorithm2, Algorithm2TellingAll, Algorithm3])
def test_the_papers_own_figure(algorithm: type[Algorithm2 | Algorithm3]) -> None:
    """One publisher, who advertises first, and one predicate: there all listings are right."""
    for system in (played(algorithm, FIGURE_2A, FIGURE_2A_LINKS), played_by_us(FIGURE_2A, FIGURE_2A_LINKS)):
        assert system.received("b3/c3") == system.received("b5/c4") == [10]


def test_events_are_lost_when_both_sides_advertise() -> None:
    """Algorithm 2: b2's bound is already what b1 wants, so b2 says nothing when its own client wants the same."""
    story = """
        advertise b1/p
        advertise b2/p
        subscribe b1/s slow speed < 50
        subscribe b2/s slow speed < 50
        publish b1/p 10
        publish b2/p 20
    """
    printed, ours = played(Algorithm2, story), played_by_us(story)
    assert (printed.received("b1/s"), printed.received("b2/s")) == ([10, 20], [20])
    assert (ours.received("b1/s"), ours.received("b2/s")) == ([10, 20], [10, 20])


def test_two_brokers_update_each_other_for_ever() -> None:
    """Algorithm 2, updates to all: SUB and UNSUB chase each other, as each side takes the other's echo for a wish."""
    story = """
        advertise b1/p
        advertise b2/p
        subscribe b1/s slow speed < 50; unsubscribe b1/s slow
    """
    played(Algorithm2, story)
    with pytest.raises(NeverAtRestError):
        played(Algorithm2TellingAll, story)
    assert sent(played_by_us(story), "b1 -> b2 SUB") == 1


def test_an_event_comes_once_for_each_predicate_that_it_matches() -> None:
    story = """
        advertise b1/p
        subscribe b2/s slow speed < 50
        subscribe b2/s slower speed < 30
        publish b1/p 10
    """
    assert played(Algorithm2, story).received("b2/s") == [10, 10]
    ours = played_by_us(story)
    assert ours.received("b2/s") == [10]
    assert len(ours.delivered("b2/s", "slow")) == len(ours.delivered("b2/s", "slower")) == 1


def test_an_event_crosses_a_link_once_for_each_predicate_that_it_matches() -> None:
    """Algorithm 2: b1's wish moves b2's bound, of which b1 is not told; what b2 takes back next, b1 never had."""
    story = """
        advertise b1/p
        advertise b2/p
        subscribe b2/s slower speed < 30
        subscribe b1/s slow speed < 50
        subscribe b2/t medium speed < 70
        publish b1/p 10
    """
    printed, ours = played(Algorithm2, story), played_by_us(story)
    assert sent(printed, "b1 -> b2 PUB") == 2
    assert printed.received("b2/s") == printed.received("b2/t") == [10, 10]
    assert sent(ours, "b1 -> b2 PUB") == 1
    assert ours.received("b2/s") == ours.received("b2/t") == [10]


@pytest.mark.parametrize("algorithm", [Algorithm2, Algorithm2TellingAll])
def test_routes_survive_the_last_subscription(algorithm: type[Algorithm2]) -> None:
    """b1 advertises and hears its own bound from b2, which from then on holds it in place."""
    story = """
        advertise b2/p
        subscribe b1/s slow speed < 50
        advertise b1/p
        unsubscribe b1/s slow
        publish b2/p 10
        publish b1/p 20
    """
    printed, ours = played(algorithm, story), played_by_us(story)
    assert (sent(printed, "b2 -> b1 PUB"), sent(printed, "b1 -> b2 PUB")) == (1, 1)
    assert (sent(ours, "b2 -> b1 PUB"), sent(ours, "b1 -> b2 PUB")) == (0, 0)
    assert not any(wanted for broker in ours.brokers.values() for wanted in broker.routes("traffic").demands.values())


def test_who_advertises_later_hears_of_no_subscription() -> None:
    """Algorithm 3: SUB-SEND leaves out the new advertiser; so it is not algorithm 2, though the paper says it is."""
    story = """
        subscribe b2/s slow speed < 50
        advertise b1/p
        publish b1/p 10
    """
    assert played(Algorithm2, story).received("b2/s") == [10]
    assert played(Algorithm3, story).received("b2/s") == []
    assert played_by_us(story).received("b2/s") == [10]


def test_an_event_goes_to_every_subscriber_once_for_each_match_of_any() -> None:
    """Algorithm 3: PUB-SEND is not told what matched."""
    story = """
        advertise b1/p
        subscribe b2/slow any speed < 50
        subscribe b2/slower any speed < 30
        subscribe b2/fast any speed > 80
        publish b1/p 10
    """
    printed, ours = played(Algorithm3, story), played_by_us(story)
    for client, wanted in [("b2/slow", [10]), ("b2/slower", [10]), ("b2/fast", [])]:
        assert printed.received(client) == [10, 10]
        assert ours.received(client) == wanted


@pytest.mark.parametrize("algorithm", [Algorithm2, Algorithm3])
def test_the_first_publisher_that_goes_takes_the_others_along(algorithm: type[Algorithm2 | Algorithm3]) -> None:
    """UNAD-SEND passes every unadvertisement on, though there is another publisher on this side."""
    story = """
        advertise b1/p
        advertise b1/q
        unadvertise b1/q
        subscribe b2/s slow speed < 50
        publish b1/p 10
    """
    assert played(algorithm, story).received("b2/s") == []
    assert played_by_us(story).received("b2/s") == [10]


# -- counts: algorithm 4 ----------------------------------------------------------------------------------------------


def counts(algorithm: type[Algorithm4], story: str, links: Iterable[tuple[str, str]] = PAIR) -> list[tuple[int, int]]:
    """What each broker believes, in the order of names."""
    return [broker.known for broker in played(algorithm, story, links).brokers.values()]


def test_the_count_in_the_papers_own_figure() -> None:
    """Right only if the bound of nothing is no predicate, which is not what the listing says."""
    assert counts(Algorithm4, FIGURE_2A, FIGURE_2A_LINKS)[0] == (1, 1)
    assert counts(Algorithm4WithoutNothing, FIGURE_2A, FIGURE_2A_LINKS)[0] == (2, 2)
    assert played_by_us(FIGURE_2A, FIGURE_2A_LINKS).known("b1") == (2, 2)


def test_taking_back_the_bound_of_nothing_takes_back_the_first_count() -> None:
    story = """
        advertise b1/p
        subscribe b2/s slow speed < 50
    """
    assert counts(Algorithm4, story)[0] == (0, 0)
    assert played_by_us(story).known("b1") == (1, 1)


def test_taking_back_the_old_bound_takes_back_the_new_count() -> None:
    story = """
        advertise b1/p
        subscribe b2/s slower speed < 30
        subscribe b2/t slow speed < 50
    """
    assert counts(Algorithm4WithoutNothing, story)[0] == (0, 0)
    assert played_by_us(story).known("b1") == (2, 2)


def test_only_subscribers_with_the_same_predicate_are_added_up() -> None:
    story = """
        advertise b1/p
        subscribe b2/s slow speed < 50
        subscribe b2/t slower speed < 30
    """
    assert counts(Algorithm4WithoutNothing, story)[0] == (1, 1)
    assert played_by_us(story).known("b1") == (2, 2)


def test_a_neighbour_is_told_its_own_count() -> None:
    story = """
        advertise b1/p
        advertise b2/p
        subscribe b1/s slow speed < 50
        subscribe b2/s slow speed < 50
    """
    assert counts(Algorithm4WithoutNothing, story) == [(3, 3), (2, 2)]
    ours = played_by_us(story)
    assert (ours.known("b1"), ours.known("b2")) == ((2, 2), (2, 2))


def test_counts_go_to_neighbours_without_publishers() -> None:
    story = """
        advertise b2/p
        subscribe b1/s slow speed < 50
        subscribe b3/s slow speed < 50
    """
    assert sent(played(Algorithm4WithoutNothing, story, PATH), "b2 -> b1 UAV") == 1
    ours = played_by_us(story, PATH)
    assert ours.known("b2") == (2, 2)
    assert sent(ours, "b2 -> b1 TELL") == 0


def random_story(random: Random, brokers: list[str]) -> tuple[str, str, int]:
    """A story, the broker of its only publisher, who advertises first, and how many subscribers there are at the end.

    That is the paper's own setting: one root, and one subscription per client.
    """
    root = random.choice(brokers)
    lines, subscribers = [f"advertise {root}/p"], list[str]()
    for number in range(random.randint(1, 8)):
        if subscribers and random.random() < 0.25:
            lines.append(f"unsubscribe {subscribers.pop(random.randrange(len(subscribers)))} slow")
        else:
            subscribers.append(f"{random.choice(brokers)}/c{number}")
            lines.append(f"subscribe {subscribers[-1]} slow speed < {random.randint(1, 4)}")
    return "\n".join(lines), root, len(subscribers)


def test_a_large_share_of_counts_is_wrong() -> None:
    wrong = dict.fromkeys([Algorithm4, Algorithm4WithoutNothing], 0)
    for seed in range(200):
        random = Random(seed)
        links = random.choice(TREES)
        story, root, count = random_story(random, sorted({broker for link in links for broker in link}))
        for algorithm in wrong:
            wrong[algorithm] += played(algorithm, story, links).brokers[root].known != (count, count)
        assert played_by_us(story, links).known(root) == (count, count), f"seed {seed}:\n{story}"
    # As docs/joinpoints.md says.
    assert wrong == {Algorithm4: 160, Algorithm4WithoutNothing: 100}
