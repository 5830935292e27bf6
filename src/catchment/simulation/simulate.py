"""`simulate`: what `replay` answers, hop by hop: real brokers in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from catchment.broker.advice import Advice
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Settings
from catchment.broker.client import WindowValue
from catchment.broker.hosting import Limits
from catchment.model.errors import ConfigurationError, SubscriptionError, require_type
from catchment.model.events import as_events, attribute_schema, problems
from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.model.schema import Schema
from catchment.model.subscription import Subscription, listed
from catchment.model.times import duration_us
from catchment.overlay import EdgeCounts, LinkCounts, Overlay, Tree, topic_tree, traffic_table
from catchment.overlay.placement import MESSAGES, VALUE_BYTES, Chosen, Cost
from catchment.simulation.options import CALM, Options
from catchment.simulation.world import World
from catchment.stages import PARTIAL_BYTES, broker_of

__all__ = ["Simulated", "simulate"]

BATCH_MAX = 1_000
ANSWERS_MS_MAX = 3_600_000
"""How long brokers may take to answer, in virtual time."""


UNLIMITED = Limits(link_bytes_max=2**62, client_bytes_max=2**62)
ADVICE_TRAFFIC_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("source", "target", "advice", "kind")),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
BEGIN_US = 60_000_000
"""When, after all subscriptions are there, the first event is published."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The results as Arrow tables, and the world they come from."""

    notifications: pa.Table
    """What aggregate subscriptions received, with all revisions."""
    overflows: pa.Table
    """subscription, window_start, window_end, group, output, problem: values beyond their type, reported instead."""
    deliveries: pa.Table
    """subscription, event_id: what regular subscriptions received."""
    traffic: pa.Table
    """source, target, kind, messages, bytes: what each directed link carried, and brokers told their clients."""
    advice_traffic: pa.Table
    """source, target, advice, kind, messages, bytes: what advice sent, by the kinds that it declares, and what rode
    `along` on messages that were sent anyway."""
    rejected: pa.Table
    """event_id, reason: events that no broker took, and why."""
    dropped: pa.Table
    """event_id, broker: events that came behind what their broker had promised."""
    transitions: int
    """How often brokers have changed between forwarding and aggregating."""
    world: World


def simulate(
    events: pa.Table,
    *,
    overlay: Overlay,
    subscriptions: Iterable[Subscription],
    placement: Chosen | str = "early",
    schema: Schema | Mapping[str, Any] | None = None,
    lateness: str = "0 seconds",
    delivery: Literal["final", "revisions"] = "final",
    idle_after: str = "10 seconds",
    sampling_period: str = "2 seconds",
    cost: Cost = MESSAGES,
    collection_delay: str | tuple[str, str] = ("10 milliseconds", "50 milliseconds"),
    forwarding: Literal["advertised", "flooded"] = "advertised",
    summary: Literal["bound", "covering", "each"] = "covering",
    advice: Iterable[Callable[[], Advice]] = (),
    options: Options = CALM,
    warm_up: str = "0 seconds",
    seed: int = 0,
) -> Simulated:
    """Publish events at their brokers, and collect what reaches the subscribers at theirs.

    All subscriptions are acknowledged before the first event. Each broker's events keep their order, and come at the
    times that they say, as far as these rise; at the end every window closes. `schema` is one schema, or one per topic;
    without it the columns say the types. `placement` is a name, or a class of `catchment.overlay.placement.Placement`;
    an adaptive one weighs messages by `cost`. With revisions, brokers collect partials for a `collection_delay`, always
    the same or between two bounds. `advice` has classes or functions that make more advice for each broker, attached
    behind aggregation in this order. What brokers do in a `warm_up`, after the first event, is no part of their load.
    """
    warm_up_us = duration_us(warm_up)
    if warm_up_us < 0:
        raise ConfigurationError(f"warm_up is {warm_up!r}; accepted is a duration from zero on")
    require_type("events", events, pa.Table, pa.RecordBatch)
    require_type("overlay", overlay, Overlay)
    require_type("options", options, Options)
    makers = _makers(advice)
    asked = listed(subscriptions)
    schemas, merged = _schemas(schema, events, asked)
    _check(asked, schemas)
    aggregating = AggregationOptions(
        placement=placement,
        delivery=delivery,
        lateness_us=duration_us(lateness),
        idle_after_us=duration_us(idle_after),
        sampling_period_us=duration_us(sampling_period),
        cost=cost,
        collection_us=_collection_us(collection_delay),
    )
    table = as_events(events, merged).combine_chunks()
    known = schemas if schema is not None and not isinstance(schema, Schema) else None
    wrong = problems(table, known, overlay.brokers)
    rejected = pa.table({"event_id": table.column("event_id"), "reason": wrong or pa.nulls(len(table), pa.string())})
    accepted = table if wrong is None else table.filter(wrong.is_null())
    settings = Settings(
        schemas=schemas, forwarding=forwarding, summary=summary, remembered_max=max(len(table), 1), meters=True
    )
    # Nobody crashes in here, so nobody has to be brought back.
    options = replace(options, snapshot_every=None, limits=UNLIMITED)
    world = World(
        overlay,
        settings,
        options=options,
        seed=seed,
        make_advice=lambda: [Aggregation(aggregating), *(make() for make in makers)],
        records=False,
        epoch_us=_first_us(accepted) - BEGIN_US,
    )
    for one in asked:
        broker = overlay.brokers[broker_of(one, overlay)]
        client = world.clients.get(f"{broker}/subscriptions") or world.client(broker, "subscriptions")
        world.subscribe(client, one.name, one.sql)
    world.run()
    for client in world.clients.values():
        for request in client.requests:
            if request.refused is not None:
                raise SubscriptionError(request.refused)
    _publish(world, accepted, schemas, warm_up_us)
    for node in world.nodes.values():
        for failed in node.broker.failures:
            raise ConfigurationError(
                f"advice {failed.advice!r} failed in {failed.where} at {node.name}: {failed.error}"
            )
        for raised in node.broker.input_failures:
            raise ConfigurationError(f"broker {node.name} failed on {raised.where}: {raised.error}")
    return Simulated(
        notifications=_notifications(world),
        overflows=_overflows(world),
        deliveries=_deliveries(world, accepted.column("event_id")),
        traffic=_traffic(world),
        advice_traffic=_advice_traffic(world),
        rejected=rejected.filter(rejected.column("reason").is_valid()),
        dropped=_dropped(world, accepted),
        transitions=world.tally.transitions,
        world=world,
    )


