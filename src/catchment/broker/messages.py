"""What clients and brokers say to each other.

    client ─► broker     AdvertiseTopic UnadvertiseTopic SubscribeTo UnsubscribeFrom PublishEvents AdvanceTime AskAdvice
    broker ─► client     Acknowledged Refused Delivered Notified Informed Dropped
    broker ◄─► broker    TopicAdded Advertised Unadvertised Subscribed Published Confirmed RoomChanged AdviceMessage
    broker ─► history    Recorded

Rule 1: messages are frozen values; `str` of one is a line of a trace.
Rule 2: what an advice adds to a message travels under the advice's name, and nobody else reads it.
Rule 3: one link carries its messages in the order in which they were sent, control and events alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from catchment.broker.demands import Demand
from catchment.model.errors import UNREADABLE

__all__ = [
    "UNNUMBERED",
    "Acknowledged",
    "AdvanceTime",
    "AdvertiseTopic",
    "Advertised",
    "AdviceMessage",
    "AskAdvice",
    "Confirmed",
    "Delivered",
    "Dropped",
    "Extras",
    "ForClient",
    "Informed",
    "Message",
    "Notified",
    "PublishEvents",
    "Published",
    "Recorded",
    "Refused",
    "RoomChanged",
    "SubscribeTo",
    "Subscribed",
    "TopicAdded",
    "UnadvertiseTopic",
    "Unadvertised",
    "UnsubscribeFrom",
]

Extras = dict[str, bytes]
UNNUMBERED = 0
"""The number of a request that did not decode so far as to tell its number; no client gives it to any."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base of all messages."""


# -- client to broker -------------------------------------------------------------------------------------------------


class AdvertiseTopic(_Message, frozen=True):
    """A client will publish events of a topic."""

    request: int
    topic: str

    def __str__(self) -> str:
        return f"advertise {self.topic}"


class UnadvertiseTopic(_Message, frozen=True):
    """A client will publish no more events of a topic."""

    request: int
    topic: str

    def __str__(self) -> str:
        return f"unadvertise {self.topic}"


class SubscribeTo(_Message, frozen=True):
    """A client wants what some SQL asks for."""

    request: int
    name: str
    sql: str

    def __str__(self) -> str:
        return f"subscribe {self.name}: {self.sql}"


class UnsubscribeFrom(_Message, frozen=True):
    """A client wants no more of a subscription."""

    request: int
    name: str

    def __str__(self) -> str:
        return f"unsubscribe {self.name}"


class PublishEvents(_Message, frozen=True):
    """A client publishes events of a topic that it has advertised."""

    request: int
    topic: str
    events: pa.RecordBatch

    def __str__(self) -> str:
        return f"publish {self.topic} {_ids(self.events)}"


class AdvanceTime(_Message, frozen=True):
    """Event time has come so far at a client that has advertised a topic: what an event of that time would say."""

    request: int
    topic: str
    time_us: int

    def __str__(self) -> str:
        return f"advance {self.topic} to {self.time_us}"


class AskAdvice(_Message, frozen=True):
    """A client asks something of an advice of its broker."""

    request: int
    advice: str
    body: bytes

    def __str__(self) -> str:
        return f"ask {self.advice} {_readable(self.body)}"


# -- broker to client -------------------------------------------------------------------------------------------------


class Acknowledged(_Message, frozen=True):
    """A request has taken effect everywhere it must."""

    request: int
    dropped: tuple[str, ...] = ()
    """Ids of published events that came too late for windows that are closed: they went nowhere."""
    is_last: bool = True
    """Whether it answers the request: ids that do not fit into one message come in several, and the last one does."""

    def __str__(self) -> str:
        return f"acknowledged #{self.request}" + f" but for {' '.join(self.dropped)}" * bool(self.dropped)


