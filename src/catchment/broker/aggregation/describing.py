"""One readable line for each message between brokers that aggregate: for traces and transcripts.

SUB traffic [q1: real total of speed where TRUE over 1000us every 1000us for b3/1]
PUB traffic b1/7 (b1/7 in q1)
flow traffic: partial q1 window=[0,1000) count(speed)=2 sum(speed)=42.0; promise 1000us
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import msgspec
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.crossing import ADVICE
from catchment.broker.aggregation.marks import Marks
from catchment.broker.demands import AskedQuestion, Demand
from catchment.broker.topics import extended
from catchment.model.schema import Schema
from catchment.stages import NOTHING, Question, SeriesName, described_partials, partials_from_bytes

__all__ = ["Describer"]


class Describer:
    """Describes messages in one line each. Whoever keeps a trace calls it with every message, in order.

    Partials and marks name their question by a hash; the describer learns from each SUB what that stands for, and
    numbers questions in the order in which it meets them: q1, q2, …
    """

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = dict(schemas)
        self._questions: dict[int, Question] = {}

    def __call__(self, message: m.Message) -> str:
        if isinstance(message, m.TopicAdded):
            self._schemas |= extended(self._schemas, {message.topic: message.attributes})
        if isinstance(message, m.Subscribed) and message.topic in self._schemas:
            return self._subscribed(message)
        if isinstance(message, m.Published) and message.notes is not None:
            return self._published(message, message.notes)
        if isinstance(message, m.AdviceMessage) and message.advice == ADVICE:
            what, topic, *rest = msgspec.msgpack.decode(message.body)
            if what in self._KINDS and topic in self._schemas:
                return f"{what} {topic}: {self._KINDS[what](self, *rest)}"
        return str(message)

    # -- questions --------------------------------------------------------------------------------------------------

    def _subscribed(self, message: m.Subscribed) -> str:
        shown = [
            f"{what} {message.topic}" + "".join(f" [{self._demand(message.topic, one)}]" for one in demands)
            for what, demands in (("SUB", message.added), ("UNSUB", message.dropped))
            if demands
        ]
        # What advice adds is shown as `str` shows it.
        extras = str(m.Subscribed(message.topic, message.change, (), (), message.extras)).removeprefix(
            f"SUB {message.topic}"
        )
        return f"{' '.join(shown)}{extras}" if shown else str(message)

    def _demand(self, topic: str, demand: Demand) -> str:
        if not isinstance(demand, AskedQuestion):
            return str(demand)
        question = demand.planned(topic, self._schemas[topic].with_implicit())
        known = self._questions.setdefault(question.id, question)
        known.parts[:] = dict.fromkeys((*known.parts, *demand.parts))
        return f"{self._name(question.id)}: {demand}"

    def _name(self, question: int) -> str:
        """How a question is called; by its hash if no SUB has brought it."""
        return f"q{[*self._questions].index(question) + 1}" if question in self._questions else str(question)

    # -- events -----------------------------------------------------------------------------------------------------

    def _published(self, message: m.Published, notes: pa.RecordBatch) -> str:
        prefix = f"{ADVICE}/"
        ours = [name for name in notes.schema.names if name.startswith(prefix)]
        marks = Marks.of({name.removeprefix(prefix): notes.column(name) for name in ours} or None)
        ids = message.events.column("event_id").to_pylist()
        absorbed: dict[int, list[str]] = {}
        for row, question in zip(marks.rows.tolist(), marks.questions.tolist(), strict=True):
            absorbed.setdefault(row, []).append(self._name(question))
        said = [f"{ids[row]} in {' '.join(sorted(names))}" for row, names in absorbed.items()]
        if marks.held_us is not None:
            held = zip(ids, marks.held_us.tolist(), strict=True)
            said += [f"{event_id} held until {end_us}us" for event_id, end_us in held if end_us > NEVER]
        plain = m.Published(message.topic, message.events, notes.drop_columns(ours))
        return f"{plain} ({', '.join(said)})" if said else str(plain)

    # -- what the advice tells itself ---------------------------------------------------------------------------------

    def _flow(self, pieces: list[bytes], promise_us: int | None, now_us: int) -> str:
        said = [f"partial {one}" for data in pieces for one in self._partials(partials_from_bytes(data))]
        if promise_us is not None:
            said.append(f"promise {promise_us}us")
        return "; ".join(said)

    def _since(self, questions: list[int], latest_us: int) -> str:
        return f"{' '.join(map(self._name, questions))} misses events up to {latest_us}us"

    def _floor(self, closed_us: int) -> str:
        return f"closed until {closed_us}us"

    def _want(self, end_us: int, now_us: int) -> str:
        return f"{end_us}us"

    def _ahead(self, news: list[tuple[SeriesName, int]]) -> str:
        said = []
        for (question, group, part, _, _), links in news:
            of_group = f" group={group % 2**16:04x}" if group else ""
            of_part = "" if part == NOTHING else " values"
            said.append(f"{self._name(question)}{of_group}{of_part} +{links} links")
        return ", ".join(said)

    _KINDS: ClassVar[Mapping[str, Callable[..., str]]] = {
        "flow": _flow,
        "since": _since,
        "floor": _floor,
        "want": _want,
        "ahead": _ahead,
    }

    def _partials(self, rows: pa.RecordBatch) -> Iterator[str]:
        """Describe each partial once, in the order of questions, time and groups."""
        places = {key: place for place, key in enumerate(self._questions)}
        parts = {part.id: part for question in self._questions.values() for part in question.parts}
        partials = described_partials(rows, parts)
        for key in sorted(partials, key=lambda key: (places.get(key[0], len(places)), *key)):
            yield " ".join([self._name(key[0]), *self._where(*key), partials[key]])

    def _where(self, question_id: int, number: int, group: str) -> Iterator[str]:
        """Say which stretch of time and which group a partial is about."""
        question = self._questions.get(question_id)
        if question is None:
            yield f"number={number}{f' group={group}' * bool(group)}"
            return
        window = question.layout.window
        if question.subscription:
            yield f"window=[{window.start_us(number)},{window.end_us(number)})"
        else:
            # Partials of shared questions are sent stride by stride, in slices.
            yield f"slice=[{window.slice_start_us(number)},{window.slice_end_us(number)})"
        for key, value in zip(question.layout.group_keys, json.loads(group) if group else (), strict=False):
            yield f"{key}={'null' if value is None else value}"
