"""The page of the DEBS'14 paper's figures, drawn anew, next to what it says of them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any, get_args

from catchment.lab.debs14.claims import PLAYED, Judged
from catchment.lab.debs14.described import ADAPTIVES, DESCRIBED, OURS, label_of
from catchment.lab.debs14.judging_messages import messages_of
from catchment.lab.debs14.limits import LEAST_PERIODS
from catchment.lab.debs14.loads import STAGES, Loaded
from catchment.lab.debs14.measuring import BOUND, PARTS, Measured
from catchment.lab.debs14.verdicts import Found, Verdict
from catchment.lab.drawing import COLOURS, FAINT, INK, STYLE, figure_axes, new_figure, svg_of

__all__ = ["COUNTED", "DRAWN", "Figures", "page_of"]

COUNTED = ("6a", "6b", "6c", "6d", "6e", "8b")
"""Of messages, for which folding links is enough."""
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
LINES = {"late": "o", "early": "s", DESCRIBED: "X", OURS: "^", "selective": "v", "cover": "D", BOUND: ""}
"""Markers, in the order of the legend."""
DESCRIBED_HEX = "#b01060"
_HEX = {**{name: colour for colour, name in COLOURS.items()}, DESCRIBED: DESCRIBED_HEX}


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


def page_of(figures: Figures, claims: Sequence[Judged], *, real: bool) -> str:
    """The report page."""
    sections = []
    for figure in DRAWN:
        runs = figures.runs(figure)
        own = "".join(_claim(one) for one in claims if one.figure == figure)
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
        collected=f"{figures.runs('8c')[0].point.seconds:,.3g}",
        parts=PARTS,
        periods=LEAST_PERIODS,
        summary=_summary(claims),
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


def _summary(claims: Sequence[Judged]) -> str:
    """How many sentences have which verdict: on the paper's placements, and with ours in the place of its adaptive."""
    head = "".join(f"<th class={verdict}>{verdict}</th>" for verdict in get_args(Verdict))
    rows = {
        f"all {len(claims)}, as the paper describes its placements": [one.found for one in claims],
        "those about ADAPTIVE, on adaptive as described": [one.found for one in claims if one.ours is not None],
        "the same, on our adaptive": [one.ours for one in claims if one.ours is not None],
    }
    body = "".join(f"<tr><td>{name}</td>{_tally(found)}</tr>" for name, found in rows.items())
    return f"<table class=tally><tr><th>sentences</th>{head}</tr>{body}</table>"


def _tally(found: Sequence[Found]) -> str:
    counts = Counter(one.verdict for one in found)
    return "".join(f"<td>{counts[verdict]}</td>" for verdict in get_args(Verdict))


def _claim(one: Judged) -> str:
    named = DESCRIBED if one.ours is not None else ""
    rows = _verdict(named, one.found) + ("" if one.ours is None else _verdict(label_of(OURS), one.ours))
    return f"<li><q>{html.escape(one.words)}</q> <span class=faint>({html.escape(one.reading)})</span>{rows}</li>"


def _verdict(named: str, found: Found) -> str:
    who = f" <span class={_class(named)}>{named}</span>" if named else ""
    return (
        f"<div class=verdict><b class={found.verdict}>{found.verdict}</b>{who}"
        f"<div>{html.escape(found.figures)}</div><div class=faint>{html.escape(found.tolerance)}</div></div>"
    )


def _class(named: str) -> str:
    return "described" if named == DESCRIBED else "adaptive"


def _new_drawing(figure: str, up: str) -> tuple[Any, Any]:
    title, across = TITLES[figure]
    drawing = new_figure(6.4, 4.2)
    return drawing, figure_axes(drawing, title=title, across=across, up=up)


def _lines(axes: Any, at: Sequence[float], values: Mapping[str, Sequence[float]]) -> None:
    """A line for each placement."""
    for name, several in values.items():
        style = {"linestyle": "--", "linewidth": 1.2} if name == BOUND else {"linewidth": 1.7}
        if name == DESCRIBED:  # often next to ours: dashes let that show through
            style = {"linestyle": (0, (5, 2)), "linewidth": 1.7, "zorder": 3}
        # Where both adaptive placements send the same, the larger marker of ours shows around the other.
        size = 9 if name == OURS else 4.5
        axes.plot(at, several, marker=LINES[name], markersize=size, color=_HEX[name], label=label_of(name), **style)


def _svg(drawing: Any, figure: str) -> str:
    return svg_of(drawing, TITLES[figure][0]).replace(DESCRIBED_HEX, "var(--described)")


def _drawn(figure: str, points: Sequence[Measured]) -> str:
    drawing, axes = _new_drawing(figure, "messages")
    _lines(axes, _at(points), {name: [messages_of(one, name) for one in points] for name in LINES})
    _finish(axes, logarithmic=points[0].point.vary == "rate")
    return _svg(drawing, figure)


def _drawn_load(figure: str, points: Sequence[Loaded], timed: Sequence[Loaded]) -> str:
    """What the service times make of what was done; dotted, what it really took here."""
    drawing, axes = _new_drawing(figure, "ms of one core a second, all brokers")
    stages = SPLIT.get(figure, ())
    _lines(axes, _at(points), {name: [one.of[name].total_ms(*stages) for one in points] for name in points[0].of})
    for name in points[0].of if not stages else ():
        axes.plot(_at(timed), [one.of[name].cpu_ms for one in timed], ":", color=_HEX[name], linewidth=1.4)
    _finish(axes, logarithmic=points[0].point.vary == "rate")
    return _svg(drawing, figure)


