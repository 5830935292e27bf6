"""`bench placement` at a small size: every placement at every point, and the bound below them."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from catchment.lab import bench_placement
from catchment.lab.debs14.adversary import reversed_trend
from catchment.lab.debs14.points import source_rows, workload
from catchment.model.errors import EventError

POINTS = [point for point in workload().points if point.figure not in ("8b", "8c")]


@pytest.mark.spark
def test_every_point_is_run_under_every_placement(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = workload()
    # Subscriptions take most of the time to set up.
    few = tuple(replace(one, subscriptions=max(one.subscriptions // 15, 3)) for one in whole.points)
    monkeypatch.setattr(bench_placement, "workload", lambda: replace(whole, points=few))
    monkeypatch.setattr(bench_placement, "DELAYED", [("6c", 6)])
    heard: list[str] = []
    result = bench_placement.run(spark=spark, seconds=4.0, every=9, delay_seconds=2.5, quotes=200, report=heard.append)
    assert [one["point"]["figure"] for one in result["measured"]] == [p.figure for p in POINTS[::9]]
    for one in result["measured"]:
        messages = {name: sent["publications"] + sent["partials"] for name, sent in one["sent"].items()}
        assert set(messages) >= {"late", "early", "adaptive", "selective", "coordinated", "cover", "bound"}
        assert messages["bound"] <= min(messages[name] for name in ("late", "early", "adaptive", "selective"))
        assert messages["cover"] <= min(messages["late"], messages["early"])
    assert all(target["passes"] for target in result["targets"] if target["name"].startswith(("cover in", "delay of")))
    assert set(result["sparse"]["cpu_s"]) == {"late", "early", "cover", "adaptive"}
    assert heard[-1] == "timing the decisions of cover"
    page = StringIO()
    bench_placement.print_report(result, Console(file=page, width=80))
    assert "…" not in page.getvalue()
    assert max(map(len, page.getvalue().splitlines())) <= 80


def test_an_adversary_defeats_a_strategy_that_only_looks_back() -> None:
    adaptive, cover = reversed_trend("adaptive", 40), reversed_trend("cover", 40)
    assert adaptive.reversals == 39
    assert adaptive.messages > 2 * adaptive.early > 10 * adaptive.optimal
    selective = reversed_trend("selective", 40)
    assert selective.reversals == 39
    assert selective.messages > 2 * selective.early > 4 * selective.optimal
    assert cover.messages == cover.optimal


def test_the_workload_is_what_the_paper_gives() -> None:
    points = workload().points
    rates = {data: [p.rate for p in points if p.data == data and p.vary == "rate"] for data in ("stock", "traffic")}
    counts = {
        data: [p.subscriptions for p in points if p.data == data and p.figure in ("6c", "6d")]
        for data in ("stock", "traffic")
    }
    assert (min(rates["stock"]), max(rates["stock"])) == (5, 1033)
    assert (min(rates["traffic"]), max(rates["traffic"])) == (13, 1080)
    assert (min(counts["stock"]), max(counts["stock"])) == (90, 810)
    assert (min(counts["traffic"]), max(counts["traffic"])) == (45, 990)
    assert {p.seconds for p in points} == {1000.0}
    assert {p.window for p in points if p.data == "stock"} == {("2 seconds", "2 seconds")}
    assert {p.window for p in points if p.data == "traffic"} == {("20 seconds", "2 seconds")}


def test_data_without_an_event_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "yahoo-x.csv").write_text("Symbol,Date,Open,High,Low,Close,Adj Close,Volume\n,,,,,,,\n")
    with pytest.raises(EventError, match="holds no event, and 1 rows that are none; accepted is at least one"):
        source_rows("stock", str(tmp_path))
