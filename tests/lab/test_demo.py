"""The demo, smaller: a table within 100 columns, and a page that needs nothing else."""

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from catchment import Overlay, replay
from catchment.lab.demo import (
    Demo,
    Shown,
    carried_links,
    demo_console,
    demo_publications,
    demo_subscriptions,
    run_demo,
)
from catchment.lab.progress import Steps
from catchment.lab.report import links_of_picture
from catchment.workloads import TRAFFIC_SCHEMA, debs14_links

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    output = tmp_path_factory.mktemp("demo") / "report"
    steps = Steps(Console(file=io.StringIO()))
    return run_demo(Demo(events=12_000, subscriptions=60), output, steps, spark=spark)


def test_the_answers_are_the_oracles(shown: Shown) -> None:
    assert shown.verification.differences == ()
    assert shown.verification.subscriptions == 12
    assert shown.verification.values > 100
    assert shown.verification.deliveries > 0


def test_subscriptions_share_questions_and_early_saves_messages(shown: Shown) -> None:
    assert shown.facts["subscriptions"] == 60
    assert 0 < shown.facts["questions"] < 54
    assert len(shown.links) == len(debs14_links().links)
    assert 0 < shown.facts["messages early"] == sum(link[3] for link in shown.links)
    assert shown.facts["messages late"] == sum(link[2] for link in shown.links)
    assert sum(shown.matches) == 12_000
    assert shown.answers == sorted(shown.answers, key=lambda row: row["speed"])


def test_the_table_fits_100_columns(shown: Shown) -> None:
    text = io.StringIO()
    demo_console(shown, Console(file=text, width=100, highlight=False))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    for told in ("12,000", "questions", "all equal", "core1 – core2", "index.html"):
        assert told in text.getvalue()


def test_the_picture_holds_the_figures_it_shows(shown: Shown) -> None:
    assert links_of_picture(shown.report.with_name("overlay.png")) == shown.links


def test_the_picture_in_the_documentation_is_what_the_demo_draws(spark: SparkSession) -> None:
    demo, deployment = Demo(), debs14_links()
    overlay = Overlay.from_links(deployment.links)
    run = replay(
        spark,
        demo_publications(spark, demo, deployment),
        subscriptions=demo_subscriptions(demo, deployment),
        overlay=overlay,
        schema={"traffic": TRAFFIC_SCHEMA},
    )
    picture = Path(__file__).parents[2] / "docs" / "overlay.png"
    assert links_of_picture(picture) == carried_links(run, overlay), "make picture draws it anew"


def test_the_page_stands_alone(shown: Shown) -> None:
    page = shown.report.read_text()
    assert page.count("<svg ") == 5
    # No network: nothing is fetched, neither by the page nor by a picture in it.
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    assert not re.search(r"url\((?!#)|@import", page)
    assert "prefers-color-scheme: dark" in page
    Balanced().feed(page)


class Balanced(HTMLParser):
    """Fails where an element ends that did not begin."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass


def test_the_demo_is_the_same_each_time() -> None:
    once, again = (demo_subscriptions(Demo(), debs14_links()) for _ in range(2))
    assert once == again
    assert len(once) == 200
    assert len({one.name for one in once}) == 200


def test_a_demo_of_two_subscriptions_is_possible() -> None:
    assert len(demo_subscriptions(Demo(subscriptions=2), debs14_links())) == 2


def test_the_report_goes_where_it_is_told(shown: Shown) -> None:
    assert shown.report.parent.name == "report"
    assert isinstance(shown.report, Path)
