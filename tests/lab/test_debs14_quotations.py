"""The sentences that are judged, against the text of the paper, which is no part of this project."""

import re
from pathlib import Path

import pytest

from catchment.lab.debs14.claims import CLAIMS

PAPER = Path(__file__).parents[3] / "shared" / "papers" / "aggregation-debs14.txt"


def running_text(page: str) -> str:
    """The sentences alone, without captions that split them, emphasis, line breaks and hyphens at them."""
    without_captions = re.sub(r"(?m)^(Figure|Table) \d+:.*$", "", page)
    without_emphasis = re.sub(r"[*_]", "", without_captions)
    without_hyphens = re.sub(r"(?<=\w)[-\u00ad]\s*\n\s*", "", without_emphasis)
    return " ".join(without_hyphens.split())


def test_captions_line_breaks_hyphenation_and_emphasis_are_no_part_of_a_sentence() -> None:
    page = (
        "For more\nthan 500\n\nFigure 6: Cost of *early*\n\n"
        "sub-\nscriptions, **ADAPTIVE** has an end-to-end ad-\n\nvantage."
    )
    assert running_text(page) == "For more than 500 subscriptions, ADAPTIVE has an end-to-end advantage."


@pytest.mark.skipif(not PAPER.exists(), reason=f"the paper's text is not at {PAPER}")
def test_every_quotation_is_word_for_word_in_the_paper() -> None:
    paper = running_text(PAPER.read_text(encoding="utf-8"))
    assert [claim.words for claim in CLAIMS if running_text(claim.words) not in paper] == []
