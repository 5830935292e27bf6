"""All that a broker must remember, as bytes: a broker made from them goes on as if nothing had happened.

Called by the host of a broker: `remembered` now and then, `recalled` after a crash, when what came since is handed to
the broker again. The same input gives the same frames with the same numbers, and receivers know them already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from catchment.broker.advice import NO_CATALOGUE, Advice, Catalogue, KnownSubscription
from catchment.broker.broker import Broker, Settings, Waiting
from catchment.broker.frames import FrameReader, FrameWriter
from catchment.broker.ingress import DEDUPLICATION_US
from catchment.broker.messages import Acknowledged, Confirmed, Told
from catchment.broker.peers import Peer
from catchment.broker.recent_ids import RecentIds
from catchment.broker.routing import Routes
from catchment.broker.store import StoreRequest
from catchment.broker.unclaimed import UnclaimedMessage
from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import CheckpointError

__all__ = ["recalled", "remembered"]

FORMAT = 4


def remembered(broker: Broker) -> bytes:
    open_requests = broker.weaver.requests.open.values()
    plain = {
        "format": FORMAT,
        "name": broker.name,
        "incarnation": broker.incarnation,
        "neighbours": broker.neighbours,
        "now_us": broker.now_us,
        "position": broker.position,
        "is full": broker.is_full,
        "counters": dict(broker.counters),
        "peers": {name: _peer(peer) for name, peer in broker.peers.items()},
        "clients": sorted(broker.clients),
        "subscribed": [[*key, *known] for key, known in broker.subscribed.items()],
        "waiting": [
            [one.peer, msgspec.msgpack.encode(one.answer), sorted(one.needs), one.subscription]
            for one in broker.waiting
        ],
        "topics": {topic: _routes(routes) for topic, routes in broker.topics.items()},
        "ingress": [broker.ingress.sequence, broker.ingress.repeated, list(broker.ingress.recent.frozen().pieces())],
        "attached advice": broker.weaver.names,
        "removed advice": sorted(broker.weaver.removed),
        "advice": broker.weaver.states,
        "saved by advice": broker.weaver.saved(),
        "timers": [[*key, at_us] for key, at_us in broker.weaver.timers.items()],
        "requests": [
            broker.weaver.requests.last,
            [[advice, one] for advice, one in open_requests],
        ],
        "requests as clients": broker.weaver.rounds.numbers,
        "unclaimed": [
            [one.until_us, one.sender, msgspec.msgpack.encode(one.message)] for one in broker.weaver.unclaimed.messages
        ],
    }
    return msgspec.msgpack.encode(plain)


def recalled(
    data: bytes,
    settings: Settings,
    advice: Iterable[Advice] = (),
    *,
    catalogue: Catalogue = NO_CATALOGUE,
) -> Broker:
    """The broker that `remembered` was given, with the same settings, advice from the beginning, and catalogue.

    What was attached while it ran is made anew from the catalogue; what was removed stays so.
    """
    plain: dict[str, Any] = msgspec.msgpack.decode(data)
    if plain.get("format") != FORMAT:
        raise CheckpointError(f"a broker's memory has the format {plain.get('format')}; accepted is {FORMAT}")
    broker = Broker(
        plain["name"],
        plain["neighbours"],
        settings,
        _advice(plain, {one.name: one for one in advice}, catalogue),
        catalogue=catalogue,
        incarnation=plain["incarnation"],
    )
    broker.now_us, broker.position = plain["now_us"], plain["position"]
    broker.is_full = plain["is full"]
    broker.counters = Counter(plain["counters"])
    broker.peers = {name: _peer_from(peer) for name, peer in plain["peers"].items()}
    broker.clients = set(plain["clients"])
    broker.subscribed = {
        (client, name): KnownSubscription(topic, sql) for client, name, topic, sql in plain["subscribed"]
    }
    broker.waiting = [
        Waiting(peer, _answers.decode(answer), {(neighbour, change) for neighbour, change in needs}, subscription)
        for peer, answer, needs, subscription in plain["waiting"]
    ]
    for topic, routes in plain["topics"].items():
        _recall_routes(broker.routes(topic), routes)
    broker.ingress.sequence, broker.ingress.repeated, ids = plain["ingress"]
    broker.ingress.recent = RecentIds.restored(DEDUPLICATION_US, ids)
    broker.weaver.states.update(plain["advice"])
    broker.weaver.restore(plain["saved by advice"])
    broker.weaver.timers = {(name, key): at_us for name, key, at_us in plain["timers"]}
    last, open_requests = plain["requests"]
    asked = [(name, msgspec.convert(request, StoreRequest)) for name, request in open_requests]
    broker.weaver.requests.recall(last, {request.number: (name, request) for name, request in asked})
    broker.weaver.removed = set(plain["removed advice"])
    broker.weaver.rounds.numbers = plain["requests as clients"]
    for until_us, sender, message in plain["unclaimed"]:
        broker.weaver.unclaimed.recall(UnclaimedMessage(until_us, sender, _messages.decode(message)))
    return broker


def _advice(plain: Mapping[str, Any], given: Mapping[str, Advice], catalogue: Catalogue) -> list[Advice]:
    """What was attached, in its order, and what is new since then."""
    found = []
    for name in plain["attached advice"]:
        if name not in given and name not in catalogue:
            known = ", ".join(sorted({*given, *catalogue})) or "none"
            raise CheckpointError(f"a broker's memory has the advice {name!r}; given are {known}")
        found.append(given[name] if name in given else catalogue[name]())
    known_names = {*plain["attached advice"], *plain["removed advice"]}
    return found + [one for name, one in given.items() if name not in known_names]


_messages = msgspec.msgpack.Decoder(Told)
_answers = msgspec.msgpack.Decoder(Acknowledged | Confirmed)


def _peer(peer: Peer) -> list[Any]:
    schemas = [schema.serialize().to_pybytes() for schema in peer.reader.schemas.values()]
    marks = [peer.is_full, peer.says_full, peer.told_full, peer.is_parked]
    numbers = [peer.incarnation, peer.received, peer.sent, peer.changes]
    return [
        numbers, marks, peer.owner, [*peer.reader.schemas], schemas, sorted(peer.writer.named),
        sorted(peer.unconfirmed), peer.topics,
    ]  # fmt: skip


def _peer_from(plain: list[Any]) -> Peer:
    (incarnation, received, sent, changes), marks, owner, names, schemas, named, unconfirmed, topics = plain
    known = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in schemas]
    reader = FrameReader(dict(zip(names, known, strict=True)))
    peer = Peer(incarnation, received, sent, reader, FrameWriter(set(named)), changes, set(unconfirmed))
    peer.is_full, peer.says_full, peer.told_full, peer.is_parked = marks
    peer.owner, peer.topics = owner, topics
    return peer


def _routes(routes: Routes) -> list[Any]:
    return [
        sorted(routes.advertisers),
        sorted(routes.advertised_to),
        {peer: [filter_to_plain(one) for one in filters] for peer, filters in routes.wanted.items()},
        [[*key, filter_to_plain(where), columns] for key, (where, columns) in routes.subscriptions.items()],
        {peer: [filter_to_plain(one) for one in summary.told] for peer, summary in routes.summaries.items()},
        [[*key, filter_to_plain(condition)] for key, condition in routes.watched.items()],
    ]


def _recall_routes(routes: Routes, plain: list[Any]) -> None:
    advertisers, advertised_to, wanted, subscriptions, told, watched = plain
    routes.advertisers, routes.advertised_to = set(advertisers), set(advertised_to)
    routes.recall(
        {peer: [filter_from_plain(one) for one in filters] for peer, filters in wanted.items()},
        {
            (client, name): (filter_from_plain(where), None if columns is None else tuple(columns))
            for client, name, where, columns in subscriptions
        },
        {peer: tuple(filter_from_plain(one) for one in filters) for peer, filters in told.items()},
        {(advice, number): filter_from_plain(condition) for advice, number, condition in watched},
    )