class Refused(_Message, frozen=True):
    """A request has no effect, and why."""

    request: int
    reason: str
    retry_us: int = -1
    """After how long the same request may be accepted; -1 if it never will be."""

    def __str__(self) -> str:
        return f"refused #{self.request}: {self.reason}"


class Delivered(_Message, frozen=True):
    """Events for a client, each once, and which rows each of its subscriptions asked for."""

    topic: str
    events: pa.RecordBatch
    names: tuple[str, ...]
    """Subscriptions, rising."""
    ends: np.ndarray
    """Of each subscription, where its rows end."""
    rows: np.ndarray
    """Of `events`, rising within a subscription, one subscription behind the other."""

    @classmethod
    def of(cls, topic: str, events: pa.RecordBatch, wanted: Mapping[str, np.ndarray]) -> Delivered:
        """A delivery of rows by subscription."""
        names = sorted(wanted)
        ends = np.cumsum([len(wanted[name]) for name in names], dtype=np.int32)
        rows = np.concatenate([np.zeros(0, np.int32), *(wanted[name] for name in names)])
        return cls(topic, events, tuple(names), ends, rows)

    @property
    def wanted(self) -> dict[str, np.ndarray]:
        """By subscription, rows of `events`, rising."""
        ends = self.ends.tolist()
        return {name: self.rows[begin:end] for name, begin, end in zip(self.names, [0, *ends], ends, strict=False)}

    def __str__(self) -> str:
        ids = _all_ids(self.events)
        shown = (
            f"{name} {' '.join(str(ids[row]) for row in rows.tolist() if 0 <= row < len(ids))}"
            for name, rows in sorted(self.wanted.items())
        )
        return f"deliver {self.topic}: {'; '.join(shown)}"


class Notified(_Message, frozen=True):
    """Values of windows for a client, in the columns of `stages.ANSWER_SCHEMA`."""

    answers: pa.RecordBatch

    def __str__(self) -> str:
        shown = map(_window_value, self.answers.to_pylist())
        return f"notify {'; '.join(shown)}"


class Informed(_Message, frozen=True):
    """What an advice tells a client."""

    advice: str
    body: bytes

    def __str__(self) -> str:
        return f"inform {self.advice} {_readable(self.body)}"


class Dropped(_Message, frozen=True):
    """The client is no longer known to its broker: it has not read for too long, and is told how much it missed; or
    there is another reason."""

    frames: int
    reason: str = ""

    def __str__(self) -> str:
        return f"dropped, {self.reason or f'missed {self.frames} frames'}"


# -- broker to broker -------------------------------------------------------------------------------------------------


class TopicAdded(_Message, frozen=True):
    """There is a topic with these attributes, besides those that it had: what follows on this link may use them."""

    topic: str
    attributes: dict[str, str]

    def __str__(self) -> str:
        return f"TOPIC {self.topic} {' '.join(f'{name}:{kind}' for name, kind in self.attributes.items())}"


class Advertised(_Message, frozen=True):
    """There are publishers of a topic on the sender's side: the paper's AD."""

    topic: str
    change: int
    extras: Extras = {}

    def __str__(self) -> str:
        return f"AD {self.topic}{_extras(self.extras)}"


class Unadvertised(_Message, frozen=True):
    """There are none any more: UNAD."""

    topic: str
    change: int
    extras: Extras = {}

    def __str__(self) -> str:
        return f"UNAD {self.topic}{_extras(self.extras)}"


class Subscribed(_Message, frozen=True):
    """The demands of the sender's side have changed: the new SUB and the old UNSUB in one, added before dropped."""

    topic: str
    change: int
    added: tuple[Demand, ...]
    dropped: tuple[Demand, ...] = ()
    extras: Extras = {}

    def __str__(self) -> str:
        added = "".join(f" [{demand}]" for demand in self.added)
        dropped = "".join(f" [{demand}]" for demand in self.dropped)
        parts = [f"SUB {self.topic}{added}"] * bool(added) + [f"UNSUB {self.topic}{dropped}"] * bool(dropped)
        return f"{' '.join(parts) or f'SUB {self.topic}'}{_extras(self.extras)}"


