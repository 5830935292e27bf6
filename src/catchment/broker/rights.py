"""Who may publish and subscribe to which topics: a table that a broker is handed as an input.

Rule 1: rights are those of a client's owner. The broker's own process, whose clients have no owner, may do everything.
Rule 2: without a table everybody may do everything; with one, whoever is not in it may do nothing.
Rule 3: a client that uses what its owner may no longer do is dropped, and told why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from catchment.broker.inputs import Allowed
from catchment.model.errors import ConfigurationError

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["Deed", "losers", "may", "require_right", "require_right_of"]

Deed = Literal["publish", "subscribe"]


def may(broker: Broker, client: str, deed: Deed, topic: str | None) -> bool:
    """Whether the owner of a client may do something with a topic; None is every topic."""
    peer = broker.peers.get(client)
    if broker.rights is None or peer is None or not peer.owner:
        return True
    allowed = broker.rights.get(peer.owner)
    return _topics(allowed, deed) is None if topic is None else _may(allowed, deed, topic)


def require_right(broker: Broker, client: str, deed: Deed, topic: str) -> None:
    """Refuse what the owner of a client may not do."""
    peer = broker.peers.get(client)
    owner = "" if peer is None else peer.owner
    if owner:
        require_right_of(owner, broker.rights, deed, topic)


def require_right_of(user: str, rights: Mapping[str, Allowed] | None, deed: Deed, topic: str) -> None:
    """Refuse what a user may not do by a table of rights."""
    if rights is not None and not _may(rights.get(user), deed, topic):
        allowed = ", ".join(sorted(_topics(rights.get(user), deed) or ())) or "no topics"
        raise ConfigurationError(f"user {user!r} may not {deed} to {topic!r}; accepted are {allowed}")


def losers(broker: Broker) -> Iterator[tuple[str, str]]:
    """Clients that use what their owners may not do, in the order of their names, and why."""
    if broker.rights is None:
        return
    used: dict[str, list[tuple[Deed, str]]] = {}
    for client in broker.clients:
        if client in broker.peers and broker.peers[client].owner:
            used[client] = [("publish", topic) for topic in sorted(broker.peers[client].topics)]
    for (client, _), known in sorted(broker.subscribed.items()):
        if client in used:
            used[client].append(("subscribe", known.topic))
    for client, deeds in sorted(used.items()):
        owner = broker.peers[client].owner
        allowed = broker.rights.get(owner)
        if allowed is None:
            yield client, f"user {owner!r} is not known any more"
        for deed, topic in deeds if allowed is not None else ():
            if not _may(allowed, deed, topic):
                yield client, f"user {owner!r} may not {deed} to {topic!r} any more"
                break


def _may(allowed: Allowed | None, deed: Deed, topic: str) -> bool:
    topics = _topics(allowed, deed)
    return topics is None or topic in topics


def _topics(allowed: Allowed | None, deed: Deed) -> tuple[str, ...] | None:
    if allowed is None:
        return ()
    return allowed.publishes if deed == "publish" else allowed.subscribes