def _makers(given: Any) -> list[Callable[[], Advice]]:
    if not isinstance(given, Iterable):
        raise ConfigurationError(f"advice is of type {type(given).__qualname__}; accepted is a list of functions")
    found = list(given)
    for make in found:
        if not callable(make):
            raise ConfigurationError(f"one of advice is {make!r}; accepted are functions that make an advice")
        require_type("what one of advice makes", make(), Advice)
    return found


def _schemas(
    given: Schema | Mapping[str, Any] | None, events: pa.Table, asked: list[Subscription]
) -> tuple[dict[str, Schema], Schema]:
    """The schema of each topic, and one of all columns."""
    if given is not None and not isinstance(given, Schema):
        schemas = {topic: Schema.of(one) for topic, one in given.items()}
        return schemas, Schema({name: one[name] for one in schemas.values() for name in one})
    one = given or attribute_schema(events.schema)
    topics = {*events.column("topic").drop_null().unique().to_pylist(), *(each.query.topic for each in asked)}
    return dict.fromkeys(sorted(topics), one), one


def _check(asked: list[Subscription], schemas: Mapping[str, Schema]) -> None:
    names: set[str] = set()
    for one in asked:
        one.within(schemas)
        if one.name in names:
            raise SubscriptionError(f"two subscriptions are named {one.name!r}; each name is accepted once")
        names.add(one.name)


def _collection_us(given: str | tuple[str, str]) -> int | tuple[int, int]:
    if isinstance(given, str):
        return duration_us(given)
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigurationError(f"collection_delay is {given!r}; accepted is a duration, or a pair of them")
    return duration_us(given[0]), duration_us(given[1])


def _first_us(events: pa.Table) -> int:
    return int(events.column("ts").cast(pa.int64())[0].as_py()) if len(events) else 0


def _publish(world: World, events: pa.Table, schemas: Mapping[str, Schema], warm_up_us: int) -> None:
    """Advertise, publish everything at its time, and take the advertisements back.

    Numbers stand in for ids, which the table may repeat or have as integers.
    """
    for broker, topic, _ in _batches(events):
        name = f"{broker}/publications"
        client = world.clients.get(name) or world.client(broker, "publications")
        if topic not in {one.message.topic for one in client.requests}:
            world.advertise(client, topic)
    world.run()
    first_us, begin_us = _first_us(events), max(world.timeline.now_us, BEGIN_US)
    now_us = begin_us
    # What brokers took to hear of everyone, and to learn, says nothing of what events cost.
    world.timeline.at(begin_us + warm_up_us, partial(_forget_load, world))
    columns = {name: events.column(name).combine_chunks() for name in events.column_names}
    columns["event_id"] = pa.array(range(len(events))).cast(pa.string())
    as_sent = {
        topic: pa.RecordBatch.from_pydict(
            {name: column for name, column in columns.items() if name in schema or name in ("event_id", "ts")}
        )
        for topic, schema in schemas.items()
    }
    times_us = columns["ts"].cast(pa.int64()).to_numpy()
    for broker, topic, rows in _batches(events):
        now_us = max(now_us, begin_us + int(times_us[rows[0]]) - first_us)
        sent = as_sent[topic].slice(rows[0], len(rows))
        world.timeline.at(now_us, partial(world.publish, world.clients[f"{broker}/publications"], topic, sent))
    world.run(now_us)
    for _ in range(ANSWERS_MS_MAX):
        if all(one.answered_us is not None for client in world.clients.values() for one in client.requests):
            break
        world.run(world.timeline.now_us + 1_000)
    for client in world.clients.values():
        for request in client.requests:
            answered = request.answered_us is not None and request.refused is None
            assert answered, f"{client.name} asked {request.message}: {request.refused or 'never answered'}"
    # The input has ended: no more events will come from anyone.
    for client in list(world.clients.values()):
        for topic in sorted(client.advertised):
            world.unadvertise(client, topic)
    world.run()


