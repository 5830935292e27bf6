"""Clients come, are away and back, and go.

Rule 1: only its owner resumes a client or begins another life of it.
Rule 2: what a client wanted and advertised goes with it.
Rule 3: a client that is dropped hears why, as the last of all that it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catchment.broker import messages as m
from catchment.broker.advice import OWN
from catchment.broker.frames import FrameWriter
from catchment.broker.inputs import TAKEN, Attached, Detached, Outcome, Overrun, Parked, Resumed, Rights, Unreadable
from catchment.broker.limits import require_name, shortened
from catchment.broker.peers import Peer
from catchment.broker.rights import losers
from catchment.model.errors import ConfigurationError

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["HANDLERS"]


def _attach(broker: Broker, item: Attached) -> Outcome:
    if item.client in broker.neighbours or item.client == broker.name:
        raise ConfigurationError(f"{item.client!r} is the name of a broker; accepted are other names")
    require_name("a client", item.client)
    if item.client.startswith(OWN):
        raise ConfigurationError(f"a client is named {item.client!r}; accepted are names without {OWN!r} in front")
    before = broker.peers.get(item.client)
    if before is not None:
        if item.incarnation == before.incarnation:
            return Outcome("repeated")
        if item.incarnation < before.incarnation:
            raise ConfigurationError(
                f"client {item.client!r} is in its life {before.incarnation}; accepted are later ones"
            )
        if item.owner != before.owner:
            raise ConfigurationError(f"client {item.client!r} does not belong to {item.owner!r}")
        _detach(broker, Detached(item.client))
    broker.admit_client(item.client, Peer(item.incarnation, owner=item.owner, is_durable=item.durable))
    broker.weaver.happened("on_client_attached", item.client)
    return TAKEN


def _park(broker: Broker, item: Parked) -> Outcome:
    peer = _client(broker, item.client, item.incarnation)
    if peer.is_parked:
        return Outcome("repeated", f"client {item.client!r} is parked already")
    peer.is_parked, peer.parked_us = True, broker.now_us
    broker.weaver.happened("on_client_parked", item.client)
    return TAKEN


def _resume(broker: Broker, item: Resumed) -> Outcome:
    peer = _client(broker, item.client)
    if item.owner != peer.owner:
        raise ConfigurationError(f"client {item.client!r} does not belong to {item.owner!r}")
    if not peer.is_parked:
        raise ConfigurationError(f"client {item.client!r} is not parked; accepted are clients that are")
    if item.incarnation < peer.incarnation:
        raise ConfigurationError(
            f"client {item.client!r} was in its life {peer.incarnation}; accepted are that and later ones"
        )
    peer.is_parked = False
    if item.incarnation > peer.incarnation:
        peer.begin(item.incarnation)
        # Whoever it is now knows none of the schemas that were named before.
        peer.writer = FrameWriter()
    broker.weaver.happened("on_client_resumed", item.client)
    return TAKEN


def _detach(broker: Broker, item: Detached) -> Outcome:
    _client(broker, item.client, item.incarnation)
    broker.drop_client(item.client)
    broker.weaver.happened("on_client_detached", item.client)
    return TAKEN


def _overrun(broker: Broker, item: Overrun) -> Outcome:
    """Drop a client for whom too much waits; that is the last it hears, behind the answers of this step."""
    # Events may be of a schema that was named in a frame that it missed.
    answers = [one for one in broker.said_to(item.client) if isinstance(one, (m.Acknowledged, m.Refused))]
    _dismiss(broker, item.client, answers, m.Dropped(item.frames))
    return TAKEN


def _refuse_unreadable(broker: Broker, item: Unreadable) -> Outcome:
    _client(broker, item.client)
    broker.send(item.client, m.Refused(m.UNNUMBERED, shortened(item.reason)))
    return Outcome("refused", item.reason)


def _change_rights(broker: Broker, item: Rights) -> Outcome:
    """Take a new table of rights; who uses what it may no longer do hears that, behind all that it was sent."""
    broker.rights = item.users
    for client, reason in list(losers(broker)):
        _dismiss(broker, client, broker.said_to(client), m.Dropped(0, reason))
    return TAKEN


def _dismiss(broker: Broker, client: str, kept: Sequence[m.Message], last: m.Dropped) -> None:
    peer = _client(broker, client)
    _detach(broker, Detached(client))
    broker.let_leave(client, peer, kept, last)


def _client(broker: Broker, name: str, incarnation: int = 0) -> Peer:
    """A client that is there, in a certain life if one is given."""
    if name not in broker.clients or name.startswith(OWN):
        known = ", ".join(sorted(one for one in broker.clients if not one.startswith(OWN))) or "none"
        raise ConfigurationError(f"no client {name!r} is at broker {broker.name!r}; there are {known}")
    if incarnation not in (0, broker.peers[name].incarnation):
        raise ConfigurationError(
            f"client {name!r} is in its life {broker.peers[name].incarnation}; accepted is that, not {incarnation}"
        )
    return broker.peers[name]


HANDLERS: Mapping[type, Callable[[Broker, Any], Outcome]] = {
    Attached: _attach,
    Parked: _park,
    Resumed: _resume,
    Detached: _detach,
    Overrun: _overrun,
    Unreadable: _refuse_unreadable,
    Rights: _change_rights,
}
