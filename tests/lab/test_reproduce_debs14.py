"""`reproduce debs14` at a small size: a page with every figure, and every sentence of the paper judged."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catchment.lab.debs14.claims import CLAIMS
from catchment.lab.debs14.page import COUNTED, DRAWN
from catchment.lab.debs14.reproducing import reproduce

pytestmark = pytest.mark.spark


def test_the_page_has_every_figure_and_every_sentence(spark: SparkSession, tmp_path: Path) -> None:
    found = reproduce(
        output=tmp_path / "page", spark=spark, seconds=6.0, every=8, played_seconds=0.3, played_every=20,
        played=("late", "early", "adaptive"), timed_seconds=None,
    )  # fmt: skip
    page = found.page.read_text()
    assert page.count("<svg ") == len(DRAWN) == 14
    assert page.count("<q>") == len(CLAIMS) == len(found.claims)
    assert {claim.figure for claim in CLAIMS} == set(DRAWN)
    assert all(claim.otherwise for claim in CLAIMS)
    assert page.count(">agrees</b>") == sum(one.holds for _, _, one in found.claims)
    # What does not depend on how long runs are.
    held = {(figure, words): one.holds for figure, words, one in found.claims}
    assert held["6a", "LATE generates less messages than EARLY at low publication rates."]
    assert held["6b", "When the rate increases, EARLY generates significantly fewer."]
    for name in ("measured", "generated", "loaded", "timed"):
        behind = json.loads((tmp_path / "page" / f"{name}.json").read_text())
        assert len(behind) == len(getattr(found, name))
    for figure in COUNTED:
        assert len({one.point.at for one in found.measured if one.point.figure == figure}) >= 2
    assert {one.point.figure for one in found.timed} == {"6a", "6b", "6c", "6d"}
    for one in (*found.loaded, *found.timed):
        for load in one.of.values():
            assert load.cpu_ms > 0
            assert load.total_ms("match") > 0
