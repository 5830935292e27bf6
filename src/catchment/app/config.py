"""A job as a TOML file describes it: topics, overlay, subscriptions, source, sink, options.

    [topics.traffic]                        # attribute = "bool" | "int" | "float" | "string" | "timestamp"
    speed = "float"

    [overlay]                               # none: everything is at one place
    links = [["b1", "b2"], ["b2", "b3"]]    # or preset = "debs14"

    [[subscriptions]]                       # or subscriptions = "file.sql", .jsonl or .csv
    name = "slow"
    at = "b3"
    sql = "SELECT avg(speed) FROM traffic GROUP BY window(ts, '20 seconds', '2 seconds')"
    plane = "spark"                         # in a running overlay: who answers; else "brokers"

    [source]                                # "parquet" | "csv" | "json" | "generated" | "aarhus" | "yahoo" | "flights"
    format = "csv"
    path = "events/*.csv"
    event_id = "id"                         # the column that holds it; so for ts
    topic = "traffic"                       # of all rows, or { column = "kind" }; so for broker
    columns = { speed = "avgSpeed" }        # attributes with another name in the file

    [source]                                # of a running overlay: what its brokers have accepted
    format = "overlay"
    server = "nats://host:4222"
    since = "2 hours"                       # or a time; else all that is kept
    key = "operator.nk"                     # where access is controlled; and ca

    [history]                               # of a running overlay: what its brokers keep of what they have accepted
    keep = "7 days"
    bytes_max = 10_000_000_000              # of each broker; else no limit

    [sink]
    format = "parquet"                      # or "console"
    path = "results"

    [options]
    lateness = "10 seconds"
    placement = "adaptive"
    cost = { message = 1, byte = 0.01 }     # what an adaptive placement weighs; also match, merge

    [live]                                  # of a running overlay
    durability = "disk"                     # what an acknowledged event survives; "process" unless said otherwise
    client_lease = "30 seconds"             # how long a client may be silent before it is taken for gone
    client_retention = "7 days"             # how long what a durable client wants is collected while it is away

    [limits]                                # of one client of a running overlay
    request_bytes = 1_000_000
    events_per_second = 10_000              # none unless it is given
    subscriptions = 1_000
    topics = 100

Paths are relative to the TOML file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from catchment.app.asking import DrawnSubscriptions, distinct, read_subscriptions, subscription_of
from catchment.app.settings import Section, read_toml
from catchment.broker.limits import DEFAULT_LIMITS, ClientLimits
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.schema import RESERVED_COLUMNS, Schema
from catchment.model.subscription import Subscription
from catchment.model.times import duration_us, microseconds, since_us
from catchment.overlay import Overlay
from catchment.overlay.placement import MESSAGES, PLACEMENTS, Cost
from catchment.pipeline.generated import WORKLOADS, Generated
from catchment.pipeline.sources import FORMATS, RECORDED, Files, FromColumn, FromOverlay, Recorded, Source
from catchment.transport.description import DURABILITIES
from catchment.transport.history import Kept
from catchment.workloads import debs14_links

__all__ = ["Configuration", "Live", "Options", "SinkOptions", "attributes_of", "load_configuration"]

AVAILABLE_NOW = "available now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the job runs."""

    lateness: str = "0 seconds"
    delivery: str = "final"
    placement: str = "early"
    sampling_period: str = "2 seconds"
    cost: Cost = MESSAGES
    """What an adaptive placement weighs."""
    deduplicate: bool = False
    checkpoint: str | None = None
    trigger: str = "1 second"
    idle_after: str | None = "2 minutes"
    gateway_lease: str = "30 seconds"
    """How long a running overlay waits for foreign publishers of a topic after the last of them."""
    master: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where results go."""

    format: str = "parquet"
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What only a running overlay has."""

    durability: str = "process"
    client_lease: str = "30 seconds"
    client_retention: str = "7 days"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All that a file says; a part that it leaves out is None or empty."""

    file: str
    topics: Mapping[str, Schema] = field(default_factory=dict)
    overlay: Overlay | None = None
    subscriptions: tuple[Subscription, ...] = ()
    subscriptions_file: Path | None = None
    """Where the subscriptions came from, if that was a file, which `run` then watches."""
    drawn: DrawnSubscriptions | None = None
    source: Source | None = None
    history: Kept | None = None
    """How much brokers keep of what they accept; None if the file does not say."""
    sink: SinkOptions = field(default_factory=SinkOptions)
    options: Options = field(default_factory=Options)
    live: Live = field(default_factory=Live)
    limits: ClientLimits = DEFAULT_LIMITS

    def check(self) -> Configuration:
        """Hold source and subscriptions against topics and overlay; the configuration itself, if all is well."""
        for one in self.subscriptions:
            self.check_subscription(one)
        if isinstance(self.source, Files):
            if self.topics and isinstance(self.source.topic, str) and self.source.topic not in self.topics:
                raise ConfigurationError(
                    f"{self.file}: source.topic is {self.source.topic!r}; accepted are {', '.join(self.topics)}"
                )
            if self.overlay is not None and isinstance(self.source.broker, str):
                try:
                    self.overlay.require(self.source.broker)
                except CatchmentError as error:
                    raise type(error)(f"{self.file}: source.broker: {error}") from None
        return self

    def check_subscription(self, one: Subscription) -> None:
        """Refuse a subscription to what is not there."""
        try:
            if self.topics:
                one.within(self.topics)
            if self.overlay is not None and one.at is not None:
                self.overlay.require(one.at)
            if self.overlay is not None and one.at is None and len(self.overlay) > 1:
                raise ConfigurationError(f"at is missing; accepted are {', '.join(self.overlay.brokers)}")
        except CatchmentError as error:
            named = "" if repr(one.name) in str(error) else f"subscription {one.name!r}: "
            raise type(error)(f"{self.subscriptions_file or self.file}: {named}{error}") from None


def load_configuration(file: Path) -> Configuration:
    """Read and check a TOML file; every error is a CatchmentError that names file and key."""
    whole = read_toml(file)
    folder = file.parent
    topics = _topics(whole)
    overlay = _overlay(whole)
    source = _source(whole, folder, topics, overlay)
    if isinstance(source, Generated) and not topics:
        topics = {source.workload: source.schema}
    if isinstance(source, Recorded) and not topics:
        topics = {source.topic: source.schema}
    given, subscriptions_file, drawn = _subscriptions(whole, folder, overlay)
    configuration = Configuration(
        file=str(file),
        topics=topics,
        overlay=overlay,
        subscriptions=tuple(given),
        subscriptions_file=subscriptions_file,
        drawn=drawn,
        source=source,
        sink=_sink(whole, folder),
        options=_options(whole, folder),
        history=_history(whole),
        live=_live(whole),
        limits=_limits(whole),
    )
    whole.done()
    return configuration.check()


def attributes_of(text: str) -> Schema:
    """A schema as the command line says it: 'speed=float, highway=string'."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    wrong = [name for name, equals, kind in pairs if not (equals and name.strip() and kind.strip())]
    if wrong:
        raise ConfigurationError(f"--attributes has {', '.join(wrong)}; accepted is 'speed=float, highway=string'")
    return Schema.of({name.strip(): kind.strip() for name, _, kind in pairs})


