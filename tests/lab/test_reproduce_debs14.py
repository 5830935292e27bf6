"""`reproduce debs14` at a small size: a page with every figure, and every sentence of the paper judged."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from catchment.lab.debs14 import loads, reproducing
from catchment.lab.debs14.claims import CLAIMS, PLAYED
from catchment.lab.debs14.described import ADAPTIVES, DESCRIBED
from catchment.lab.debs14.loads import BOTH
from catchment.lab.debs14.page import COUNTED, DRAWN
from catchment.lab.debs14.points import workload
from catchment.lab.debs14.reproducing import COLUMNS, Reproduced, reproduce

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reproduced]:
    """With a fifteenth of the subscriptions, as these take most of the time to set up."""
    whole = workload()
    few = [replace(one, subscriptions=max(one.subscriptions // 15, 3)) for one in whole.points]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "LEARNING_S", 0.3)
        patch.setattr(reproducing, "workload", lambda: replace(whole, points=tuple(few)))
        yield reproduce(
            output=tmp_path_factory.mktemp("debs14") / "page", spark=spark, seconds=4.0, every=20, played_seconds=0.3,
            played_every=20, played=BOTH, timed_seconds=None,
        )  # fmt: skip


def test_the_page_has_every_figure_and_every_sentence(found: Reproduced) -> None:
    page = found.page.read_text()
    assert page.count("<svg ") == len(DRAWN) == 14
    assert {claim.figure for claim in CLAIMS} == set(DRAWN)
    assert [html.unescape(quoted) for quoted in re.findall("<q>(.*?)</q>", page)] == [one.words for one in found.claims]
    for one in found.claims:
        for verdict in (one.found, *([one.ours] if one.ours else [])):
            told = f"<div>{html.escape(verdict.figures)}</div><div class=faint>{html.escape(verdict.tolerance)}</div>"
            assert told in page
    for verdict in ("agrees", "differs", "undecided"):
        both = [one.found.verdict for one in found.claims] + [one.ours.verdict for one in found.claims if one.ours]
        assert page.count(f"<div class=verdict><b class={verdict}>") == both.count(verdict)  # type: ignore[arg-type]


def test_every_figure_shows_both_adaptive_placements(found: Reproduced) -> None:
    drawings = re.findall("<svg .*?</svg>", found.page.read_text(), re.DOTALL)
    for drawing in drawings:
        for label, colour in ((DESCRIBED, "--described"), ("our adaptive", "--adaptive")):
            assert f">{label}</text>" in drawing
            # The line itself, besides what stands for it in the legend.
            assert drawing.count(f"stroke: var({colour})") >= 2


def test_both_adaptive_placements_are_measured_at_every_point(found: Reproduced) -> None:
    for one in found.measured:
        assert {*ADAPTIVES} <= one.sent.keys()
        for name in ("late", "early", *ADAPTIVES):
            assert sum(one.sent[name].parts) == one.sent[name].messages
    for played in found.loaded:
        assert {*ADAPTIVES} <= played.of.keys()


def test_what_was_measured_is_kept_beside_the_page(found: Reproduced) -> None:
    for name in ("measured", "generated", "loaded", "timed", "claims"):
        behind = json.loads((found.page.parent / f"{name}.json").read_text())
        assert len(behind) == len(getattr(found, name))
    for figure in COUNTED:
        assert len({one.point.at for one in found.measured if one.point.figure == figure}) >= 2
    assert {one.point.figure for one in found.timed} == {"6a", "6b", "6c", "6d"}
    for one in (*found.loaded, *found.timed):
        for load in one.of.values():
            assert load.cpu_ms > 0
            assert load.total_ms("match") > 0


def test_short_runs_do_not_agree_about_adaptive_brokers(found: Reproduced) -> None:
    about = [one.found for one in found.claims if one.ours is not None and one.figure in PLAYED]
    assert {one.verdict for one in about} <= {"undecided", "differs"}
    measured = [one for one in about if not one.figures.startswith("not measured")]
    assert len(measured) > len(about) / 2
    assert all("adaptive decides from 4 sampling periods a run on, here 0.15" in one.tolerance for one in measured)


def test_the_table_has_a_row_for_each_verdict(found: Reproduced) -> None:
    rows = found.rows()
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert len(rows) == len(CLAIMS) + sum(claim.adaptive for claim in CLAIMS)
