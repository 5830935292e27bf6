"""Algorithms 2, 3 and 4 of the ASIA paper as they are printed: kept to be tried, used by nothing.

The numbers in docstrings are lines of the listings. There is one topic, as nothing in them passes from topic to topic.
Links are first-in first-out and lose nothing. Of unadvertisement the paper prints only how algorithm 3 passes it on;
the rest mirrors advertisement. Where a listing leaves a choice, each reading has a class of its own, or the one that
does least harm is taken and named.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from catchment.model.filter import NO_EVENT, Filter, least_upper_bound

Event = dict[str, float]
Counts = tuple[int, int]
"""A range: how many subscribers there are at least and at most."""

NOBODY, ONE = (0, 0), (1, 1)


class NeverAtRestError(Exception):
    """Brokers still send after as many steps as were allowed."""


class Tables:
    """1–5 of algorithms 2 and 3."""

    def __init__(self, links: Iterable[str], send: Callable[..., None]) -> None:
        self.links, self.send = set(links), send
        self.pubs: set[str] = set()
        self.subs: defaultdict[Filter, set[str]] = defaultdict(set)

    @property
    def poset(self) -> list[Filter]:
        """What INSERT and DELETE keep: the predicates with which some peer subscribes."""
        return [predicate for predicate, peers in self.subs.items() if peers]

    @property
    def bound(self) -> Filter:
        return least_upper_bound(self.poset)


class Algorithm2(Tables):
    """A broker with one least upper bound for all directions."""

    def on_ad(self, peer: str) -> None:
        """6–11."""
        if peer not in self.pubs:
            for link in sorted(self.links - {peer}):
                self.send(link, "AD")
            self.send(peer, "SUB", self.bound)
            self.pubs.add(peer)

    def on_unad(self, peer: str) -> None:
        if peer in self.pubs:
            for link in sorted(self.links - {peer}):
                self.send(link, "UNAD")
            self.pubs.remove(peer)

    def on_sub(self, peer: str, predicate: Filter) -> None:
        """12–17."""
        old = self.bound
        self.subs[predicate].add(peer)
        self.update(old, self.bound, peer)

    def on_pub(self, peer: str, event: Event) -> None:
        """18–22."""
        for predicate in self.poset:
            if predicate.matches(event):
                for subscriber in sorted(self.subs[predicate] - {peer}):
                    self.send(subscriber, "PUB", event)

    def on_unsub(self, peer: str, predicate: Filter) -> None:
        """23–28."""
        old = self.bound
        self.subs[predicate].discard(peer)
        self.update(old, self.bound, peer)

    def update(self, old: Filter, new: Filter, peer: str) -> None:
        """29–33."""
        if old != new:
            for publisher in sorted(self.updated(peer)):
                self.send(publisher, "SUB", new)
                self.send(publisher, "UNSUB", old)

    def updated(self, peer: str) -> set[str]:
        return self.pubs - {peer}


class Algorithm2TellingAll(Algorithm2):
    """The other reading of line 31: whoever advertises hears of a new bound, also the peer that caused it."""

    def updated(self, peer: str) -> set[str]:
        return self.pubs


class Algorithm3(Tables):
    """A broker of joinpoints: an advice is a subclass, and what the paper calls PROCD is its `super()`."""

    @property
    def subscribers(self) -> set[str]:
        return set[str]().union(*self.subs.values())

    def on_ad(self, peer: str) -> None:
        """6–10."""
        if peer not in self.pubs:
            self.ad_send(peer)
            self.sub_send(self.bound, peer)
            self.ad_add(peer)

    def on_unad(self, peer: str) -> None:
        if peer in self.pubs:
            self.unad_send(peer)
            self.ad_del(peer)

    def on_pub(self, peer: str, event: Event) -> None:
        """11–14."""
        for _ in self.pub_match(event):
            self.pub_send(event, peer)

    def on_sub(self, peer: str, predicate: Filter, attached: Counts | None = None) -> None:
        """15–17."""
        self.update(self.sub_add(predicate, peer, attached), self.bound, peer)

    def on_unsub(self, peer: str, predicate: Filter) -> None:
        """18–20."""
        self.update(self.sub_del(predicate, peer), self.bound, peer)

    def update(self, old: Filter, new: Filter, peer: str) -> None:
        """21–24."""
        if old != new:
            self.sub_send(new, peer)
            self.unsub_send(old, peer)

    def ad_add(self, peer: str) -> None:
        """25–26."""
        self.pubs.add(peer)

    def ad_del(self, peer: str) -> None:
        self.pubs.remove(peer)

    def sub_add(self, predicate: Filter, peer: str, attached: Counts | None = None) -> Filter:
        """27–32: the old bound."""
        old = self.bound
        self.subs[predicate].add(peer)
        return old

    def sub_del(self, predicate: Filter, peer: str) -> Filter:
        """33–38: the old bound."""
        old = self.bound
        self.subs[predicate].discard(peer)
        return old

    def pub_match(self, event: Event) -> list[Filter]:
        """39–40."""
        return [predicate for predicate in self.poset if predicate.matches(event)]

    def pub_send(self, event: Event, peer: str) -> None:
        """41–43."""
        for subscriber in sorted(self.subscribers - {peer}):
            self.send(subscriber, "PUB", event)

    def sub_send(self, predicate: Filter, peer: str, *attached: Counts) -> None:
        """44–46."""
        for publisher in sorted(self.pubs - {peer}):
            self.send(publisher, "SUB", predicate, *attached)

    def unsub_send(self, predicate: Filter, peer: str) -> None:
        """44–46."""
        for publisher in sorted(self.pubs - {peer}):
            self.send(publisher, "UNSUB", predicate)

    def ad_send(self, peer: str) -> None:
        """47–49."""
        for link in sorted(self.links - {peer}):
            self.send(link, "AD")

    def unad_send(self, peer: str) -> None:
        """47–49."""
        for link in sorted(self.links - {peer}):
            self.send(link, "UNAD")


class Algorithm4(Algorithm3):
    """The advice that counts subscribers; a client's own subscription counts for one.

    Line 24 sums over a predicate that is bound nowhere: here over all. Where lines 8, 19 and 25 say that there is some
    peer to be told, all such neighbours are.
    """

    def __init__(self, links: Iterable[str], send: Callable[..., None]) -> None:
        super().__init__(links, send)
        self.counts: defaultdict[str, Counts] = defaultdict(lambda: NOBODY)

    @property
    def known(self) -> Counts:
        """How many subscribers this broker believes there are."""
        return self.total(self.counts)

    def total(self, peers: Iterable[str]) -> Counts:
        lowest, highest = zip(NOBODY, *(self.counts[peer] for peer in peers), strict=True)
        return sum(lowest), sum(highest)

    def sub_add(self, predicate: Filter, peer: str, attached: Counts | None = None) -> Filter:
        """3–10."""
        self.counts[peer] = attached or ONE
        old = super().sub_add(predicate, peer)
        if old == self.bound:
            self.update_aggregate(self.total(self.subs[predicate]), peer)
        return old

    def sub_send(self, predicate: Filter, peer: str, *attached: Counts) -> None:
        """11–13."""
        super().sub_send(predicate, peer, self.total(self.subs[predicate]))

    def sub_del(self, predicate: Filter, peer: str) -> Filter:
        """14–21."""
        self.counts[peer] = NOBODY
        old = super().sub_del(predicate, peer)
        if old == self.bound:
            self.update_aggregate(self.total(self.subs[predicate]), peer)
        return old

    def on_uav(self, peer: str, counts: Counts) -> None:
        """22–26."""
        self.counts[peer] = counts
        self.update_aggregate(self.total(self.subscribers), peer)

    def update_aggregate(self, counts: Counts, peer: str) -> None:
        """8–9, 19–20 and 25–26."""
        for link in sorted(self.links - {peer}):
            lowest, highest = self.counts[link]
            if not lowest <= counts[0] <= counts[1] <= highest:
                self.send(link, "UAV", counts)


class Algorithm4WithoutNothing(Algorithm4):
    """The kinder reading: the bound of no predicates is never sent, nor taken back."""

    def sub_send(self, predicate: Filter, peer: str, *attached: Counts) -> None:
        if predicate != NO_EVENT:
            super().sub_send(predicate, peer, *attached)

    def unsub_send(self, predicate: Filter, peer: str) -> None:
        if predicate != NO_EVENT:
            super().unsub_send(predicate, peer)


class Printed:
    """Brokers of one algorithm on a tree, and their clients, each at the broker named before the slash: `b1/c2`."""

    def __init__(self, make_broker: Callable[..., Any], links: Iterable[tuple[str, str]]) -> None:
        neighbours: defaultdict[str, set[str]] = defaultdict(set)
        for one, other in links:
            neighbours[one].add(other)
            neighbours[other].add(one)
        self.brokers = {name: make_broker(of, self._sender(name)) for name, of in sorted(neighbours.items())}
        self.trace: list[str] = []
        self._under_way: deque[tuple[str, str, str, tuple[Any, ...]]] = deque()
        self._predicates: dict[tuple[str, str], Filter] = {}
        self._received: defaultdict[str, list[float]] = defaultdict(list)

    def _sender(self, source: str) -> Callable[..., None]:
        def send(target: str, kind: str, *fields: Any) -> None:
            self._under_way.append((source, target, kind, fields))

        return send

    def _ask(self, client: str, kind: str, *fields: Any) -> None:
        self._sender(client)(client.split("/", maxsplit=1)[0], kind, *fields)

    def run(self, steps_max: int = 1000) -> None:
        """Deliver, in the order of sending, until nothing is under way."""
        for _ in range(steps_max):
            if not self._under_way:
                return
            source, target, kind, fields = self._under_way.popleft()
            self.trace.append(" ".join(map(str, (source, "->", target, kind, *fields))))
            if target in self.brokers:
                getattr(self.brokers[target], f"on_{kind.lower()}")(source, *fields)
            elif kind == "PUB":
                self._received[target].append(fields[0]["speed"])
        raise NeverAtRestError(f"{len(self._under_way)} messages are under way after {steps_max} steps")

    def advertise(self, client: str) -> None:
        self._ask(client, "AD")

    def unadvertise(self, client: str) -> None:
        self._ask(client, "UNAD")

    def subscribe(self, client: str, name: str, condition: str) -> None:
        self._predicates[client, name] = Filter.parse(condition)
        self._ask(client, "SUB", self._predicates[client, name])

    def unsubscribe(self, client: str, name: str) -> None:
        self._ask(client, "UNSUB", self._predicates.pop((client, name)))

    def publish(self, client: str, *speeds: float) -> None:
        for speed in speeds:
            self._ask(client, "PUB", {"speed": speed})

    def received(self, client: str) -> list[float]:
        """The speed of each event that reached a client, as often as it did."""
        return self._received[client]