def _topics(whole: Section) -> dict[str, Schema]:
    section = whole.table("topics")
    found: dict[str, Schema] = {}
    for topic in section.keys if section is not None else ():
        attributes = section.table(topic) if section is not None else None
        if attributes is None:
            continue
        given = {name: attributes.raw(name) for name in attributes.keys}
        for name in given:
            if name in RESERVED_COLUMNS:
                raise ConfigurationError(
                    f"{whole.file}: {attributes.name_of(name)} is no attribute; every event has "
                    f"{', '.join(RESERVED_COLUMNS)} without saying so"
                )
        try:
            found[topic] = Schema.of(given)
        except CatchmentError as error:
            raise type(error)(f"{whole.file}: topics.{topic}: {error}") from None
    return found


def _overlay(whole: Section) -> Overlay | None:
    section = whole.table("overlay")
    if section is None:
        return None
    preset, links, broker = section.text("preset"), section.raw("links"), section.text("broker")
    section.done()
    if sum(one is not None for one in (preset, links, broker)) != 1:
        raise ConfigurationError(
            f"{whole.file}: overlay has {', '.join(section.keys) or 'nothing'}; "
            'accepted is one of links = [["b1", "b2"], …], preset = "debs14", broker = "b1"'
        )
    try:
        if preset is not None:
            if preset != "debs14":
                section.refuse("preset", '"debs14"')
            return Overlay.from_links(debs14_links().links)
        if broker is not None:
            return Overlay.single(broker)
        if not isinstance(links, list) or not all(isinstance(link, list) for link in links):
            section.refuse("links", 'a list of pairs, as in [["b1", "b2"], ["b2", "b3"]]')
        return Overlay.from_links(links)
    except ConfigurationError:
        raise
    except CatchmentError as error:
        raise type(error)(f"{whole.file}: overlay: {error}") from None


