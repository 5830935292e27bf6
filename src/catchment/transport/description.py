"""What an overlay is, stored where its brokers and clients find it: brokers, links, topics, how they aggregate.

Rule 1: an overlay has one description. A broker that was told another one does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from catchment.broker.advice import Advice
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Settings
from catchment.broker.gateway import Gateway, GatewayOptions
from catchment.broker.history import History
from catchment.broker.limits import DEFAULT_LIMITS, ClientLimits
from catchment.model.errors import UNREADABLE, ConfigurationError, TransportError
from catchment.model.schema import Schema
from catchment.overlay import Overlay, topic_tree
from catchment.overlay.placement import MESSAGES, Cost
from catchment.transport.buckets import Bucket
from catchment.transport.context import CLIENT_LEASE_US, CLIENT_RETENTION_US, LiveOptions
from catchment.transport.history import Kept
from catchment.transport.jetstream import JetStream, WrongPositionError

__all__ = ["DURABILITIES", "Description"]

DURABILITIES = ("process", "disk")
BUCKET, KEY = "catchment_overlay", "description"


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """All that brokers of one overlay agree on, in plain values."""

    version: int = 1
    brokers: list[str]
    links: list[list[str]]
    topics: dict[str, dict[str, str]]
    placement: str = "early"
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
            topics={topic: {name: schema[name].value for name in schema} for topic, schema in sorted(topics.items())},
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
        return {topic: Schema.of(attributes) for topic, attributes in self.topics.items()}

    @property
    def settings(self) -> Settings:
        return Settings(schemas=self.schemas, limits=self.limits)

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
        return [*recording, Aggregation(how), gateway]

    async def store(self, streams: JetStream) -> None:
        """Store this description, unless it is there; another one that is there is a ConfigurationError."""
        bucket = Bucket(streams, BUCKET)
        await bucket.create()
        try:
            await bucket.write(KEY, msgspec.json.encode(self), 0)
        except WrongPositionError:
            there = await self.read(streams)
            differing = [name for name in self.__struct_fields__ if getattr(self, name) != getattr(there, name)]
            if differing:
                name = differing[0]
                raise ConfigurationError(
                    f"the server has another overlay: {name} is {getattr(there, name)} there, and "
                    f"{getattr(self, name)} here; accepted is the same, or another server"
                ) from None

    @classmethod
    async def read(cls, streams: JetStream) -> Description:
        """The description that is there."""
        entry = await Bucket(streams, BUCKET).read(KEY)
        if entry.value is None:
            raise TransportError("the server has no overlay; start one with `catchment up` or `catchment broker`")
        return cls.from_bytes(entry.value)

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
