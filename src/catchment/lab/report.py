"""The page that `catchment demo` leaves: one HTML file, pictures inside, readable by day and by night."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from catchment.lab.drawing import FAINT, INK, PAPER, STYLE, figure_axes, new_figure, svg_of

if TYPE_CHECKING:
    from catchment.lab.demo import Shown

__all__ = ["links_of_picture", "write_picture", "write_report"]

_LATE, _EARLY = "#c05010", "#107080"
_LINKS_KEY = "Links"


def write_report(shown: Shown) -> Path:
    """Write `shown.report`, and the picture of the overlay beside it."""
    write_picture(shown, shown.report.with_name("overlay.png"))
    shown.report.write_text(_page(shown), encoding="utf-8")
    return shown.report


def _page(shown: Shown) -> str:
    facts, told = shown.facts, shown.verification
    late, early = facts["messages late"], facts["messages early"]
    return _PAGE.substitute(
        style=STYLE,
        lead=(
            f"{facts['events']:,} readings of road sensors enter at {len(shown.deployment.publishers)} brokers. "
            f"{facts['subscriptions']} subscriptions wait at {len(shown.deployment.subscribers)}. One pass on Spark "
            "answers them all, and says what each link would have carried."
        ),
        tiles="".join(
            _tile(value, name)
            for value, name in (
                (f"{facts['events a second']:,}", "events a second, all subscriptions answered"),
                (f"{facts['questions']}", f"windowed questions for {facts['subscriptions']} subscriptions"),
                (f"{facts['notifications']:,}", "values of windows notified"),
                (f"{late / max(1, early):.1f}×", "fewer messages on the links, early instead of late"),
                (
                    "equal" if not told.differences else f"{len(told.differences)} differ",
                    f"to the oracle: {told.values:,} values of {told.subscriptions} subscriptions",
                ),
            )
        ),
        overlay_late=_overlay(shown, "late"),
        overlay_early=_overlay(shown, "early"),
        late=f"{late:,}",
        early=f"{early:,}",
        bars=_bars(shown),
        along=_along(shown),
        matches=_matches(shown),
        answers=_rows(
            ("minute", "highway", "km/h", "readings"),
            [[row["minute"], row["highway"], row["speed"], row["readings"]] for row in shown.answers],
        ),
        along_sql=html.escape(shown.along_sql),
        command=html.escape(
            f"catchment demo --events {shown.demo.events} --subscriptions {shown.demo.subscriptions} "
            f"--seed {shown.demo.seed}"
        ),
    )


def _tile(value: str, name: str) -> str:
    return f"<div class=tile><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"


def _rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


# Pictures ----------------------------------------------------------------------------------------------------------


def _places(shown: Shown) -> dict[str, tuple[float, float]]:
    """Core brokers in a row, their edge brokers around them."""
    cores = sorted({end for link in shown.deployment.links for end in link if end.startswith("core")})
    places = {core: (2.4 * at, 0.0) for at, core in enumerate(cores)}
    for at, core in enumerate(cores):
        edges = sorted(
            b if a == core else a for a, b in shown.deployment.links if core in (a, b) and (a + b).count("core") < 2
        )
        # One more above than below, in turn, so that no label meets another.
        above = at % 2 == 0
        sides = [(-0.72, 1), (0.72, 1), (0.0, -1)] if above else [(0.0, 1), (-0.72, -1), (0.72, -1)]
        for edge, (across, up) in zip(edges, sides, strict=False):
            places[edge] = (places[core][0] + across, 1.45 * up)
    return places


def _overlay(shown: Shown, placement: str) -> str:
    figure = new_figure(6.4, 3.0)
    _draw_overlay(figure.add_subplot(), shown, placement)
    return svg_of(figure, f"the overlay with links as wide as their traffic under {placement} placement")


def _draw_overlay(axes: Any, shown: Shown, placement: str) -> None:
    axes.set_axis_off()
    axes.patch.set_alpha(0.0)
    places = _places(shown)
    most = max(max(link[2], link[3]) for link in shown.links) or 1
    colour = _LATE if placement == "late" else _EARLY
    for one, other, late, early in shown.links:
        messages = late if placement == "late" else early
        (x1, y1), (x2, y2) = places[one], places[other]
        axes.plot([x1, x2], [y1, y2], color=FAINT, linewidth=0.8, zorder=1)
        axes.plot([x1, x2], [y1, y2], color=colour, linewidth=22 * messages / most, solid_capstyle="butt", zorder=2)
        share = 0.5 if one.startswith("core") and other.startswith("core") else 0.56
        axes.text(
            x1 + (x2 - x1) * share, y1 + (y2 - y1) * share, _short(messages), ha="center", va="center", fontsize=8,
            color=INK, zorder=4, bbox={"boxstyle": "round,pad=0.18", "facecolor": PAPER, "edgecolor": "none"},
        )  # fmt: skip
    for broker, (x, y) in places.items():
        core = broker.startswith("core")
        axes.plot([x], [y], "o", markersize=17 if core else 21, color=PAPER, markeredgecolor=INK, zorder=5)
        axes.text(x, y, _role(shown, broker), ha="center", va="center", fontsize=8.5, color=INK, zorder=6)
        offset = 0.36 if y > 0 else -0.36
        if not core:
            axes.text(x, y + offset, broker, ha="center", va="center", fontsize=8, color=FAINT, zorder=6)
    axes.set_xlim(-1.2, 2.4 * 3 + 1.2)
    axes.set_ylim(-2.05, 2.05)
    axes.set_aspect("equal")


def write_picture(shown: Shown, file: Path) -> Path:
    """Both overlays side by side as PNG, which holds the figures that it shows: see `links_of_picture`."""
    figure = new_figure(12.0, 3.6)
    figure.patch.set(facecolor=PAPER, alpha=1.0)
    what = {
        "late": "Late: every event goes to all who want it, and is aggregated there.",
        "early": "Early: brokers aggregate what enters at them, and merge what passes through.",
    }
    for axes, (placement, said) in zip(figure.subplots(1, 2), what.items(), strict=True):
        _draw_overlay(axes, shown, placement)
        messages = f"{shown.facts[f'messages {placement}']:,} messages"
        axes.set_title(f"{said}\n{messages}", loc="left", color=_LATE if placement == "late" else _EARLY, fontsize=10)
    figure.savefig(file, dpi=100, metadata={"Software": None, _LINKS_KEY: json.dumps(shown.links)})
    return file


def links_of_picture(file: Path) -> list[tuple[str, str, int, int]]:
    """The links that a picture shows, as in `Shown.links`."""
    from PIL import Image

    with Image.open(file) as image:
        links = json.loads(image.info[_LINKS_KEY])
    return [(one, other, late, early) for one, other, late, early in links]


def _role(shown: Shown, broker: str) -> str:
    roles = ("P" * (broker in shown.deployment.publishers)) + ("S" * (broker in shown.deployment.subscribers))
    return roles or broker[-1]


def _short(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 1_000_000 else f"{count / 1e3:.0f}k" if count >= 10_000 else f"{count:,}"


def _bars(shown: Shown) -> str:
    figure = new_figure(6.4, 5.2)
    axes = figure_axes(figure, title="Messages on each link", across="messages, both directions", up="")
    at = np.arange(len(shown.links))
    for offset, column, colour, name in ((-0.19, 2, _LATE, "late"), (0.19, 3, _EARLY, "early")):
        axes.barh(at + offset, [link[column] for link in shown.links], 0.36, color=colour, label=name)
    axes.set_yticks(at, [f"{one} – {other}" for one, other, _, _ in shown.links])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: _short(int(value)))
    axes.legend(frameon=False, labelcolor=INK, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.3)
    return svg_of(figure, "messages on each link under late and early placement")


def _along(shown: Shown) -> str:
    from matplotlib.dates import DateFormatter, MinuteLocator

    figure = new_figure(13.2, 3.1)
    axes = figure_axes(figure, title="One subscription's answer over time", across="end of the window, UTC", up="km/h")
    times = [datetime.fromtimestamp(end / 1e6, UTC) for end, _, _ in shown.along]
    axes.plot(times, [value for _, value, _ in shown.along], color=_EARLY, linewidth=1.6)
    axes.xaxis.set_major_locator(MinuteLocator())  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    axes.margins(x=0.01)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.6)
    return svg_of(figure, "one subscription's values, window by window")


def _matches(shown: Shown) -> str:
    figure = new_figure(6.4, 5.2)
    axes = figure_axes(
        figure, title="How many subscriptions an event interests", across="subscriptions matched", up="share of events"
    )
    share = shown.matches / max(1, shown.matches.sum())
    axes.bar(np.arange(len(share)), share, 0.84, color=_EARLY)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return svg_of(figure, "share of events by how many subscriptions they match")


_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Catchment demo</title>
<style>
$style</style></head><body><main>
<h1>Every answer from one pass</h1>
<p>$lead</p>
<div class="tiles">$tiles</div>

<h2>What travels, and where</h2>
<p class="faint">The overlay of the DEBS'14 paper: four core brokers, twelve at the edge, with publishers (P),
subscribers (S) or both. A link is as wide as its messages, on one scale for both pictures.</p>
<div class="pair">
<figure>$overlay_late<figcaption><b class="late">Late</b>: every event goes to all who want it, and is aggregated there.
$late messages.</figcaption></figure>
<figure>$overlay_early<figcaption><b class="early">Early</b>: brokers aggregate what enters at them, and merge
what passes through. $early messages, events for regular subscriptions among them.</figcaption></figure>
</div>

<div class="pair">
<figure>$bars</figure>
<figure>$matches</figure>
</div>

<h2>An answer</h2>
<figure>$along<figcaption><code>$along_sql</code></figcaption></figure>

<h2>The slowest roads of any minute</h2>
<p class="faint">Grouped by road, and told only where the average is below 35 km/h: the <code>HAVING</code> of the
subscription.</p>
$answers

<h2>Once more</h2>
<p><code>$command</code> makes this page again.</p>
</main></body></html>
""")
