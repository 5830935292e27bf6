"""Subscriptions compiled for the data plane: which questions there are, who asks them, what each event must update.

    subscription ──► filter ──► question (filter, window, group keys) ──► parts (state, attribute)

Subscriptions that ask the same thing of the same filter meet in one question. Questions and parts are named by a hash
of their meaning, so that partials outlive the version of the plan that made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.matching import Matcher
from catchment.model.errors import SubscriptionError
from catchment.model.filter import Filter
from catchment.model.operators import Measure
from catchment.model.schema import Schema, Type
from catchment.model.states import COLLECTED
from catchment.model.subscription import Aggregate, Query, Subscription
from catchment.model.window import Window
from catchment.overlay import Overlay, mask_of, word_count
from catchment.stages.holding import HELD, Held

__all__ = [
    "Active",
    "Asker",
    "CellPlan",
    "Layout",
    "Part",
    "PartTable",
    "Plan",
    "Question",
    "TopicPlan",
    "broker_of",
    "compile_plan",
    "part_of",
]

Ints = npt.NDArray[np.int64]

NO_OVERLAY = "-"
"""The broker of everyone where there is no overlay."""


@dataclass(frozen=True, slots=True)
class Active:
    """A subscription from some moment on."""

    subscription: Subscription
    since_us: int | None = None
    """Windows that begin earlier are left out; None is none."""
    incarnation: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """How events fall into cells: by slice of a window and by group."""

    window: Window
    group_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One state over one attribute, shared by all measures that it can answer."""

    state: str
    attribute: str | None
    kind: Type
    id: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", _hash(self.state, self.attribute, self.kind.value))

    @property
    def held(self) -> Held:
        """How columns hold it."""
        return HELD[self.state, self.kind]

    def require_known(self) -> None:
        """Raise if there is no such state."""
        if (self.state, self.kind) not in HELD:
            known = ", ".join(sorted({state for state, _ in HELD}))
            raise SubscriptionError(f"there is no state {self.state!r}; there are {known}")


def part_of(measure: Measure, schema: Schema) -> Part:
    """The state that a measure is finished from."""
    kind = schema[measure.attribute] if measure.attribute is not None else Type.INT
    return Part(measure.state(kind).name, measure.attribute, kind)


@dataclass(frozen=True, slots=True)
class Asker:
    """An aggregate subscription that a question answers."""

    name: str
    broker: int
    since_us: int | None
    incarnation: int
    outputs: tuple[tuple[str, Measure, int], ...]
    """Name, measure, and which of the question's parts holds its state."""
    having: Filter | None
    having_measures: tuple[tuple[str, Measure, int], ...]
    """The same of what HAVING compares."""

    @classmethod
    def of(
        cls,
        wanted: Aggregate,
        question: Question,
        schema: Schema,
        name: str,
        broker: int,
        since_us: int | None,
        incarnation: int = 0,
    ) -> Asker:
        """One whose parts the question has, or gets."""
        outputs = tuple((one.name, one.measure, question.part_of(one.measure, schema)) for one in wanted.outputs)
        compared = ((wanted.fact_of(measure), measure) for measure in wanted.having_measures)
        having_measures = tuple((name, measure, question.part_of(measure, schema)) for name, measure in compared)
        return cls(name, broker, since_us, incarnation, outputs, wanted.having, having_measures)


@dataclass(slots=True)
class Question:
    """What is computed once for all who ask it."""

    topic: str
    where: Filter
    layout: Layout
    key_types: tuple[Type, ...]
    parts: list[Part] = field(default_factory=list)
    askers: list[Asker] = field(default_factory=list)
    subscription: str = ""
    """Whose it is alone, if nobody shares it."""
    id: int = field(init=False)

    def __post_init__(self) -> None:
        window, keys = self.layout.window, self.layout.group_keys
        self.id = _hash(self.topic, str(self.where), window.size_us, window.shift_us, list(keys), self.subscription)

    def part_of(self, measure: Measure, schema: Schema) -> int:
        part = part_of(measure, schema)
        if part not in self.parts:
            self.parts.append(part)
        return self.parts.index(part)


@dataclass(frozen=True, slots=True)
class PartTable:
    """The parts of all questions of a topic as columns, by slot, question and position."""

    parts: list[Part]
    ids: Ints
    questions: Ints
    slots: Ints
    layouts: Ints
    codes: Ints
    attributes: Ints
    """Which of the topic's measured attributes; below zero for none."""
    is_first: npt.NDArray[np.bool_]
    """Of its question."""