def _drawn_delay(figure: str, points: Sequence[Loaded]) -> str:
    drawing, axes = _new_drawing(figure, "ms from the end of a window")
    _lines(axes, _at(points), {name: [one.of[name].delay_ms for one in points] for name in points[0].of})
    axes.set_ylim(bottom=0)
    _finish(axes, logarithmic=False)
    return _svg(drawing, figure)


def _drawn_collecting(figure: str, points: Sequence[Loaded]) -> str:
    drawing, axes = _new_drawing(figure, "ms from the end of a window")
    _lines(axes, _at(points), {name: [one.of[name].delay_ms for one in points] for name in ADAPTIVES})
    axes.set_ylim(bottom=0)
    beside = _dotted(axes, "messages", _at(points), {n: [one.of[n].messages for one in points] for n in ADAPTIVES})
    beside.yaxis.set_major_formatter(lambda value, _: _short(value))
    _finish(axes, logarithmic=False)
    return _svg(drawing, figure)


def _drawn_transitions(figure: str, points: Sequence[Measured]) -> str:
    drawing, axes = _new_drawing(figure, "messages")
    _lines(axes, _at(points), {name: [messages_of(one, name) for one in points] for name in ADAPTIVES})
    axes.set_ylim(bottom=0)
    changes = {name: [one.sent[name].transitions for one in points] for name in ADAPTIVES}
    _dotted(axes, "transitions", _at(points), changes)
    _finish(axes, logarithmic=False)
    return _svg(drawing, figure)


def _dotted(axes: Any, label: str, at: Sequence[float], values: Mapping[str, Sequence[float]]) -> Any:
    """Dotted lines by an axis of their own, at the right."""
    axes.plot([], [], ":", color=FAINT, label=f"{label} (right)")
    beside = _second_axis(axes, label)
    for name, several in values.items():
        beside.plot(at, several, ":", color=_HEX[name], linewidth=1.7)
    beside.set_ylim(bottom=0)
    return beside


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
    # Below the axes, where no line can run through it.
    axes.figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=INK, fontsize=9)


def _short(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>DEBS'14, reproduced</title>
<style>$style
:root { --described: #b0206a; }
@media (prefers-color-scheme: dark) { :root { --described: #f08ac0; } }
section { margin-top: 26px; align-items: start; }
ul { padding-left: 18px; margin: 6px 0; } li { margin-bottom: 14px; } q { font-style: italic; }
h2 { font-size: 16px; margin: 14px 0 4px; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--faint); font-size: 14px; }
.verdict { margin: 4px 0 0; font-size: 14px; line-height: 1.4; font-variant-numeric: tabular-nums; }
.agrees { color: var(--cover); } .differs { color: var(--late); } .undecided { color: var(--faint); }
.described { color: var(--described); } .adaptive { color: var(--adaptive); }
.tally td:nth-child(n+2), .tally th:nth-child(n+2) { text-align: right; font-variant-numeric: tabular-nums; }
</style></head><body><main>
<h1>Where to aggregate</h1>
<p>The experiments of <i>Distributed Event Aggregation for Content-based Publish/Subscribe Systems</i> (DEBS'14): four
core brokers in a chain, twelve at the edge, over $data, $seconds seconds a run.</p>
<p>There are two adaptive placements. <b class=described>adaptive as described</b> is the paper's: a broker changes its
mode after every sampling period in which the other mode would have sent less. <b class=adaptive>our adaptive</b> looks
back over whole shifts of its windows, and changes only when the saving has added up. The paper's sentences about
ADAPTIVE are judged on the first; the verdict on ours stands beside it. Next to the paper's strategies stand
<span style="color: var(--selective)">selective</span>, adaptive by subscription,
<span style="color: var(--cover)">cover</span>, and the least that a placement of the paper's kind could send.</p>
<p>Figures 6 and 8(b) count messages. Figures 7, 8(a) and 8(c) are of real brokers in virtual time, $played seconds a
run ($collected in 8(c)), of which the first third is left out: lines are what the fixed service times make of what they
did, dots the processor time that they took here.</p>
<h2>Verdicts</h2>
<p>Sentences in quotation marks are the paper's, word for word; in brackets stands which of our figures they are judged
by. A measured value is followed by its noise: value ± noise. A sentence <b class=agrees>agrees</b> if all that the
value may be lies within the limits printed below it, <b class=differs>differs</b> if all of that lies outside, and is
else <b class=undecided>undecided</b>. Noise is told by what was measured, so that shorter runs have more of it: of
messages by the spread over $parts parts of a run, of brokers' load by the number of messages, of delays by their spread
over notifications. Counts of transitions are compared with the paper's in relation to the length of a run. What
adaptive brokers do is not judged in runs of fewer than $periods sampling periods.</p>
$summary
<p class="faint">What the paper leaves open, and what is fixed here: rows are published at an even rate in the order of
the file; which filters subscriptions have is drawn; a broker takes fixed times for frames, publications and partials.
How the paper's engine estimates partials is not said; here they are counted, link by link.</p>
$sections
</main></body></html>
""")
