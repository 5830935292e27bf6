"""States of aggregates, put aside by slice and window until they are due.

Partial     what some publications come to, for some parts
Shelf       the partials of one base and group that wait at one place
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from catchment.model.states import STATES, BlobState
from catchment.model.window import Window
from catchment.overlay.placement import VALUE_BYTES
from catchment.stages import COLLECTED, Part, state_bytes

__all__ = ["STATE_OVERHEAD_BYTES", "Partial", "Received", "Shelf"]

STATE_OVERHEAD_BYTES = 1_000
"""What a broker needs to keep a state and to know when it is due, besides the state."""
_WIDEST = 2**63
_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_PlainPartial = tuple[Annotated[int, msgspec.Meta(ge=1, le=2**62)], dict[int, Any], list[int]]
Received = tuple[str, list[Any], _Number, int, int, list[tuple[_Number, Any]]]
"""A partial as it travels: base, group, number of its window or stride, messages, bytes, and states by slice."""


class Partial:
    """The states of some parts over some publications. Of blobs, values wait until somebody looks."""

    __slots__ = ("_fresh", "_states", "missing", "publications")

    def __init__(self) -> None:
        self.publications = 0
        self._states: dict[int, Any] = {}
        self._fresh: dict[int, list[Any]] = {}
        self.missing: set[int] = set()
        """The parts that collect values and have met a publication without one."""

    def add(self, parts: Iterable[Part], values: Mapping[str, Any]) -> None:
        """One more publication."""
        self.publications += 1
        for part in parts:
            state = STATES[part.state]
            value = 1 if part.attribute is None else values.get(part.attribute)
            if isinstance(state, BlobState):
                fresh = self._fresh.setdefault(part.id, [])
                if value is not None:
                    fresh.append(value)
                elif part.state in COLLECTED:
                    self.missing.add(part.id)
            else:
                before = self._states[part.id] if part.id in self._states else state.create(part.kind)
                self._states[part.id] = before if value is None else state.add(before, value, part.kind)

    def merge(self, other: Partial, parts: Mapping[int, Part]) -> None:
        """All of another one, as far as its parts are known here."""
        self.publications += other.publications
        for number, part in parts.items():
            if other.has(number):
                there = other.state(part)
                if self.has(number):
                    there = STATES[part.state].merge(self.state(part), there, part.kind)
                self._states[number] = there
        self.missing |= other.missing

    def has(self, number: int) -> bool:
        return number in self._states or number in self._fresh

    def state(self, part: Part) -> Any:
        """The state of a part, also if nothing was seen."""
        state = STATES[part.state]
        fresh = self._fresh.pop(part.id, None)
        if fresh is not None:
            assert isinstance(state, BlobState)
            new = state.collect(fresh, part.kind)
            before = self._states.get(part.id)
            self._states[part.id] = new if before is None else state.merge(before, new, part.kind)
        return self._states[part.id] if part.id in self._states else state.create(part.kind)

    def values(self, part: Part) -> int:
        """How many values a part that collects them holds; a missing one counts as well."""
        if part.state == "values":
            return self.publications
        held: Any = STATES[part.state]
        return len(held.values(self.state(part), part.kind)) + (part.id in self.missing)

    def holds(self, part: Part, value: Any) -> bool:
        """Whether a part that collects distinct values has met one."""
        if value is None:
            return part.id in self.missing
        held: Any = STATES[part.state]
        return value in held.values(self.state(part), part.kind)

    def plain(self, parts: Mapping[int, Part]) -> list[Any]:
        states = {number: _narrow(self.state(part)) for number, part in parts.items() if self.has(number)}
        return [self.publications, states, sorted(self.missing)]

    @classmethod
    def from_plain(cls, plain: Any) -> Partial:
        partial = cls()
        partial.publications, states, missing = msgspec.convert(plain, _PlainPartial)
        partial._states = {number: _wide(state) for number, state in states.items()}
        partial.missing = set(missing)
        return partial

    def require_fitting(self, parts: Mapping[int, Part]) -> None:
        """Raise if a state is none of its part: what can be merged with nothing can be merged with anything."""
        for number, state in self._states.items():
            if number in parts:
                definition, kind = STATES[parts[number].state], parts[number].kind
                definition.merge(definition.create(kind), state, kind)


def _narrow(state: Any) -> Any:
    """Whole numbers beyond 64 bits, which sums may be on their way, as text."""
    if isinstance(state, (tuple, list)) and any(isinstance(one, int) and abs(one) >= _WIDEST for one in state):
        return {"wide": [str(one) for one in state]}
    return state


def _wide(state: Any) -> Any:
    return tuple(int(one) for one in state["wide"]) if isinstance(state, dict) else state


class Shelf:
    """What waits for one base and group, at a link or for the clients here."""

    __slots__ = ("flushed", "own", "received", "windows")

    def __init__(self) -> None:
        self.own: dict[int, Partial] = {}
        """By slice, of publications that were absorbed here."""
        self.received: dict[int, Partial] = {}
        """By slice, of partials that have come."""
        self.windows: dict[int, Partial] = {}
        """By window, of partials that have come, and of what was absorbed after the window was told of."""
        self.flushed: set[int] = set()
        """The windows that were told of before they closed."""

    def add(self, window: Window, number: int, parts: Iterable[Part], values: Mapping[str, Any]) -> bool:
        """Put a publication into a slice; whether that is the first."""
        is_new = number not in self.own
        if is_new:
            self.own[number] = Partial()
        self.own[number].add(parts, values)
        if self.flushed:
            for one in window.windows_of_slice(number):
                if one in self.flushed:
                    if one not in self.windows:
                        self.windows[one], is_new = Partial(), True
                    self.windows[one].add(parts, values)
        return is_new

    def put(self, where: dict[int, Partial], number: int, partial: Partial, parts: Mapping[int, Part]) -> None:
        """Merge a partial that has come into a slice or a window."""
        where.setdefault(number, Partial()).merge(partial, parts)

    def of_window(self, window: Window, number: int, parts: Mapping[int, Part]) -> tuple[Partial | None, int]:
        """All that is known of a window, and how many states it took."""
        inside = window.slices_of_window(number)
        found = [held[at] for held in (self.own, self.received) for at in held if at in inside]
        found += [self.windows[number]] if number in self.windows else []
        return merged(found, parts), len(found)

    def take_window(self, window: Window, number: int, parts: Mapping[int, Part]) -> tuple[Partial | None, int]:
        """What is to be told of a window and was not told before."""
        if number in self.flushed:
            late = self.windows.pop(number, None)
            return late, int(late is not None)
        found = self.of_window(window, number, parts)
        self.windows.pop(number, None)
        self.flushed.add(number)
        return found

    def take_stride(self, window: Window, number: int, parts: Mapping[int, Part]) -> tuple[dict[int, Partial], int]:
        """What is to be told of a stride, by slice."""
        found: dict[int, Partial] = {}
        states = 0
        for at in window.slices_of_stride(number):
            several = [held.pop(at) for held in (self.own, self.received) if at in held]
            whole = merged(several, parts)
            states += len(several)
            if whole is not None:
                found[at] = whole
        return found, states

    def weight_bytes(self, parts: Mapping[int, Part]) -> int:
        """About what it takes to keep all this: collected values grow, other states do not."""
        collecting = sum(part.state in COLLECTED for part in parts.values())
        states = sum(state_bytes(part.state) for part in parts.values() if part.state not in COLLECTED)
        kept = [one for held in (self.own, self.received, self.windows) for one in held.values()]
        values = sum(one.publications for one in kept) if collecting else 0
        return len(kept) * (STATE_OVERHEAD_BYTES + states) + values * collecting * VALUE_BYTES

    def forget(self, window: Window, closed_us: int) -> bool:
        """Leave out what belongs to windows that are closed; whether nothing is left."""
        for slices in (self.own, self.received):
            for at in [at for at in slices if window.until_us(at) <= closed_us]:
                del slices[at]
        for number in [one for one in self.windows if window.bounds_us(one)[1] <= closed_us]:
            del self.windows[number]
        self.flushed = {one for one in self.flushed if window.bounds_us(one)[1] > closed_us}
        return not (self.own or self.received or self.windows)

    def plain(self, parts: Mapping[int, Part]) -> list[Any]:
        tables = (self.own, self.received, self.windows)
        return [
            *([[at, one.plain(parts)] for at, one in table.items()] for table in tables),
            sorted(self.flushed),
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Shelf:
        shelf = cls()
        *tables, flushed = plain
        for table, rows in zip((shelf.own, shelf.received, shelf.windows), tables, strict=True):
            table.update((at, Partial.from_plain(one)) for at, one in rows)
        shelf.flushed = set(flushed)
        return shelf


def merged(several: list[Partial], parts: Mapping[int, Part]) -> Partial | None:
    """One partial of several, which stay as they are; None of none."""
    if not several:
        return None
    whole = Partial()
    for one in several:
        whole.merge(one, parts)
    return whole
