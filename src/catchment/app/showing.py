"""A running overlay as tables: its brokers, and what its links carry, between two looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from catchment.transport.figures import BrokerFigures, LinkFigures

__all__ = ["LinkRates", "cpu_share", "link_rates", "overlay_json", "overlay_tables"]

CLIENTS = "clients"
Figures = Mapping[str, BrokerFigures | None]


@dataclass(frozen=True, slots=True)
class LinkRates:
    """What a broker sends to a neighbour, or to all its clients, each second."""

    source: str
    target: str
    publications: float
    partials: float
    control: float
    frames: float
    bytes: float
    waiting: int
    """Frames that are not stored yet."""


def _both(before: Figures, now: Figures) -> Iterator[tuple[BrokerFigures, BrokerFigures]]:
    """Two looks at each broker that was the same process both times."""
    for name, one in now.items():
        earlier = before.get(name)
        if one is not None and earlier is not None and (earlier.host, earlier.process) == (one.host, one.process):
            yield earlier, one


def link_rates(before: Figures, now: Figures) -> list[LinkRates]:
    found: list[LinkRates] = []
    for earlier, one in _both(before, now):
        seconds = max(one.time_s - earlier.time_s, 1e-6)
        for target, link in [*one.links.items(), (CLIENTS, one.clients)]:
            since = earlier.clients if target == CLIENTS else earlier.links.get(target, LinkFigures())
            publications, partials, control = (
                (link.messages_out.get(kind, 0) - since.messages_out.get(kind, 0)) / seconds
                for kind in ("publications", "partials", "control")
            )
            frames, size = link.frames_out - since.frames_out, link.bytes_out - since.bytes_out
            found.append(
                LinkRates(
                    one.broker,
                    target,
                    publications,
                    partials,
                    control,
                    frames / seconds,
                    size / seconds,
                    link.frames_waiting,
                )
            )
    return found


def cpu_share(before: Figures, now: Figures) -> dict[str, float]:
    """Of each broker, which share of a core its process takes."""
    return {
        one.broker: (one.cpu_s - earlier.cpu_s) / max(one.time_s - earlier.time_s, 1e-6)
        for earlier, one in _both(before, now)
    }


def overlay_json(before: Figures, now: Figures) -> dict[str, Any]:
    shares = cpu_share(before, now)
    return {
        "brokers": [
            {"broker": name, "state": "down"}
            if one is None
            else {**msgspec.to_builtins(one), "problem": one.problem, "cpu_share": shares.get(name)}
            for name, one in now.items()
        ],
        "links": [asdict(one) for one in link_rates(before, now)],
    }


def overlay_tables(before: Figures, now: Figures) -> RenderableType:
    """Two tables that fit into 80 columns."""
    shares = cpu_share(before, now)
    brokers = _table("Brokers", "broker", "state", "position", "waiting", "lag", "clients", "subs", "snapshot", "CPU")
    for name, one in now.items():
        if one is None:
            brokers.add_row(_name(name), Text("down", style="bold red"), *[""] * 7)
            continue
        clients = _count(one.clients_here) + (f"+{_count(one.clients_parked)}" if one.clients_parked else "")
        brokers.add_row(
            _name(name),
            Text(one.state, style="yellow" if one.problem else "green"),
            _count(one.position),
            _count(one.inputs_waiting),
            _seconds(one.lag_s),
            clients,
            _count(one.subscriptions),
            "" if one.snapshot_age_s is None else _seconds(one.snapshot_age_s),
            f"{shares[name]:.0%}" if name in shares else "",
        )
    links = _table("Each second", "from", "to", "events", "partials", "control", "frames", "bytes", "waiting")
    for rates in link_rates(before, now):
        kinds = (rates.publications, rates.partials, rates.control)
        links.add_row(
            _name(rates.source),
            _name(rates.target),
            *(("", "", "") if rates.target == CLIENTS else map(_rate, kinds)),
            _rate(rates.frames),
            _bytes(rates.bytes),
            _count(rates.waiting),
        )
    return Group(brokers, links)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for name in columns:
        table.add_column(name, justify="left" if name in ("broker", "state", "from", "to") else "right", no_wrap=True)
    return table


def _name(name: str) -> Text:
    return Text(name if len(name) <= 12 else f"{name[:11]}…")


def _seconds(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _count(count: float) -> str:
    """A number in at most six characters."""
    if count < 99_999.5:
        return f"{count:,.0f}"
    return f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M" if count < 1e8 else f"{count / 1e6:.0f}M"


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if 0 < rate < 10 else _count(rate)


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"
