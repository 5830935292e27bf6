"""What an overlay is, stored where its brokers and clients find it: brokers, links, topics, how they aggregate.

Rule 1: an overlay has one description. A broker that was told another one does not start.
Rule 2: topics are only ever added, and placements changed, by test-and-set. All brokers begin with the first ones; what
        is changed reaches each as an input, so that one that goes over its inputs again knows what it knew then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from catchment.broker.advice import Advice
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Settings
from catchment.broker.gateway import Gateway, GatewayOptions
from catchment.broker.history import History
from catchment.broker.interest import Interest
from catchment.broker.limits import DEFAULT_LIMITS, ClientLimits
from catchment.broker.topics import PlainTopics, extended, plain
from catchment.model.errors import UNREADABLE, ConfigurationError, TransportError
from catchment.model.schema import Schema
from catchment.overlay import Overlay, topic_tree
from catchment.overlay.placement import MESSAGES, ONLINE, Cost
from catchment.transport.buckets import Bucket
from catchment.transport.context import CLIENT_LEASE_US, CLIENT_RETENTION_US, LiveOptions
from catchment.transport.history import Kept
from catchment.transport.jetstream import JetStream, WrongPositionError

__all__ = ["BUCKET", "DURABILITIES", "KEY", "Description"]

DURABILITIES = ("process", "disk")
BUCKET, KEY = "catchment_overlay", "description"


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """All that brokers of one overlay agree on, in plain values."""

    version: int = 1
    brokers: list[str]
    links: list[list[str]]
    topics: dict[str, dict[str, str]]
    """Those that brokers begin with."""
    added: dict[str, dict[str, str]] = {}
    """Topics and attributes that were added since."""
    placement: str = "early"
    """Of topics that were not given another one."""
    placements: dict[str, str] = {}
    """By topic, those that were given while the overlay ran."""
    delivery: str = "final"
    lateness_us: int = 0
    idle_after_us: int = 10_000_000
    sampling_period_us: int = 2_000_000
    cost: dict[str, float] = {}
    gateway_lease_us: int = GatewayOptions().lease_us
    history_keep_us: int = 0
    """How far the histories of brokers reach back; 0 if there are none."""
    history_bytes_max: int = -1
    durability: str = "process"
    """What an acknowledged event survives: the crash of any process, or with "disk" of the machine as well."""
    limits: ClientLimits = DEFAULT_LIMITS
    client_lease_us: int = CLIENT_LEASE_US
    client_retention_us: int = CLIENT_RETENTION_US

    def __post_init__(self) -> None:
        if self.durability not in DURABILITIES:
            raise ConfigurationError(f"durability is {self.durability!r}; accepted are {' and '.join(DURABILITIES)}")
        for name in sorted(self.cost.keys() - Cost.__dataclass_fields__.keys()):
            raise ConfigurationError(f"a cost is of {name!r}; accepted are {', '.join(Cost.__dataclass_fields__)}")

    @classmethod
    def of(
        cls,
        overlay: Overlay,
        topics: Mapping[str, Schema],
        how: AggregationOptions,
        gateway: GatewayOptions | None = None,
        history: Kept | None = None,
        **more: Any,
    ) -> Description:
        """`more` has the other fields, as they are named here."""
        if not isinstance(how.placement, str):
            raise ConfigurationError(f"placement is {how.placement!r}; accepted is the name of one")
        return cls(
            brokers=list(overlay.brokers),
            links=[list(link) for link in overlay.links],
            topics=plain(dict(sorted(topics.items()))),
            placement=how.placement,
            delivery=how.delivery,
            lateness_us=how.lateness_us,
            idle_after_us=how.idle_after_us,
            sampling_period_us=how.sampling_period_us,
            cost={name: getattr(how.cost, name) for name in Cost.__dataclass_fields__},
            gateway_lease_us=(gateway or GatewayOptions()).lease_us,
            history_keep_us=0 if history is None else history.keep_us,
            history_bytes_max=-1 if history is None else history.bytes_max,
            **more,
        )

    @property
    def overlay(self) -> Overlay:
        return Overlay(tuple(self.brokers), tuple((one, other) for one, other in self.links))

    @property
    def schemas(self) -> dict[str, Schema]:
        """All topics that there are."""
        first = self.settings.schemas
        return {**first, **extended(first, self.added)}

    @property
    def known_topics(self) -> dict[str, dict[str, str]]:
        """All topics that there are, in plain values."""
        return plain(self.schemas)

    @property
    def settings(self) -> Settings:
        """What brokers begin with."""
        return Settings(schemas={topic: Schema.of(of) for topic, of in self.topics.items()}, limits=self.limits)

    @property
    def options(self) -> LiveOptions:
        """How the process of a broker behaves."""
        return LiveOptions(
            client_lease_us=self.client_lease_us,
            client_retention_us=self.client_retention_us,
            history=self.history,
        )

    @property
    def history(self) -> Kept | None:
        """How much the histories of brokers keep; None if there are none."""
        if not self.history_keep_us:
            return None
        return Kept(keep_us=self.history_keep_us, bytes_max=self.history_bytes_max)

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """Of a broker in the tree that messages follow."""
        self.overlay.require(broker)
        return tuple(sorted(target for source, target in topic_tree(self.overlay).link_names if source == broker))

    def advice(self) -> list[Advice]:
        """What a broker begins with."""
        how = AggregationOptions(
            placement=self.placement,
            delivery=self.delivery,  # type: ignore[arg-type]
            lateness_us=self.lateness_us,
            idle_after_us=self.idle_after_us,
            sampling_period_us=self.sampling_period_us,
            cost=Cost(**self.cost) if self.cost else MESSAGES,
        )
        gateway = Gateway(GatewayOptions(lease_us=self.gateway_lease_us))
        recording: list[Advice] = [History()] if self.history is not None else []
        return [*recording, Aggregation(how), gateway, Interest()]

    async def store(self, streams: JetStream) -> Description:
        """Store this description, or add its topics to the one that is there; the one that is there then.

        Another one that is there is a ConfigurationError. What it has besides, because it was added, stays.
        """
        return await _changed(streams, lambda there: self if there is None else there._joined_by(self))

    @classmethod
    async def add_topics(cls, streams: JetStream, topics: PlainTopics) -> Description:
        """Add topics and attributes to the description that is there; the one that is there then."""

        def grown(there: Description | None) -> Description:
            return _required(there)._with_topics(topics)

        return await _changed(streams, grown)

    @classmethod
    async def place(cls, streams: JetStream, topic: str, placement: str) -> Description:
        """Give a topic of the description that is there another placement; the one that is there then."""

        def placed(there: Description | None) -> Description:
            return _required(there)._with_placement(topic, placement)

        return await _changed(streams, placed)

    def _with_placement(self, topic: str, placement: str) -> Description:
        if topic not in self.schemas:
            raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(self.schemas))}")
        if placement not in ONLINE:
            raise ConfigurationError(f"placement is {placement!r}; accepted are {', '.join(ONLINE)}")
        return msgspec.structs.replace(self, placements={**self.placements, topic: placement})

    def _joined_by(self, other: Description) -> Description:
        """This description with the topics of another one that says the same of all else."""
        for name in self.__struct_fields__:
            if name not in _GROWING and getattr(self, name) != getattr(other, name):
                raise ConfigurationError(
                    f"the server has another overlay: {name} is {getattr(self, name)} there, and "
                    f"{getattr(other, name)} here; accepted is the same, or another server"
                )
        return self._with_topics(other.known_topics)

    def _with_topics(self, topics: PlainTopics) -> Description:
        news = extended(self.schemas, topics)
        added = dict(self.added)
        for topic, schema in plain(news).items():
            first = self.topics.get(topic, {})
            added[topic] = {name: kind for name, kind in schema.items() if name not in first}
        return msgspec.structs.replace(self, added=added)

    @classmethod
    async def read(cls, streams: JetStream) -> Description:
        """The description that is there."""
        entry = await Bucket(streams, BUCKET).read(KEY)
        return _required(None if entry.value is None else cls.from_bytes(entry.value))

    @classmethod
    def from_bytes(cls, data: bytes) -> Description:
        """The description that was stored as these bytes; anything else is a TransportError."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except UNREADABLE as error:
            raise TransportError(f"the server's description of its overlay does not decode: {error}") from None
        if found.version != 1:
            raise TransportError(f"the server's overlay is described in version {found.version}; accepted is 1")
        return found


_GROWING = ("topics", "added", "placements")


def _required(found: Description | None) -> Description:
    if found is None:
        raise TransportError("the server has no overlay; start one with `catchment up` or `catchment broker`")
    return found


async def _changed(streams: JetStream, change: Callable[[Description | None], Description]) -> Description:
    """Store what a change makes of the description that is there, unless that is the same."""
    bucket = Bucket(streams, BUCKET)
    await bucket.create()
    while True:
        entry = await bucket.read(KEY)
        there = None if entry.value is None else Description.from_bytes(entry.value)
        wanted = change(there)
        if wanted == there:
            return wanted
        try:
            await bucket.write(KEY, msgspec.json.encode(wanted), entry.version)
        except WrongPositionError:
            continue
        return wanted
