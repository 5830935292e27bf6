"""What a broker sends a neighbour of the demands on all its other sides.

Rule 1: a summary matches every event that one of its filters matches; so nothing is lost, whichever is chosen.
Rule 2: a demand that no event satisfies is neither kept nor sent.
Rule 3: a question is sent once, with the parts that any side asks of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from catchment.broker.demands import AskedQuestion, Demand, in_order
from catchment.matching.poset import Poset, Shift
from catchment.model.filter import NO_EVENT, Filter, least_upper_bound
from catchment.stages import Part

__all__ = ["SUMMARIES", "Bound", "Covering", "DemandSummary", "Each", "Summary"]


class Summary(Protocol):
    """Filters in, and which filters stand for them."""

    def add(self, condition: Filter) -> Shift[Filter]: ...

    def remove(self, condition: Filter) -> Shift[Filter]: ...

    def saved(self) -> tuple[Filter, ...]:
        """Give what its filters alone do not say."""

    def restore(self, saved: Iterable[Filter], filters: Iterable[Filter]) -> None:
        """Become what a summary of these filters was that gave this; called on an empty one."""

    @property
    def sent(self) -> tuple[Filter, ...]: ...


class Each:
    """Every filter, once: what flooding sends."""

    def __init__(self) -> None:
        self._count: dict[Filter, int] = {}

    def add(self, condition: Filter) -> Shift[Filter]:
        if condition == NO_EVENT:
            return Shift()
        self._count[condition] = self._count.get(condition, 0) + 1
        return Shift((condition,)) if self._count[condition] == 1 else Shift()

    def remove(self, condition: Filter) -> Shift[Filter]:
        if condition == NO_EVENT:
            return Shift()
        self._count[condition] -= 1
        if self._count[condition]:
            return Shift()
        del self._count[condition]
        return Shift((), (condition,))

    def saved(self) -> tuple[Filter, ...]:
        return ()

    def restore(self, saved: Iterable[Filter], filters: Iterable[Filter]) -> None:
        for condition in filters:
            self.add(condition)

    @property
    def sent(self) -> tuple[Filter, ...]:
        return in_order(self._count)


class Covering:
    """The filters that no other one covers."""

    def __init__(self) -> None:
        self._poset = Poset()

    def add(self, condition: Filter) -> Shift[Filter]:
        return self._poset.insert(condition) if condition != NO_EVENT else Shift()

    def remove(self, condition: Filter) -> Shift[Filter]:
        return self._poset.delete(condition) if condition != NO_EVENT else Shift()

    def saved(self) -> tuple[Filter, ...]:
        return self._poset.roots

    def restore(self, saved: Iterable[Filter], filters: Iterable[Filter]) -> None:
        # Of filters that cover each other the one that was sent has to come first.
        sent = set(saved)
        for condition in sorted(filters, key=lambda one: one not in sent):
            self.add(condition)

    @property
    def sent(self) -> tuple[Filter, ...]:
        return in_order(self._poset.roots)


class Bound:
    """One conjunction that covers them all: short to send, and it lets some events pass that nobody wants."""

    def __init__(self) -> None:
        self._each = Each()
        self._bound = NO_EVENT

    def add(self, condition: Filter) -> Shift[Filter]:
        self._each.add(condition)
        if self._bound.covers(condition):
            return Shift()
        return self._moved_to(least_upper_bound([self._bound, condition]))

    def remove(self, condition: Filter) -> Shift[Filter]:
        return self._moved_to(least_upper_bound(self._each.sent)) if self._each.remove(condition) else Shift()

    def _moved_to(self, bound: Filter) -> Shift[Filter]:
        before, self._bound = self._bound, bound
        if bound == before:
            return Shift()
        return Shift(*((() if one == NO_EVENT else (one,)) for one in (bound, before)))

    def saved(self) -> tuple[Filter, ...]:
        return self.sent

    def restore(self, saved: Iterable[Filter], filters: Iterable[Filter]) -> None:
        self._each.restore((), filters)
        # A bound that grew step by step may be wider than one made at once, and it is what the neighbour knows.
        (self._bound,) = [*saved] or [NO_EVENT]

    @property
    def sent(self) -> tuple[Filter, ...]:
        return () if self._bound == NO_EVENT else (self._bound,)


SUMMARIES: Mapping[str, Callable[[], Summary]] = {"bound": Bound, "covering": Covering, "each": Each}


class DemandSummary:
    """The demands of all peers but one: filters as a summary says, and each question once."""

    def __init__(self, filters: Summary) -> None:
        self._filters = filters
        self._questions: dict[AskedQuestion, Counter[Part]] = {}
        """By question, how many ask for each part."""

    def add(self, demand: Demand) -> Shift[Demand]:
        if not isinstance(demand, AskedQuestion):
            return Shift(*self._filters.add(demand))
        if demand.where == NO_EVENT:
            return Shift()
        asked = self._questions.setdefault(demand.question, Counter())
        before = tuple(asked)
        asked.update(demand.parts)
        return _changed(demand, before, tuple(asked))

    def remove(self, demand: Demand) -> Shift[Demand]:
        if not isinstance(demand, AskedQuestion):
            return Shift(*self._filters.remove(demand))
        if demand.where == NO_EVENT:
            return Shift()
        before = self._questions.pop(demand.question)
        left = before - Counter(demand.parts)
        if left:
            self._questions[demand.question] = left
        return _changed(demand, tuple(before), tuple(left))

    def saved(self) -> tuple[Filter, ...]:
        return self._filters.saved()

    def restore(self, saved: Iterable[Filter], demands: Iterable[Demand]) -> None:
        """Become what a summary of these demands was that gave this; called on an empty one."""
        self._filters.restore(saved, [one for one in demands if not isinstance(one, AskedQuestion)])
        for one in demands:
            if isinstance(one, AskedQuestion):
                self.add(one)

    @property
    def sent(self) -> tuple[Demand, ...]:
        """What the neighbour knows, if it is to know anything."""
        questions = (question.with_parts(parts) for question, parts in self._questions.items())
        return (*self._filters.sent, *in_order(questions))


def _changed(demand: AskedQuestion, before: tuple[Part, ...], now: tuple[Part, ...]) -> Shift[Demand]:
    """How the parts that are asked of a question have changed."""
    if set(before) == set(now):
        return Shift()
    return Shift(*((demand.with_parts(parts),) if parts else () for parts in (now, before)))