def _forget_load(world: World) -> None:
    for node in world.nodes.values():
        node.load_us.clear()
        node.cpu_s = 0.0


def _batches(events: pa.Table) -> Iterator[tuple[str, str, list[int]]]:
    """Rows that follow each other, come from one broker and topic, and are published at one time."""
    latest = np.maximum.accumulate(events.column("ts").cast(pa.int64()).to_numpy()).tolist()
    places = zip(events.column("broker").to_pylist(), events.column("topic").to_pylist(), latest, strict=True)
    for (broker, topic, _), found in groupby(enumerate(places), key=lambda pair: pair[1]):
        rows = [row for row, _ in found]
        for begin in range(0, len(rows), BATCH_MAX):
            yield broker, topic, rows[begin : begin + BATCH_MAX]


def _deliveries(world: World, ids: pa.ChunkedArray) -> pa.Table:
    wishes = [wish for client in world.clients.values() for wish in client.all_wishes]
    names = [wish.name for wish in wishes for _ in wish.received]
    rows = [int(number) for wish in wishes for number in wish.received]
    return pa.table({"subscription": pa.array(names, pa.string()), "event_id": ids.take(pa.array(rows, pa.int64()))})


def _dropped(world: World, events: pa.Table) -> pa.Table:
    rows = [
        int(number) for client in world.clients.values() for request in client.requests for number in request.dropped
    ]
    return events.select(["event_id", "broker"]).take(pa.array(sorted(rows), pa.int64()))


def _notifications(world: World) -> pa.Table:
    rows = [
        {
            **_place(one),
            "value": one.value,
            "exact": one.exact,
            "publications": one.publications,
            "revision": one.revision,
        }
        for one in _values(world)
        if one.problem is None
    ]
    return pa.Table.from_pylist(rows, NOTIFICATION_SCHEMA)


def _overflows(world: World) -> pa.Table:
    rows = [{**_place(one), "problem": one.problem} for one in _values(world) if one.problem is not None]
    return pa.Table.from_pylist(rows, OVERFLOW_SCHEMA)


def _values(world: World) -> Iterator[WindowValue]:
    return (one for client in world.clients.values() for wish in client.all_wishes for _, one in wish.values)


def _place(one: WindowValue) -> dict[str, Any]:
    return {
        "subscription": one.subscription,
        "window_start": one.start_us,
        "window_end": one.end_us,
        "group": sorted(one.group.items()),
        "output": one.output,
    }


def _traffic(world: World) -> pa.Table:
    tree = topic_tree(world.overlay)
    counted = {kind: LinkCounts.none(len(tree.links)) for kind in ("publications", "partials", "control")}
    places = {link: place for place, link in enumerate(tree.link_names)}
    for (source, target, kind), (messages, size) in world.tally.carried.items():
        # What advice declares as a kind of its own is control to everybody else.
        counts, place = counted.get(kind, counted["control"]), places[source, target]
        counts.messages[place] += messages
        counts.bytes[place] += size
    return traffic_table(
        tree,
        publications=counted["publications"],
        partials=counted["partials"],
        control=counted["control"],
        notifications=_told(world, tree),
    )


def _advice_traffic(world: World) -> pa.Table:
    rows = [
        dict(zip(ADVICE_TRAFFIC_SCHEMA.names, (*key, *carried), strict=True))
        for key, carried in sorted(world.tally.carried_by_advice.items())
    ]
    return pa.Table.from_pylist(rows, ADVICE_TRAFFIC_SCHEMA)


def _told(world: World, tree: Tree) -> EdgeCounts:
    """What brokers have told their clients of windows: a message for each, with all its outputs."""
    messages, size = (np.zeros(len(tree.brokers), np.int64) for _ in range(2))
    for client in world.clients.values():
        broker = tree.brokers.index(client.broker)
        for wish in client.all_wishes:
            windows = {(one.start_us, *sorted(one.group.items()), one.revision) for _, one in wish.values}
            messages[broker] += len(windows)
            size[broker] += len(windows) * PARTIAL_BYTES + len(wish.values) * VALUE_BYTES
    return EdgeCounts(messages, size)
