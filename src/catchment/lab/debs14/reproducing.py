"""`catchment reproduce debs14`: the paper's figures, drawn from its set-up, next to what it says of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from catchment.lab.debs14.claims import CLAIMS, Judged, judged
from catchment.lab.debs14.described import OURS, label_of
from catchment.lab.debs14.loads import BOTH, Loaded, load_all
from catchment.lab.debs14.measuring import DRAWN, Measured, measure_all
from catchment.lab.debs14.page import COUNTED, Figures, page_of
from catchment.lab.debs14.points import DATA, Data, Point, workload
from catchment.lab.debs14.verdicts import Found
from catchment.lab.drawing import page_folder
from catchment.pipeline.session import spark_session

__all__ = ["COLUMNS", "QUICK", "Reproduced", "reproduce"]

QUICK: dict[str, Any] = {
    "seconds": 30.0,
    "every": 4,
    "played_seconds": 2.5,
    "played_every": 13,
    "played": BOTH,
    "timed_seconds": None,
    "also_generated": False,
}
"""What two cores do in less than five minutes."""
TIMED = ("6a", "6b", "6c", "6d")
"""At whose points processor time is measured, by runs that nothing else runs beside."""
NAMED = {"6d": (360, 540)}
"""Points that a sentence of the paper names, which are never left out."""
COLUMNS = ("figure", "the paper says", "judged by", "here", "measured", "limits")


@dataclass(frozen=True, slots=True)
class Reproduced:
    """What came of it."""

    page: Path
    measured: list[Measured]
    loaded: list[Loaded]
    timed: list[Loaded]
    generated: list[Measured]
    """Over generated data, where the others are over real ones."""
    claims: list[Judged]

    def rows(self) -> list[list[str]]:
        """The verdicts as a table; where there is one on our adaptive placement too, in a row below."""
        rows = []
        for one in self.claims:
            rows.append([one.figure, f"“{one.words}”", one.reading, *_told(one.found)])
            if one.ours is not None:
                rows.append(["", "", f"… {label_of(OURS)}", *_told(one.ours)])
        return rows


def reproduce(
    *,
    output: Path,
    folder: Path | None = None,
    seconds: float | None = None,
    every: int = 1,
    played_seconds: float | None = None,
    played_every: int = 1,
    played: Sequence[str] = (*BOTH, "cover"),
    timed_seconds: float | None = 8.0,
    also_generated: bool = True,
    spark: Any = None,
    report: Callable[[str], None] = lambda line: None,
) -> Reproduced:
    """Run the sweeps as Spark jobs, draw their figures, and write a page and the figures behind it.

    `folder` has the real data in `stock` and `traffic`; messages are then counted over generated ones as well, which
    are all there is without it. `seconds` shortens every run, and `every` leaves points out, but never the ends of a
    sweep; `played_…` do so for runs with real brokers, under the placements `played`. `timed_seconds` is how long those
    are that run alone, so that processor time can be told; if it is None, it is that of those that ran beside others.
    """
    page = page_folder(output) / "index.html"
    whole = workload() if seconds is None else workload().shortened(seconds)
    points = [point for figure in COUNTED for point in _thinned(whole.of(figure), every, NAMED.get(figure, ()))]
    nowhere: dict[Data, str | None] = dict.fromkeys(DATA)
    folders = nowhere if folder is None else {data: str(folder / data) for data in DATA}
    spark = spark or spark_session("catchment reproduce debs14")
    measured = measure_all(spark, points, folders, lambda line: report(f"messages: {line}"), DRAWN)
    _keep(output, "measured", measured)
    generated = []
    if folder is not None and also_generated:
        generated = measure_all(spark, points, nowhere, lambda line: report(f"messages, generated data: {line}"), DRAWN)
    _keep(output, "generated", generated)
    fixed = whole.simulated if played_seconds is None else replace(whole.simulated, seconds=played_seconds)
    sweeps = {sweep: whole.of(sweep) for sweep in fixed.like.values()}
    many: list[Point] = [point for sweep in sweeps.values() for point in _thinned(sweep, played_every)]
    loaded = load_all(spark, many, folders, fixed, played, lambda line: report(f"load and delay: {line}"))
    _keep(output, "loaded", loaded)
    timed = [one for one in loaded if one.point.figure in TIMED]
    if timed_seconds is not None:
        some: list[Point] = [point for sweep in TIMED for point in _thinned(sweeps[sweep], max(4, played_every))]
        briefly = replace(fixed, seconds=timed_seconds)
        timed = load_all(
            spark, some, folders, briefly, played, lambda line: report(f"processor time: {line}"), alone=True
        )
    _keep(output, "timed", timed)
    figures = Figures(fixed.like, measured, loaded, timed, generated)
    claims = [judged(claim, figures.runs(claim.figure)) for claim in CLAIMS]
    _keep(output, "claims", claims)
    page.write_text(page_of(figures, claims, real=folder is not None), encoding="utf-8")
    return Reproduced(page, measured, loaded, timed, generated, claims)


def _keep(output: Path, name: str, runs: Sequence[Any]) -> None:
    """Write down what was measured as soon as it is, so that it outlives what comes after."""
    (output / f"{name}.json").write_text(json.dumps([asdict(one) for one in runs], indent=1), encoding="utf-8")


def _told(found: Found) -> tuple[str, str, str]:
    return found.verdict, found.figures, found.tolerance


def _thinned(points: Sequence[Any], every: int, named: Sequence[float] = ()) -> list[Any]:
    """Every so many of them, but three at least, and the last, and those that are named."""
    every = max(min(every, len(points) // 2), 1)
    return [
        point
        for at, point in enumerate(points)
        if at % every == 0 or at == len(points) - 1 or (named and point.at in named)
    ]
