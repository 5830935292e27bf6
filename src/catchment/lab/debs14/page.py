"""The page of the DEBS'14 paper's figures, drawn anew, next to what it says of them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from catchment.lab.debs14.claims import Found, messages_of
from catchment.lab.debs14.loads import STAGES, Loaded
from catchment.lab.debs14.measuring import BOUND, DESCRIBED, Measured
from catchment.lab.drawing import COLOURS, FAINT, INK, STYLE, figure_axes, new_figure, svg_of

__all__ = ["COUNTED", "DRAWN", "Figures", "page_of"]

COUNTED = ("6a", "6b", "6c", "6d", "6e", "8b")
"""Of messages, for which folding links is enough."""
PLAYED = ("7a", "7b", "7c", "7d", "7e", "7f", "8a", "8c")
"""Of load and delay, for which real brokers run in virtual time."""
DRAWN = tuple(sorted((*COUNTED, *PLAYED)))
TITLES = {
    "6a": ("Stock: messages over the publication rate", "publications a second"),
    "6b": ("Traffic: messages over the publication rate", "publications a second"),
    "6c": ("Stock: messages over the number of subscriptions", "subscriptions"),
    "6d": ("Traffic: messages over the number of subscriptions", "subscriptions"),
    "6e": ("Traffic: messages over the share of aggregates", "aggregate subscriptions"),
    "7a": ("Stock: processing load over the publication rate", "publications a second"),
    "7b": ("Stock: … for matching", "publications a second"),
    "7c": ("Stock: … for aggregation", "publications a second"),
    "7d": ("Traffic: processing load over the publication rate", "publications a second"),
    "7e": ("Stock: processing load over the number of subscriptions", "subscriptions"),
    "7f": ("Traffic: processing load over the number of subscriptions", "subscriptions"),
    "8a": ("Traffic: delay over the number of subscriptions", "subscriptions"),
    "8b": ("Stock: adaptive over its sampling period", "sampling period, seconds"),
    "8c": ("Traffic: adaptive over the collection delay", "collection delay, milliseconds"),
}
SPLIT = {"7b": STAGES["matching"], "7c": STAGES["aggregation"]}
"""Figures that show one part of the load."""
LINES = {"late": "o", "early": "s", "adaptive": "^", "selective": "v", "cover": "D", BOUND: ""}
_HEX = {name: colour for colour, name in COLOURS.items()}


@dataclass(frozen=True, slots=True)
class Figures:
    """Which runs each figure shows."""

    like: Mapping[str, str]
    measured: Sequence[Measured]
    loaded: Sequence[Loaded]
    timed: Sequence[Loaded]
    generated: Sequence[Measured]

    def runs(self, figure: str) -> list[Any]:
        return self._of(figure, self.measured if figure in COUNTED else self.loaded)

    def alone(self, figure: str) -> list[Any]:
        return self._of(figure, self.timed)

    def beside(self, figure: str) -> list[Any]:
        return self._of(figure, self.generated) if figure in COUNTED else []

    def _of(self, figure: str, runs: Sequence[Any]) -> list[Any]:
        return [one for one in runs if one.point.figure == self.like.get(figure, figure)]


def page_of(figures: Figures, claims: Sequence[tuple[str, str, Found]], *, real: bool) -> str:
    """The report page."""
    sections = []
    for figure in DRAWN:
        runs = figures.runs(figure)
        own = "".join(_claim(words, found) for of, words, found in claims if of == figure)
        sections.append(
            f"<section class=pair><div><figure>{_picture(figure, runs, figures.alone(figure))}"
            f"<figcaption><b>Figure {figure[0]}({figure[1]})</b>. {html.escape(_setting(runs[0]))}</figcaption>"
            f"</figure>{_beside(figure, figures.beside(figure))}</div>"
            f"<div><h2>The paper</h2><ul>{own}</ul></div></section>"
        )
    return _PAGE.substitute(
        style=STYLE,
        data="the real data" if real else "generated data",
        seconds=f"{figures.runs('6a')[0].point.seconds:,.0f}",
        played=f"{figures.runs('7a')[0].point.seconds:,.3g}",
        holding=sum(found.holds for _, _, found in claims),
        claims=len(claims),
        sections="\n".join(sections),
    )


def _picture(figure: str, runs: Sequence[Any], timed: Sequence[Loaded]) -> str:
    if figure in COUNTED:
        return _drawn_transitions(figure, runs) if figure == "8b" else _drawn(figure, runs)
    if figure.startswith("7"):
        return _drawn_load(figure, runs, timed)
    return _drawn_delay(figure, runs) if figure == "8a" else _drawn_collecting(figure, runs)


def _beside(figure: str, runs: Sequence[Measured]) -> str:
    if not runs:
        return ""
    drawn = f"<figure>{_picture(figure, runs, ())}</figure>"
    return f"<details><summary>The same over generated data</summary>{drawn}</details>"


def _setting(one: Measured | Loaded) -> str:
    point = one.point
    fixed = {
        "rate": f"{point.rate:g} publications a second",
        "subscriptions": f"{point.subscriptions} subscriptions",
        "aggregates": f"{point.aggregates:.0%} of them aggregate",
    }
    told = ", ".join(text for name, text in fixed.items() if name != point.vary)
    size, shift = point.window
    return f"{told}; windows of {size} every {shift}" + ("; with notifications." if point.last_hop else ".")


def _claim(words: str, found: Found) -> str:
    verdict = "agrees" if found.holds else "differs"
    return (
        f"<li><q>{html.escape(words)}</q><br><b class={verdict}>{verdict}</b> "
        f"<span class=faint>{html.escape(found.figures)}</span></li>"
    )


def _new_drawing(figure: str, up: str) -> tuple[Any, Any]:
    title, across = TITLES[figure]
    drawing = new_figure(6.4, 4.2)
    return drawing, figure_axes(drawing, title=title, across=across, up=up)


def _lines(axes: Any, at: Sequence[float], values: Mapping[str, Sequence[float]]) -> None:
    """A line for each placement."""
    for name, several in values.items():
        style = {"linestyle": "--", "linewidth": 1.2} if name == BOUND else {"linewidth": 1.7}
        axes.plot(at, several, marker=LINES[name], markersize=4.5, color=_HEX[name], label=name, **style)


def _drawn(figure: str, points: Sequence[Measured]) -> str:
    drawing, axes = _new_drawing(figure, "messages")
    _lines(axes, _at(points), {name: [messages_of(one, name) for one in points] for name in LINES})
    _finish(axes, logarithmic=points[0].point.vary == "rate")
    return svg_of(drawing, TITLES[figure][0])


def _drawn_load(figure: str, points: Sequence[Loaded], timed: Sequence[Loaded]) -> str:
    """What the service times make of what was done; dotted, what it really took here."""
    drawing, axes = _new_drawing(figure, "ms of one core a second, all brokers")
    stages = SPLIT.get(figure, ())
    _lines(axes, _at(points), {name: [one.of[name].total_ms(*stages) for one in points] for name in points[0].of})
    for name in points[0].of if not stages else ():
        axes.plot(_at(timed), [one.of[name].cpu_ms for one in timed], ":", color=_HEX[name], linewidth=1.4)
    _finish(axes, logarithmic=points[0].point.vary == "rate")
    return svg_of(drawing, TITLES[figure][0])


def _drawn_delay(figure: str, points: Sequence[Loaded]) -> str:
    drawing, axes = _new_drawing(figure, "ms from the end of a window")
    _lines(axes, _at(points), {name: [one.of[name].delay_ms for one in points] for name in points[0].of})
    axes.set_ylim(bottom=0)
    _finish(axes, logarithmic=False)
    return svg_of(drawing, TITLES[figure][0])


def _drawn_collecting(figure: str, points: Sequence[Loaded]) -> str:
    drawing, axes = _new_drawing(figure, "ms from the end of a window")
    loads = [one.of["adaptive"] for one in points]
    axes.plot(_at(points), [load.delay_ms for load in loads], "^-", color=_HEX["adaptive"], label="delay")
    axes.plot([], [], ":", color=FAINT, label="messages")
    axes.set_ylim(bottom=0)
    beside = _second_axis(axes, "messages")
    beside.plot(_at(points), [load.messages for load in loads], ":", color=FAINT, linewidth=1.7)
    beside.set_ylim(bottom=0)
    beside.yaxis.set_major_formatter(lambda value, _: _short(value))
    _finish(axes, logarithmic=False)
    return svg_of(drawing, TITLES[figure][0])


def _drawn_transitions(figure: str, points: Sequence[Measured]) -> str:
    drawing, axes = _new_drawing(figure, "messages")
    beside = _second_axis(axes, "transitions")
    for name, like, label in ((DESCRIBED, "late", "as described"), ("adaptive", "adaptive", "with patience")):
        values = [messages_of(one, name) for one in points]
        axes.plot(_at(points), values, marker=LINES[like], color=_HEX[like], label=label)
        changes = [one.sent[name].transitions for one in points]
        beside.plot(_at(points), changes, ":", color=_HEX[like], linewidth=1.4)
    axes.plot([], [], ":", color=FAINT, label="transitions")
    _finish(axes, logarithmic=False)
    return svg_of(drawing, TITLES[figure][0])


def _at(points: Sequence[Any]) -> list[float]:
    return [one.point.at for one in points]


def _second_axis(axes: Any, label: str) -> Any:
    beside = axes.twinx()
    beside.patch.set_alpha(0.0)
    beside.set_ylabel(label, color=FAINT)
    beside.tick_params(colors=FAINT, labelsize=9, length=0)
    for spine in beside.spines.values():
        spine.set_visible(False)
    return beside


def _finish(axes: Any, *, logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.6)
    axes.legend(frameon=False, labelcolor=INK, fontsize=9)


def _short(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>DEBS'14, reproduced</title>
<style>$style
section { margin-top: 26px; align-items: start; }
ul { padding-left: 18px; margin: 6px 0; } li { margin-bottom: 10px; } q { font-style: italic; }
h2 { font-size: 16px; margin: 14px 0 4px; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--faint); font-size: 14px; }
.agrees { color: var(--early); } .differs { color: var(--late); }
</style></head><body><main>
<h1>Where to aggregate</h1>
<p>The experiments of <i>Distributed Event Aggregation for Content-based Publish/Subscribe Systems</i> (DEBS'14): four
core brokers in a chain, twelve at the edge, over $data, $seconds seconds a run. Next to the paper's three strategies
stand <span style="color: var(--selective)">selective</span>, adaptive by subscription,
<span style="color: var(--cover)">cover</span>, and the least that a placement of the paper's kind could send.</p>
<p>Figures 6 and 8(b) count messages. Figures 7, 8(a) and 8(c) are of real brokers in virtual time, $played seconds a
run, of which the first third is left out: lines are what the fixed service times make of what they did, dots the
processor time that they took here.</p>
<p class="faint">$holding of $claims of the paper's sentences hold here.</p>
$sections
</main></body></html>
""")