def _subscriptions(
    whole: Section, folder: Path, overlay: Overlay | None
) -> tuple[list[Subscription], Path | None, DrawnSubscriptions | None]:
    given = whole.raw("subscriptions")
    if given is None:
        return [], None, None
    if isinstance(given, str):
        file = folder / given
        return read_subscriptions(file), file, None
    if isinstance(given, dict):
        section = whole.table("subscriptions")
        assert section is not None
        return [], None, _drawn(section, overlay)
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        whole.refuse("subscriptions", "a list of tables with name, at and sql, or the name of a file of them")
    listed = (subscription_of(one, f"{whole.file}: subscriptions[{number}]") for number, one in enumerate(given))
    return distinct(listed, whole.file), None, None


def _drawn(section: Section, overlay: Overlay | None) -> DrawnSubscriptions:
    workload = section.choice("workload", tuple(WORKLOADS), "")
    count, seed = section.number("count", 100), section.number("seed", 1)
    window = section.raw("window")
    if window is not None and (not isinstance(window, list) or len(window) != 2):
        section.refuse("window", 'a size and a shift, as in ["20 seconds", "2 seconds"]')
    share, selectivity = section.raw("regular_share"), section.raw("selectivity")
    section.done()
    for key, value in (("regular_share", share), ("selectivity", selectivity)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1
        ):
            section.refuse(key, "a number from 0 to 1")
    return DrawnSubscriptions(
        workload=workload,
        count=count or 0,
        seed=seed or 0,
        window=("20 seconds", "2 seconds") if window is None else (str(window[0]), str(window[1])),
        regular_share=float(share or 0.0),
        selectivity=None if selectivity is None else float(selectivity),
        brokers=_brokers_of(overlay, "subscribers"),
    )


def _brokers_of(overlay: Overlay | None, role: str) -> tuple[str, ...]:
    """Who publishes or subscribes where nobody says so: in the paper's overlay, the edge brokers with that role."""
    if overlay is None:
        return ("b0",)
    paper = debs14_links()
    if overlay == Overlay.from_links(paper.links):
        return tuple(getattr(paper, role))
    return overlay.brokers


def _source(whole: Section, folder: Path, topics: Mapping[str, Schema], overlay: Overlay | None) -> Source | None:
    section = whole.table("source")
    if section is None:
        return None
    accepted = (*FORMATS, "generated", "overlay", *RECORDED)
    kind = section.choice("format", accepted, "")
    try:
        if kind == "generated":
            source: Source = _generated(section, overlay)
        elif kind == "overlay":
            source = _from_overlay(section, folder, topics)
        elif kind in RECORDED:
            path = section.required_text("path")
            source = Recorded(name=kind, folder=str(folder / path), brokers=_brokers_of(overlay, "publishers"))
        else:
            source = _files(section, kind, folder, topics, overlay)
    except CatchmentError as error:
        if whole.file in str(error):
            raise
        raise type(error)(f"{whole.file}: source: {error}") from None
    section.done()
    return source


def _generated(section: Section, overlay: Overlay | None) -> Generated:
    start = section.text("start")
    chosen: dict[str, Any] = {} if start is None else {"start_us": microseconds(start, attribute="start")}
    return Generated(
        workload=section.choice("workload", tuple(WORKLOADS), ""),  # type: ignore[arg-type]
        seed=section.number("seed", 1) or 0,
        events=section.number("events"),
        rate=section.number("rate", 1_000, least=1) or 1,
        brokers=_brokers_of(overlay, "publishers"),
        **chosen,
    )


def _from_overlay(section: Section, folder: Path, topics: Mapping[str, Schema]) -> FromOverlay:
    files = {name: section.text(name) for name in ("key", "ca")}
    since = section.raw("since")
    if since is not None:
        section.checked("since", lambda: since_us(since, 0))
    return FromOverlay(
        server=section.required_text("server"),
        topics=tuple(topics),
        since=since,
        max_rows_per_batch=section.number("max_rows_per_batch", least=1),
        fail_on_data_loss=section.flag("fail_on_data_loss", True),
        **{name: str(folder / file) for name, file in files.items() if file is not None},
    )