@dataclass(slots=True, kw_only=True)
class CellPlan:
    """What matched events must update: the cells of some questions about one topic."""

    schema: Schema
    """The attributes that are read."""
    layouts: list[Layout]
    parts: PartTable
    measured: dict[str, Type]
    """The attributes that parts read."""
    questions: list[Question]
    question_ids: Ints
    question_layouts: Ints
    asked_offsets: Ints
    asked_members: Ints
    """The questions about each slot, by their place in the list."""
    collecting: list[tuple[int, Part]]
    """The places of questions, and parts of theirs that collect values."""

    @classmethod
    def of(cls, asked: Sequence[tuple[int, Question]], schema: Schema, slot_count: int) -> CellPlan:
        """The plan of questions about slots; `schema` is that of all attributes."""
        return cls(**_cell_fields(asked, schema, slot_count))


def _cell_fields(asked: Sequence[tuple[int, Question]], schema: Schema, slot_count: int) -> dict[str, Any]:
    layouts = sorted({question.layout for _, question in asked})
    numbers = {layout: number for number, layout in enumerate(layouts)}
    measured = {part.attribute: part.kind for _, one in asked for part in one.parts if part.attribute is not None}
    used = {*measured, *(key for layout in layouts for key in layout.group_keys)}
    members: list[list[int]] = [[] for _ in range(slot_count)]
    for index, (slot, _) in enumerate(asked):
        members[slot].append(index)
    return {
        "schema": Schema({name: schema[name] for name in sorted(used)}),
        "layouts": layouts,
        "parts": _part_table(asked, numbers, list(measured)),
        "measured": measured,
        "questions": [question for _, question in asked],
        "question_ids": np.array([question.id for _, question in asked], np.int64),
        "question_layouts": np.array([numbers[question.layout] for _, question in asked], np.int64),
        "asked_offsets": _offsets(members),
        "asked_members": np.array([index for one in members for index in one], np.int64),
        "collecting": [
            (index, part)
            for index, (_, question) in enumerate(asked)
            for part in question.parts
            if part.state in COLLECTED and part.attribute is not None
        ],
    }


def _part_table(
    asked: Sequence[tuple[int, Question]], layouts: Mapping[Layout, int], measured: Sequence[str]
) -> PartTable:
    columns = {name: number for number, name in enumerate(measured)}
    rows = [
        (slot, question.id, position, layouts[question.layout], part)
        for slot, question in asked
        for position, part in enumerate(question.parts)
    ]
    rows.sort(key=lambda row: row[:3])
    parts = [row[-1] for row in rows]
    return PartTable(
        parts=parts,
        ids=np.array([part.id for part in parts], np.int64),
        questions=np.array([row[1] for row in rows], np.int64),
        slots=np.array([row[0] for row in rows], np.int64),
        layouts=np.array([row[3] for row in rows], np.int64),
        codes=np.array([part.held.code for part in parts], np.int64),
        attributes=np.array([-1 if part.attribute is None else columns[part.attribute] for part in parts], np.int64),
        is_first=np.array([row[2] == 0 for row in rows], np.bool_),
    )


@dataclass(slots=True, kw_only=True)
class TopicPlan(CellPlan):
    """All that the events of one topic must be matched against and update; arrays are by matcher slot."""

    topic: str
    matcher: Matcher
    regular: list[str]
    regular_offsets: Ints
    regular_members: Ints
    by_id: Ints
    """The places of parts in the order of their ids."""
    wanted_at: npt.NDArray[np.uint64]
    wanted_raw_at: npt.NDArray[np.uint64]
    """[slots, words]: the brokers with any subscription of this filter, and those with a regular one."""


