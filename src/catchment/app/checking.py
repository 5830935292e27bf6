"""`catchment check`: what a subscription would do, without doing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import catchment
from catchment.app.config import Configuration, attributes_of
from catchment.app.printing import print_facts, print_rows
from catchment.lab.progress import Steps
from catchment.model.errors import ConfigurationError
from catchment.model.events import as_events, attribute_schema
from catchment.model.operators import Measure
from catchment.model.rendering import filter_sql
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Aggregate, Query, Subscription
from catchment.model.window import Window
from catchment.overlay import shortest_paths
from catchment.pipeline.generated import Generated, chunk_of
from catchment.pipeline.planner import choose
from catchment.pipeline.sources import Recorded, Source, open_batch
from catchment.pipeline.topics import absent_topics
from catchment.stages import Active, compile_plan

__all__ = ["check_all", "check_one", "job_of_options", "show_all", "show_checked"]

_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))
_SHOWN_MAX = 12


def check_all(job: Configuration) -> list[dict[str, Any]]:
    """The subscriptions of a file in short."""
    return [_in_short(one, *_meaning(one, job)) for one in _subscriptions(job)]


def check_one(
    job: Configuration,
    *,
    sql: str | None,
    at: str | None,
    name: str | None,
    sample: int,
    master: str | None,
    steps: Steps,
) -> dict[str, Any]:
    """All that can be said of one subscription: one of the file, or one that might be added to it."""
    configured = _subscriptions(job)
    if sql is not None:
        asked = Subscription(name or "new", at, sql=sql)
        others = [one for one in configured if one.name != asked.name]
    else:
        found = [one for one in configured if one.name == name]
        if not found:
            known = ", ".join(one.name for one in configured[:_SHOWN_MAX]) or "none"
            raise ConfigurationError(f"{job.file} has no subscription {name!r}; there are {known}")
        asked, others = found[0], [one for one in configured if one.name != name]
    events: pa.Table | None = None
    if sample and job.source is not None:
        events = _sample(job.source, sample, master or job.options.master, steps)
        job = _with_columns(job, events, (*others, asked))
    job.check_subscription(asked)
    query, schema = _meaning(asked, job)
    checked = _in_short(asked, query, schema)
    checked |= _relations(query, others, job)
    checked |= _placed(asked, query, job)
    checked |= _engine(asked, others, job)
    if query.aggregate is not None:
        checked["window"] = _window(query.aggregate.window)
        checked["operators"] = _operators(query.aggregate, schema)
    if events is not None and schema is not None:
        checked["selectivity"] = _selectivity(query, events, schema)
        there = {topic for topic in events.column("topic").unique().to_pylist() if topic is not None}
        checked["warning"] = absent_topics([asked], there, f"event among the first {events.num_rows:,}") or None
    return checked


def job_of_options(sql: str, attributes: str | None) -> Configuration:
    """A job for one subscription alone, whose topic has the given attributes, or unknown ones."""
    if attributes is None:
        return Configuration(file="--sql")
    topic = Subscription("new", sql=sql).query.topic
    return Configuration(file="--sql", topics={topic: attributes_of(attributes)})


def _with_columns(job: Configuration, events: pa.Table, subscriptions: Iterable[Subscription]) -> Configuration:
    """The job, where it declares no topics, with those of its subscriptions, which have what the columns say."""
    if job.topics:
        return job
    columns = attribute_schema(events.schema)
    return replace(job, topics={one.query.topic: columns for one in subscriptions})


def _subscriptions(job: Configuration) -> list[Subscription]:
    return job.drawn.draw() if job.drawn is not None else list(job.subscriptions)


def _meaning(one: Subscription, job: Configuration) -> tuple[Query, Schema | None]:
    topic = one.query.topic
    if not job.topics:
        return one.query, None
    return one.within(job.topics), job.topics[topic].with_implicit()


def _in_short(one: Subscription, query: Query, schema: Schema | None) -> dict[str, Any]:
    asked = query.aggregate
    return {
        "subscription": one.name,
        "at": one.at,
        "topic": query.topic,
        "wants": _wants(query),
        "where": filter_sql(query.where, schema),
        "window": None if asked is None else _window_text(asked.window),
        "group keys": None if asked is None else list(asked.group_keys),
        "having": None if asked is None or asked.having is None else filter_sql(asked.having),
    }


def _wants(query: Query) -> list[str]:
    if query.aggregate is not None:
        return [
            output.name if output.name == str(output.measure) else f"{output.measure} AS {output.name}"
            for output in query.aggregate.outputs
        ]
    return ["every event, whole"] if query.columns is None else list(query.columns)


def _window_text(window: Window) -> str:
    return f"{window.kind}, {_duration(window.size_us)} every {_duration(window.shift_us)}"


def _window(window: Window) -> dict[str, Any]:
    most = len(window.windows_of(0))
    return {
        "kind": window.kind,
        "size": _duration(window.size_us),
        "shift": _duration(window.shift_us),
        "slices in a window": window.span,
        "slices in a shift": window.step,
        "windows an event is in": str(most) if window.step == 1 else f"up to {most}",
    }


def _duration(given_us: int) -> str:
    for unit, length_us in _UNITS:
        if given_us % length_us == 0:
            count = given_us // length_us
            return f"{count} {unit}{'s' * (count != 1)}"
    return f"{given_us} microseconds"


def _operators(asked: Aggregate, schema: Schema | None) -> list[dict[str, str]]:
    return [
        {
            "operator": str(measure),
            "class": measure.definition.category,
            "what travels": _travels(measure, schema),
        }
        for measure in asked.measures
    ]


def _travels(measure: Measure, schema: Schema | None) -> str:
    if measure.attribute is not None and schema is None:
        return f"depends on the type of {measure.attribute}"
    kind = Type.INT if measure.attribute is None or schema is None else schema[measure.attribute]
    return measure.state(kind).contents


def _relations(query: Query, others: Sequence[Subscription], job: Configuration) -> dict[str, Any]:
    """How the filter lies to those of the same topic, and who asks the same question already."""
    same_filter, shares, wider, narrower, meets = [], [], [], [], 0
    for other in others:
        its, _ = _meaning(other, job)
        if its.topic != query.topic:
            continue
        if its.where == query.where:
            same_filter.append(other.name)
            mine, theirs = query.aggregate, its.aggregate
            if (
                mine is not None
                and theirs is not None
                and (mine.window, mine.group_keys) == (theirs.window, theirs.group_keys)
            ):
                shares.append(other.name)
        elif its.where.covers(query.where):
            wider.append(other.name)
        elif query.where.covers(its.where):
            narrower.append(other.name)
        if its.where.overlaps(query.where):
            meets += 1
    return {
        "matches nothing": True if not query.where.disjuncts else None,
        "shares its question with": shares or None,
        "has the filter of": same_filter or None,
        "is covered by": wider or None,
        "covers": narrower or None,
        "overlaps": f"{meets} of {len(others)} configured" if others else None,
    }


def _cells(asked: Aggregate) -> tuple[Window, tuple[str, ...]]:
    return asked.window, asked.group_keys


_TRAVELLING = {
    "late": "publications",
    "early": "partials",
    "adaptive": "publications or partials, whichever were fewer lately,",
    "selective": "publications or partials, whichever were fewer lately for it,",
    "coordinated": "publications or partials, whichever were fewer lately on its whole way,",
    "cover": "the cheapest mix of publications and partials",
    "optimal": "the cheapest mix of publications and partials, known in hindsight,",
}


def _placed(asked: Subscription, query: Query, job: Configuration) -> dict[str, Any]:
    if job.overlay is None:
        return {"broker": "none: there is no overlay"}
    broker = asked.at if asked.at is not None else job.overlay.brokers[0]
    here = job.overlay.require(broker)
    hops = shortest_paths(job.overlay).distance[here]
    travelling = _TRAVELLING[job.options.placement] if query.aggregate is not None else "publications"
    return {
        "broker": broker,
        "neighbours": list(job.overlay.neighbours(broker)),
        "hops to the farthest broker": int(hops.max()),
        "under the placement": f"{job.options.placement}: {travelling} travel",
    }


def _engine(asked: Subscription, others: Sequence[Subscription], job: Configuration) -> dict[str, Any]:
    if not job.topics:
        return {}
    before = compile_plan([Active(one) for one in others], job.topics, job.overlay)
    after = compile_plan([Active(one) for one in (*others, asked)], job.topics, job.overlay)
    return {
        "questions": f"{len(after.questions)} with it, {len(before.questions)} without",
        "answered by": str(choose(after)).removeprefix("answered by "),
    }


def _sample(source: Source, count: int, master: str | None, steps: Steps) -> pa.Table:
    """Events from the beginning of a source; only files need Spark for that."""
    if isinstance(source, Generated):
        chunks = range(-(-count // source.chunk_events))
        return pa.concat_tables(chunk_of(source, number) for number in chunks).slice(0, count)
    if isinstance(source, Recorded):
        with steps.step("data read"):
            return source.load().events.slice(0, count)
    with steps.step("sample read"):
        spark = catchment.spark_session("catchment check", master=master)
        return open_batch(spark, source, rows_max=count).publications.toArrow()


def _selectivity(query: Query, events: pa.Table, schema: Schema) -> dict[str, Any]:
    typed = as_events(events, Schema({name: schema[name] for name in schema if name not in ("broker", "ts")}))
    typed = typed.filter(pc.equal(typed.column("topic"), query.topic))
    matched = np.zeros(typed.num_rows, np.bool_)
    matcher = catchment.Matcher({"asked": query.where}, schema)
    event_index, _ = matcher.match(typed)
    matched[np.asarray(event_index)] = True
    return {
        "sampled events of the topic": typed.num_rows,
        "matched": int(matched.sum()),
        "share": round(float(matched.mean()), 6) if len(matched) else None,
    }


def show_all(checked: Sequence[dict[str, Any]]) -> None:
    columns = ("subscription", "at", "wants", "where", "window")
    print_rows("Subscriptions", columns, [[one[name] for name in columns] for one in checked])


def show_checked(checked: dict[str, Any]) -> None:
    facts = {
        name: _few(value) for name, value in checked.items() if not isinstance(value, dict) and name != "operators"
    }
    print_facts(f"Subscription {checked['subscription']}", {k: v for k, v in facts.items() if v not in (None, [])})
    for name in ("window", "selectivity"):
        if isinstance(checked.get(name), dict):
            print_facts(name.capitalize(), checked[name])
    if checked.get("operators"):
        columns = ("operator", "class", "what travels")
        print_rows("Operators", columns, [[one[name] for name in columns] for one in checked["operators"]])


def _few(value: Any) -> Any:
    if isinstance(value, list) and len(value) > _SHOWN_MAX:
        return [*value[:_SHOWN_MAX], f"… ({len(value)} in all)"]
    return value