def _history(whole: Section) -> Kept | None:
    section = whole.table("history")
    if section is None:
        return None
    keep, bytes_max = _duration(section, "keep", "7 days"), section.number("bytes_max", least=1)
    section.done()
    try:
        return Kept(keep_us=duration_us(keep), bytes_max=-1 if bytes_max is None else bytes_max)
    except CatchmentError as error:
        raise type(error)(f"{whole.file}: history: {error}") from None


def _files(section: Section, kind: str, folder: Path, topics: Mapping[str, Schema], overlay: Overlay | None) -> Files:
    columns = section.table("columns")
    one_topic = next(iter(topics)) if len(topics) == 1 else None
    one_broker = overlay.brokers[0] if overlay is not None and len(overlay) == 1 else "b0" if overlay is None else None
    return Files(
        format=kind,  # type: ignore[arg-type]
        path=_located(folder, section.required_text("path")),
        topics=topics or None,
        event_id=section.text("event_id", "event_id") or "",
        ts=section.text("ts", "ts") or "",
        topic=_text_or_column(section, "topic", one_topic),
        broker=_text_or_column(section, "broker", one_broker),
        columns={} if columns is None else {name: columns.required_text(name) for name in columns.keys},
        delimiter=section.text("delimiter", ",") or "",
        max_files_per_trigger=section.number("max_files_per_trigger", least=1),
    )


def _located(folder: Path, path: str) -> str:
    return path if "://" in path else str(folder / path)


def _text_or_column(section: Section, key: str, otherwise: str | None) -> str | FromColumn:
    given = section.raw(key)
    if given is None:
        return FromColumn(key, otherwise)
    if isinstance(given, str) and given:
        return given
    if not (isinstance(given, dict) and list(given) == ["column"] and isinstance(given["column"], str)):
        section.refuse(key, f'the {key} of all rows, or {{ column = "…" }}')
    return FromColumn(given["column"])


def _sink(whole: Section, folder: Path) -> SinkOptions:
    section = whole.table("sink")
    if section is None:
        return SinkOptions()
    kind, path = section.choice("format", ("parquet", "console"), "parquet"), section.text("path")
    section.done()
    return SinkOptions(format=kind, path=None if path is None else _located(folder, path))


def _options(whole: Section, folder: Path) -> Options:
    section = whole.table("options")
    if section is None:
        return Options()
    checkpoint, idle_after = section.text("checkpoint"), section.raw("idle_after")
    options = Options(
        lateness=_duration(section, "lateness", "0 seconds"),
        delivery=section.choice("delivery", ("final", "revisions"), "final"),
        placement=section.choice("placement", PLACEMENTS, "early"),
        sampling_period=_duration(section, "sampling_period", "2 seconds"),
        cost=_cost(section),
        deduplicate=section.flag("deduplicate", False),
        checkpoint=None if checkpoint is None else _located(folder, checkpoint),
        trigger=AVAILABLE_NOW if section.raw("trigger") == AVAILABLE_NOW else _duration(section, "trigger", "1 second"),
        idle_after=None if idle_after in (False, "never") else _duration(section, "idle_after", "2 minutes"),
        gateway_lease=_duration(section, "gateway_lease", "30 seconds"),
        master=section.text("master"),
    )
    section.done()
    return options


def _live(whole: Section) -> Live:
    section = whole.table("live")
    if section is None:
        return Live()
    live = Live(
        durability=section.choice("durability", DURABILITIES, "process"),
        client_lease=_duration(section, "client_lease", "30 seconds", least_us=1_000),
        client_retention=_duration(section, "client_retention", "7 days", least_us=1_000),
    )
    section.done()
    return live


def _limits(whole: Section) -> ClientLimits:
    section = whole.table("limits")
    if section is None:
        return DEFAULT_LIMITS
    given = {name: section.number(name, default, least=1) for name, default in asdict(DEFAULT_LIMITS).items()}
    section.done()
    return ClientLimits(**given)  # type: ignore[arg-type]


def _cost(section: Section) -> Cost:
    weights = section.table("cost")
    if weights is None:
        return MESSAGES
    found = {name: weights.weight(name, default) for name, default in asdict(MESSAGES).items()}
    weights.done()
    return Cost(**found)


def _duration(section: Section, key: str, default: str, *, least_us: int = 0) -> str:
    value = section.text(key, default) or default
    try:
        given_us = duration_us(value)
    except CatchmentError:
        given_us = -1
    if given_us < least_us:
        extra = f', or "{AVAILABLE_NOW}"' if key == "trigger" else ', or "never"' if key == "idle_after" else ""
        section.refuse(key, f'a duration, as in "10 seconds"{extra}')
    return value