class Published(_Message, frozen=True):
    """Events on their way: PUB."""

    topic: str
    events: pa.RecordBatch
    notes: pa.RecordBatch | None = None
    """What advice says of each event: columns named `advice/column`."""

    def __str__(self) -> str:
        names = () if self.notes is None else self.notes.schema.names
        return f"PUB {self.topic} {_ids(self.events)}{''.join(f' +{name}' for name in names)}"


class Confirmed(_Message, frozen=True):
    """All that a change of the receiver's set off has taken effect on the sender's side."""

    change: int

    def __str__(self) -> str:
        return f"CONFIRM {self.change}"


class RoomChanged(_Message, frozen=True):
    """Whether the sender's side has room for more events: while it has none, publishers are refused."""

    is_full: bool

    def __str__(self) -> str:
        return "FULL" if self.is_full else "ROOM"


class AdviceMessage(_Message, frozen=True):
    """A message of an advice to itself at a neighbour."""

    advice: str
    body: bytes
    change: int = 0
    """What the receiver has to confirm, if anything."""

    def __str__(self) -> str:
        return f"TELL {self.advice} {_readable(self.body)}"


# -- broker to its history --------------------------------------------------------------------------------------------


class Recorded(_Message, frozen=True):
    """Events that a broker has accepted from its clients, or a mark that a client has asked for."""

    number: int
    """How many events were recorded before."""
    latest_us: int
    """The latest time of all that were; `NEVER` if there were none."""
    topic: str = ""
    events: pa.RecordBatch | None = None
    mark: str = ""
    """Every event that was accepted before the mark was asked for is recorded before it, and no other."""

    def __str__(self) -> str:
        return f"record mark {self.mark}" if self.events is None else f"record {self.topic} {_ids(self.events)}"


ForClient = Acknowledged | Refused | Delivered | Notified | Informed
"""What a broker says to a client that is there."""

Message = (
    AdvertiseTopic | UnadvertiseTopic | SubscribeTo | UnsubscribeFrom | PublishEvents | AdvanceTime | AskAdvice
    | ForClient | Dropped
    | TopicAdded | Advertised | Unadvertised | Subscribed | Published | Confirmed | RoomChanged | AdviceMessage
    | Recorded
)  # fmt: skip


def _window_value(one: Mapping[str, Any]) -> str:
    window = f"[{_time_us(one['window_start'])}, {_time_us(one['window_end'])})"
    group = "".join(f" {key}={'null' if value is None else value}" for key, value in one["group"])
    revision = f" (revision {one['revision']})" if one["revision"] else ""
    return f"{one['subscription']} {window}{group} {one['output']} = {one['problem'] or one['exact']}{revision}"


def _time_us(time: Any) -> int:
    since: timedelta = time - _EPOCH
    return since // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _all_ids(events: pa.RecordBatch) -> list[Any]:
    return events.column("event_id").to_pylist() if "event_id" in events.schema.names else []


def _ids(events: pa.RecordBatch) -> str:
    ids = _all_ids(events)
    shown = [str(one) for one in ids[:8]]
    if not shown:
        return f"({events.num_rows} without id)"
    return " ".join(shown) + f" … ({len(ids)} in all)" * (len(ids) > len(shown))


def _extras(extras: Extras) -> str:
    return "".join(f" +{name}={_readable(body)}" for name, body in sorted(extras.items()))


def _no_extension(code: int, data: memoryview) -> Any:
    raise ValueError(f"{code} is no type of ours")


def _readable(body: bytes) -> str:
    try:
        value: Any = msgspec.msgpack.decode(body, ext_hook=_no_extension)
    except (*UNREADABLE, ValueError):
        return body[:16].hex()
    return str(value)[:80]
