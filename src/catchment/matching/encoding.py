"""From values and conjunctions to codes and checks.

Rule 1: every value becomes an int64 that orders its lane as the model orders values; null is the least int64.
Rule 2: a lane is one way to look at an attribute. Numbers, times and truth values have one lane. Strings have three: in
        their order (comparisons, prefixes), backwards (suffixes), and by the pieces they contain.
Rule 3: a check is plain data, (lane, flags, spans); equal conjunctions have equal checks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from catchment.matching.kernel import NEGATED, NULL_HOLDS, PIECE, TEXT
from catchment.matching.layout import FLIP, HIGHEST_CODE, LOWEST_CODE
from catchment.matching.memory import Array
from catchment.matching.texts import HIGHEST_TEXT, LOWEST_TEXT, Pieces, Vocabulary, text_end
from catchment.model.constraint import Constraint, Cut, Pattern, Scalar
from catchment.model.filter import Conjunction
from catchment.model.schema import Schema, Type

__all__ = ["BACKWARDS", "PARTS", "PLAIN", "Check", "Space", "code_of"]

Span = tuple[int, int]
Check = tuple[int, int, tuple[Span, ...]]
"""Lane, flags, and the spans of codes that satisfy it, both ends inclusive; or, of a PIECE, its number."""

PLAIN, BACKWARDS, PARTS = range(3)
"""The views of a string attribute; all others have the first only."""

_UNBOUNDED: tuple[tuple[Cut, Cut], ...] = (((0,), (2,)),)


def code_of(value: Scalar, kind: Type) -> int:
    """The code of a number, time or truth value."""
    if kind is Type.FLOAT:
        bits = int(struct.unpack("<q", struct.pack("<d", value + 0.0))[0])  # type: ignore[operator]
        return bits if bits >= 0 else bits ^ FLIP
    return int(value)


class Space:
    """What codes mean: the attributes, their lanes, and the texts that filters mention."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.attributes = tuple(schema)
        self._number = {name: i for i, name in enumerate(self.attributes)}
        self.lane_limit = sum(3 if schema[name] is Type.STRING else 1 for name in self.attributes)
        self.lanes: list[tuple[int, int]] = []
        """Attribute and view of each lane, in the order in which filters first asked for them."""
        self.ordered_lanes = np.zeros(0, np.uint16)
        self.cell_lane = np.zeros(max(self.lane_limit, 1), np.int32)
        self.of_attribute = np.full((max(len(self.attributes), 1), 3), -1, np.int32)
        self.is_float = np.array([schema[name] is Type.FLOAT for name in self.attributes] or [False], np.uint8)
        self.vocabulary = Vocabulary(self.lane_limit)
        self.pieces = Pieces(len(self.attributes))

    def lane(self, attribute: int, view: int) -> int:
        lane = int(self.of_attribute[attribute, view])
        if lane < 0:
            # Pieces use the cells of the order, so there must be one.
            cell_lane = self.lane(attribute, PLAIN) if view == PARTS else len(self.lanes)
            self.cell_lane[len(self.lanes)] = cell_lane
            lane = self.of_attribute[attribute, view] = len(self.lanes)
            self.lanes.append((attribute, view))
            if view != PARTS:
                self.ordered_lanes = np.append(self.ordered_lanes, np.uint16(lane))
        return lane

    def has_order(self, lane: int) -> bool:
        return self.lanes[lane][1] != PARTS

    def is_text(self, lane: int) -> bool:
        attribute, view = self.lanes[lane]
        return view != PARTS and self.schema[self.attributes[attribute]] is Type.STRING

    def checks(self, conjunction: Conjunction) -> tuple[Check, ...]:
        """The checks of a conjunction that is already within the schema; new texts wait in the vocabulary."""
        found: list[Check] = []
        for name, constraint in conjunction:
            attribute, kind = self._number[name], self.schema[name]
            null = NULL_HOLDS if constraint.null else 0
            if kind is Type.STRING:
                found += self._text_checks(attribute, constraint, null)
            else:
                if kind is Type.INT:
                    constraint.require_codable(name)
                spans = tuple(
                    (
                        LOWEST_CODE if len(low) == 1 else code_of(low[1], kind),
                        HIGHEST_CODE if len(high) == 1 else code_of(high[1], kind) - 1,
                    )
                    for low, high in constraint.ranges
                )
                found.append((self.lane(attribute, PLAIN), null, spans))
        return tuple(sorted(found))

    def _text_checks(self, attribute: int, constraint: Constraint, null: int) -> Iterable[Check]:
        ordered = Constraint(False, constraint.ranges, (), "string")
        backwards = Constraint(False, _UNBOUNDED, (), "string")
        pieces = []
        for pattern in constraint.patterns:
            if pattern.kind == "suffix":
                # One character per byte keeps the order of bytes and lets the model's prefixes do the work.
                reverse = _bytes(pattern.text)[::-1].decode("latin-1")
                backwards = backwards.intersect(_stretch(Pattern("prefix", reverse), pattern.negated))
            elif pattern.kind == "prefix":
                ordered = ordered.intersect(_stretch(pattern, pattern.negated))
            elif pattern.text:
                pieces.append(pattern)
            elif pattern.negated:
                ordered = Constraint(False, (), (), "string")
        if ordered.ranges != _UNBOUNDED or (backwards.ranges == _UNBOUNDED and not pieces):
            yield self._ordered(self.lane(attribute, PLAIN), ordered, null, "utf-8")
        if backwards.ranges != _UNBOUNDED:
            yield self._ordered(self.lane(attribute, BACKWARDS), backwards, null, "latin-1")
        for pattern in pieces:
            piece = self.pieces.intern(attribute, _bytes(pattern.text))
            flags = null | PIECE | (NEGATED if pattern.negated else 0)
            yield self.lane(attribute, PARTS), flags, ((piece, 0),)

    def _ordered(self, lane: int, constraint: Constraint, null: int, encoding: str) -> Check:
        def end(cut: Cut, beside: int, unbounded: int) -> int:
            if len(cut) == 1:
                return unbounded
            return text_end(self.vocabulary.intern(lane, _bytes(str(cut[1]), encoding)), beside)

        spans = []
        for low, high in constraint.ranges:
            lower = end(low, 0, LOWEST_TEXT)
            # A single string needs no second constant just behind it.
            point = len(low) == 3 and len(high) == 3 and high[1] == f"{low[1]}\0"
            spans.append((lower, lower if point else end(high, -1, HIGHEST_TEXT)))
        return lane, null | TEXT, tuple(spans)

    def translated(self, check: Check, source: Space) -> Check:
        """A check of another space over the same schema, in terms of this one."""
        lane, flags, spans = check
        attribute, view = source.lanes[lane]
        mine = self.lane(attribute, view)
        if flags & PIECE:
            return mine, flags, ((self.pieces.intern(attribute, source.pieces.text(attribute, spans[0][0])), 0),)
        if flags & TEXT:

            def moved(end: int) -> int:
                constant = end >> 2
                return (
                    end
                    if constant < 2
                    else self.vocabulary.intern(mine, source.vocabulary.text(constant)) * 4 + (end & 3)
                )

            return mine, flags, tuple((moved(low), moved(high)) for low, high in spans)
        return mine, flags, spans

    def resolved(self, ends: Array, is_text: Array) -> Array:
        """The codes that ends stand for; those of text are relative to a constant."""
        found = ends.copy()
        texts = ends[is_text]
        found[is_text] = self.vocabulary.label[texts >> 2] + ((texts & 3) - 1)
        return found


def _bytes(text: str, encoding: str = "utf-8") -> bytes:
    # A lone surrogate equals no text of an event, but has its place in the order.
    return text.encode(encoding, "surrogatepass") if encoding == "utf-8" else text.encode(encoding)


def _stretch(prefix: Pattern, negated: bool) -> Constraint:
    low, high = prefix.range
    ranges = (((0,), low), (high, (2,))) if negated else ((low, high),)
    return Constraint(False, tuple(r for r in ranges if r[0] < r[1]), (), "string")