@dataclass(slots=True)
class Plan:
    """One version of all subscriptions, compiled."""

    schemas: Mapping[str, Schema]
    brokers: tuple[str, ...]
    topics: dict[str, TopicPlan]
    questions: dict[int, Question]
    regular_names: tuple[str, ...]
    regular: Mapping[str, Query]
    """The regular subscriptions by name."""
    has_overlay: bool

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attribute columns that the stages read."""
        used = {name for topic in self.topics.values() for name in topic.schema if name not in ("broker", "ts")}
        return tuple(sorted(used))

    def summary(self) -> str:
        """How much the subscriptions share."""
        askers = sum(len(question.askers) for question in self.questions.values())
        filters = sum(len(topic.matcher) for topic in self.topics.values())
        parts = sum(len(question.parts) for question in self.questions.values())
        return (
            f"{askers} aggregate and {len(self.regular_names)} regular subscriptions on {len(self.topics)} topics: "
            f"{filters} distinct filters, {len(self.questions)} questions, {parts} states"
        )


def compile_plan(
    active: Iterable[Active], schemas: Mapping[str, Schema], overlay: Overlay | None, *, open_topics: bool = False
) -> Plan:
    """Check every subscription against schemas and overlay, and share what can be shared.

    With `open_topics` a topic without a schema of its own has the one under "*".
    """
    builders: dict[str, _TopicBuilder] = {}
    regular: dict[str, Query] = {}
    brokers = overlay.brokers if overlay is not None else (NO_OVERLAY,)
    names: set[str] = set()
    known = dict(schemas)
    for one in active:
        subscription = one.subscription
        if subscription.name in names:
            raise SubscriptionError(f"two subscriptions are named {subscription.name!r}; each name is accepted once")
        names.add(subscription.name)
        topic = subscription.query.topic
        if open_topics:
            known.setdefault(topic, schemas["*"])
        query = subscription.within(known)
        if topic not in builders:
            builders[topic] = _TopicBuilder(topic, known[topic].with_implicit(), len(brokers))
        builders[topic].add(one, query, broker_of(subscription, overlay))
        if query.aggregate is None:
            regular[subscription.name] = query
    topics = {topic: builder.build() for topic, builder in sorted(builders.items())}
    questions = {q.id: q for builder in builders.values() for q in builder.questions.values()}
    names_in_order = tuple(name for topic in topics.values() for name in topic.regular)
    return Plan(known, brokers, topics, questions, names_in_order, regular, overlay is not None)


def broker_of(subscription: Subscription, overlay: Overlay | None) -> int:
    """The place of a subscription's broker in the overlay."""
    if overlay is None:
        return 0
    if subscription.at is None:
        if len(overlay) == 1:
            return 0
        raise SubscriptionError(
            f"subscription {subscription.name!r} names no broker; accepted is at=… with one of the overlay's brokers"
        )
    return overlay.require(subscription.at)


class _TopicBuilder:
    def __init__(self, topic: str, schema: Schema, broker_count: int) -> None:
        self._topic, self._schema = topic, schema
        self._broker_count = broker_count
        self._filters: dict[Filter, int] = {}
        self._regular: list[tuple[int, str, int]] = []
        self.questions: dict[tuple[Filter, Layout], Question] = {}

    def add(self, one: Active, query: Query, broker: int) -> None:
        number = self._filters.setdefault(query.where, len(self._filters))
        asked = query.aggregate
        if asked is None:
            self._regular.append((number, one.subscription.name, broker))
            return
        layout = Layout(asked.window, asked.group_keys)
        key_types = tuple(self._schema[key] for key in asked.group_keys)
        question = self.questions.get((query.where, layout))
        if question is None:
            question = Question(self._topic, query.where, layout, key_types)
            self.questions[query.where, layout] = question
        who = one.subscription.name, broker, one.since_us, one.incarnation
        question.askers.append(Asker.of(asked, question, self._schema, *who))

    def build(self) -> TopicPlan:
        matcher = Matcher.of_typed({number: where for where, number in self._filters.items()}, self._used_schema())
        slots = {number: matcher.slot_of(number) for number in self._filters.values()}
        slot_count = max(slots.values(), default=-1) + 1
        wanted = np.zeros((slot_count, word_count(self._broker_count)), np.uint64)
        wanted_raw = np.zeros_like(wanted)
        for question in self.questions.values():
            slot = slots[self._filters[question.where]]
            wanted[slot] |= mask_of([asker.broker for asker in question.askers], self._broker_count)
        asked = [(slots[self._filters[question.where]], question) for question in self.questions.values()]
        members: list[list[int]] = [[] for _ in range(slot_count)]
        for index, (number, _, broker) in enumerate(self._regular):
            members[slots[number]].append(index)
            wanted_raw[slots[number]] |= mask_of([broker], self._broker_count)
        cells = _cell_fields(asked, self._schema, slot_count) | {"schema": self._used_schema()}
        return TopicPlan(
            **cells,
            topic=self._topic,
            matcher=matcher,
            by_id=np.argsort(cells["parts"].ids, kind="stable"),
            regular=[name for _, name, _ in self._regular],
            regular_offsets=_offsets(members),
            regular_members=np.array([index for one in members for index in one], np.int64),
            wanted_at=wanted | wanted_raw,
            wanted_raw_at=wanted_raw,
        )

    def _used_schema(self) -> Schema:
        used = {name for where in self._filters for name in where.attributes}
        for question in self.questions.values():
            used.update(question.layout.group_keys)
            used.update(part.attribute for part in question.parts if part.attribute is not None)
        return Schema({name: self._schema[name] for name in sorted(used)})


def _offsets(lists: Sequence[Sequence[object]]) -> Ints:
    return np.concatenate(([0], np.cumsum([len(one) for one in lists], dtype=np.int64))).astype(np.int64)


def _hash(*meaning: str | int | list[str] | None) -> int:
    # As JSON, which no name of a column can pass for more than one name, nor for a missing one.
    digest = blake2b(json.dumps(meaning).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
