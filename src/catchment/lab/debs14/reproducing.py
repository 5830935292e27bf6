"""`catchment reproduce debs14`: the paper's figures, drawn from its set-up, next to what it says of them."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from catchment.lab.debs14.claims import CLAIMS, Claim, Found, messages_of
from catchment.lab.debs14.measuring import BOUND, DESCRIBED, Measured, measure_all
from catchment.lab.debs14.points import DATA, Data, workload
from catchment.lab.drawing import COLOURS, FAINT, INK, STYLE, figure_axes, new_figure, svg_of
from catchment.pipeline.session import spark_session

__all__ = ["DRAWN", "QUICK", "Reproduced", "reproduce"]

DRAWN = ("6a", "6b", "6c", "6d", "6e", "8b")
QUICK: dict[str, Any] = {"seconds": 40.0, "every": 3}
TITLES = {
    "6a": ("Stock: messages over the publication rate", "publications a second"),
    "6b": ("Traffic: messages over the publication rate", "publications a second"),
    "6c": ("Stock: messages over the number of subscriptions", "subscriptions"),
    "6d": ("Traffic: messages over the number of subscriptions", "subscriptions"),
    "6e": ("Traffic: messages over the share of aggregates", "aggregate subscriptions"),
    "8b": ("Stock: adaptive over its sampling period", "sampling period, seconds"),
}
LINES = {"late": "o", "early": "s", "adaptive": "^", "selective": "v", "cover": "D", BOUND: ""}
_HEX = {name: colour for colour, name in COLOURS.items()}


@dataclass(frozen=True, slots=True)
class Reproduced:
    """What came of it."""

    page: Path
    measured: list[Measured]
    claims: list[tuple[str, str, Found]]
    """Figure, the paper's words, and what was found."""


def reproduce(
    *,
    output: Path,
    folder: Path | None = None,
    seconds: float | None = None,
    every: int = 1,
    spark: Any = None,
    report: Callable[[str], None] = lambda line: None,
) -> Reproduced:
    """Run the sweeps as one Spark job, draw their figures, and write a page and the figures behind it.

    `folder` has the real data in `stock` and `traffic`; without it they are generated. `seconds` shortens every run,
    and `every` leaves points out, but never the ends of a sweep.
    """
    whole = workload() if seconds is None else workload().shortened(seconds)
    points = [point for figure in DRAWN for point in _thinned(whole.of(figure), every)]
    folders: dict[Data, str | None] = {data: None if folder is None else str(folder / data) for data in DATA}
    measured = measure_all(spark or spark_session("catchment reproduce debs14"), points, folders, report)
    by_figure = {figure: [one for one in measured if one.point.figure == figure] for figure in DRAWN}
    claims = [(claim.figure, claim.words, _judged(claim, by_figure[claim.figure])) for claim in CLAIMS]
    output.mkdir(parents=True, exist_ok=True)
    page = output / "index.html"
    page.write_text(_page(by_figure, claims, real=folder is not None), encoding="utf-8")
    plain = json.dumps([asdict(one) for one in measured], indent=1)
    (output / "measured.json").write_text(plain, encoding="utf-8")
    return Reproduced(page, measured, claims)


def _judged(claim: Claim, points: Sequence[Measured]) -> Found:
    found = claim.check(points)
    if found.holds or not claim.otherwise:
        return found
    return Found(False, f"{found.figures}. {claim.otherwise}")


def _thinned(points: Sequence[Any], every: int) -> list[Any]:
    return [point for at, point in enumerate(points) if at % every == 0 or at == len(points) - 1]


# -- the page ---------------------------------------------------------------------------------------------------------


def _page(by_figure: Mapping[str, Sequence[Measured]], claims: Sequence[tuple[str, str, Found]], *, real: bool) -> str:
    sections = []
    for figure, points in by_figure.items():
        own = "".join(_claim(words, found) for of, words, found in claims if of == figure)
        drawn = _drawn_transitions(points) if figure == "8b" else _drawn(figure, points)
        sections.append(
            f"<section class=pair><figure>{drawn}<figcaption><b>Figure {figure[0]}({figure[1]})</b>. "
            f"{html.escape(_setting(points[0]))}</figcaption></figure>"
            f"<div><h2>The paper</h2><ul>{own}</ul></div></section>"
        )
    some = next(iter(by_figure.values()))[0]
    return _PAGE.substitute(
        style=STYLE,
        data="the real data" if real else "generated data",
        seconds=f"{some.point.seconds:,.0f}",
        holding=sum(found.holds for _, _, found in claims),
        claims=len(claims),
        sections="\n".join(sections),
    )


def _setting(one: Measured) -> str:
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


def _drawn(figure: str, points: Sequence[Measured]) -> str:
    title, across = TITLES[figure]
    drawing = new_figure(6.4, 4.2)
    axes = figure_axes(drawing, title=title, across=across, up="messages")
    at = [one.point.at for one in points]
    for name, marker in LINES.items():
        values = [messages_of(one, name) for one in points]
        style = {"linestyle": "--", "linewidth": 1.2} if name == BOUND else {"linewidth": 1.7}
        axes.plot(at, values, marker=marker, markersize=4.5, color=_HEX[name], label=name, **style)
    _finish(axes, logarithmic=points[0].point.vary == "rate")
    return svg_of(drawing, title)


def _drawn_transitions(points: Sequence[Measured]) -> str:
    title, across = TITLES["8b"]
    drawing = new_figure(6.4, 4.2)
    axes = figure_axes(drawing, title=title, across=across, up="messages")
    at = [one.point.at for one in points]
    axes.plot(at, [messages_of(one, DESCRIBED) for one in points], "o-", color=_HEX["late"], label="as described")
    axes.plot(at, [messages_of(one, "adaptive") for one in points], "^-", color=_HEX["adaptive"], label="with patience")
    beside = axes.twinx()
    beside.patch.set_alpha(0.0)
    beside.set_ylabel("transitions", color=FAINT)
    beside.tick_params(colors=FAINT, labelsize=9, length=0)
    for spine in beside.spines.values():
        spine.set_visible(False)
    for name, colour in ((DESCRIBED, "late"), ("adaptive", "adaptive")):
        beside.plot(at, [one.sent[name].transitions for one in points], ":", color=_HEX[colour], linewidth=1.4)
    _finish(axes, logarithmic=False)
    return svg_of(drawing, title)


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
.agrees { color: var(--early); } .differs { color: var(--late); }
</style></head><body><main>
<h1>Where to aggregate</h1>
<p>The experiments of <i>Distributed Event Aggregation for Content-based Publish/Subscribe Systems</i> (DEBS'14): four
core brokers in a chain, twelve at the edge, over $data, $seconds seconds a run. Next to the paper's three strategies
stand <span style="color: var(--selective)">selective</span>, adaptive by subscription,
<span style="color: var(--cover)">cover</span>, and the least that a placement of the paper's kind could send.</p>
<p class="faint">$holding of $claims of the paper's sentences hold here.</p>
$sections
</main></body></html>
""")
