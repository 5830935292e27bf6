"""One question at one broker: what it knows, what it has granted and sent, and what is due.

    b1 (root: a client asks)      grants slack downwards: b1 -> b2, b2 -> b3, b2 -> b4
     └ b2 ┬ b3                    reports values upwards: b3 -> b2, b4 -> b2, b2 -> b1
          └ b4

Several brokers may be roots of one question. Then each link carries values both ways, and a broker grants a neighbour
the smallest slack that any asker beyond itself needs.

Rule 1: a value for a neighbour is merged of this broker's clients and of what all *other* neighbours have reported.
Rule 2: a value is compared with what was last sent to that neighbour, never with what was received from it.
Rule 3: the first value goes once all branches have reported; so nobody hears of half a tree.
Rule 4: at rest, what a broker has heard from a neighbour is within the slack that it granted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from catchment.broker.interest.questions import InterestQuestion
from catchment.broker.interest.slack import Division

__all__ = ["InterestTree"]


class InterestTree:
    """A question at a broker, in the tree of the broker's neighbours."""

    def __init__(self, question: InterestQuestion, neighbours: Sequence[str], division: Division) -> None:
        self.question, self._neighbours, self._division = question, tuple(neighbours), division
        self._combiner = question.of.combiner
        self.local: Any = self._combiner.nothing
        """What this broker's own clients amount to."""
        self.tolerances: dict[str, float] = {}
        """By client here that asks, how much it tolerates."""
        self.granted_here: dict[str, float] = {}
        """By neighbour that wants to know, what slack it grants this broker."""
        self.granted: dict[str, float] = {}
        """By neighbour, what slack it was granted."""
        self.heard: dict[str, Any] = {}
        """By neighbour, what it has last reported."""
        self.sent: dict[str, Any] = {}
        """By neighbour, what it was last sent."""

    @property
    def is_wanted(self) -> bool:
        return bool(self.tolerances or self.granted_here)

    def contribute(self, contributions: Iterable[Any]) -> None:
        """Take what this broker's own clients contribute now."""
        self.local = self._merged(contributions)

    def begin_anew(self, neighbour: str) -> None:
        """Forget what a neighbour has said and was sent: it has forgotten too."""
        for known in (self.granted_here, self.granted, self.heard, self.sent):
            known.pop(neighbour, None)

    # -- downwards: who must report, and how precisely ----------------------------------------------------------------

    def due_grants(self) -> dict[str, float | None]:
        """By neighbour, the slack that it has to be told of; None is that nobody asks it any more."""
        due: dict[str, float | None] = {}
        for neighbour in self._neighbours:
            needed = self._needed_of(neighbour)
            if needed != self.granted.get(neighbour):
                due[neighbour] = needed
        return due

    def note_granted(self, neighbour: str, slack: float | None) -> None:
        if slack is None:
            self.granted.pop(neighbour, None)
            self.heard.pop(neighbour, None)
        else:
            self.granted[neighbour] = slack

    def be_granted(self, neighbour: str, slack: float | None) -> None:
        """A neighbour wants to know, and grants slack; or, with None, wants to know no more."""
        if slack is None:
            self.granted_here.pop(neighbour, None)
            self.sent.pop(neighbour, None)
        else:
            self.granted_here[neighbour] = slack

    def _needed_of(self, neighbour: str) -> float | None:
        """The smallest slack that anybody beyond a neighbour can grant it; None if nobody asks."""
        needed = [self._divided(slack, asker)[1][neighbour] for asker, slack in self._askers() if asker != neighbour]
        return min(needed, default=None)

    def _askers(self) -> list[tuple[str | None, float]]:
        """Who asks this broker, with the slack granted: its own clients together (None), and neighbours."""
        here = [(None, min(self.tolerances.values()))] if self.tolerances else []
        return [*here, *sorted(self.granted_here.items())]

    def _divided(self, slack: float, asker: str | None) -> tuple[float, dict[str, float]]:
        """What this broker keeps of what an asker grants, and what it grants to each other neighbour."""
        branches = [one for one in self._neighbours if one != asker]
        sharing = self._combiner.sharing
        own, granted = sharing.divided(slack, len(branches), whole=self._combiner.is_whole, division=self._division)
        return own, dict(zip(branches, granted, strict=True))

    # -- upwards: values ----------------------------------------------------------------------------------------------

    def report(self, neighbour: str, value: Any) -> None:
        """A neighbour has reported; one that is not asked any more is not listened to."""
        if neighbour in self.granted:
            self.heard[neighbour] = value

    def due_value(self, neighbour: str) -> tuple[Any] | None:
        """What a neighbour has to be sent, if anything."""
        slack = self.granted_here.get(neighbour)
        branches = [one for one in self._neighbours if one != neighbour]
        if slack is None or not all(one in self.heard for one in branches):
            return None
        value = self._value(branches)
        if neighbour in self.sent:
            own, _ = self._divided(slack, neighbour)
            if self._combiner.distance(value, self.sent[neighbour]) <= own:
                return None
        return (value,)

    def note_sent(self, neighbour: str, value: Any) -> None:
        self.sent[neighbour] = value

    def known_here(self) -> tuple[Any, float] | None:
        """The value that clients here are told, and how far it may be from the truth; None before all have reported."""
        if not all(one in self.heard for one in self._neighbours):
            return None
        slacks = [self.granted[one] for one in self._neighbours]
        return self._combiner.finish(self._value(self._neighbours)), self._combiner.sharing.total(slacks)

    def _value(self, branches: Iterable[str]) -> Any:
        return self._merged([self.local, *(self.heard[one] for one in branches)])

    def _merged(self, states: Iterable[Any]) -> Any:
        return reduce(self._combiner.merge, states, self._combiner.nothing)

    # -- memory -------------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        return {
            "question": self.question.plain,
            "local": self.local,
            **{name: dict(getattr(self, name)) for name in _TABLES},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.local = saved["local"]
        for name in _TABLES:
            setattr(self, name, dict(saved[name]))


_TABLES = ("tolerances", "granted_here", "granted", "heard", "sent")
