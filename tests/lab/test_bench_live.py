"""`bench live` at a small size: every row is measured with real processes, and the report fits a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from catchment.lab import bench_live
from catchment.model.errors import ConfigurationError
from catchment.overlay import Overlay


def test_every_row_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_live, "CHAINS", (3,))
    monkeypatch.setattr(bench_live, "PACED", ((2_000, 3),))
    heard: list[str] = []
    asked = bench_live.ASKED[:1]
    result = bench_live.run(
        only=["throughput", "paced"], singles=1_000, batches=8, paced_s=0.5, asked=asked, report=heard.append
    )
    assert heard == ["3 brokers, 1 regular subscriptions", "2,000 events a second through 3 brokers"]
    whats = [one["what"] for one in result["through"]]
    assert whats[0] == "singles, acknowledged"
    assert len(set(whats)) == len(whats) == 4
    for one in [*result["through"], *result["paced"]]:
        assert set(one["cpu_us"]) == {"server", "b1", "b2", "b3", "publisher", "subscriber"}
    for one in result["through"]:
        assert min(one["per_s"], one["delivered_per_s"], one["raw_per_s"]) > 0
    (paced,) = result["paced"]
    assert paced["events"] == 1_000
    assert 0 < paced["p50_ms"] <= paced["p99_ms"]
    assert [target["name"] for target in result["targets"]] == [
        "batches of 10,000, acknowledged, 3 brokers, events/s",
        "2,000/s through 3, p50 in ms",
    ]
    page = StringIO()
    bench_live.print_report(result, Console(file=page, width=120))
    assert "…" not in page.getvalue()


def test_a_crowd_and_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_live, "DEBS14", Overlay.from_links([("b1", "b2")]))
    monkeypatch.setattr(bench_live, "CROWD_RATES", (1.0,))
    monkeypatch.setattr(bench_live, "CROWD_TOPICS", 10)
    monkeypatch.setattr(bench_live, "DISK_RATE", 1_000)
    result = bench_live.run(only=["disk", "crowd"], batches=4, paced_s=0.5, crowd=8, crowd_s=1.0)
    (crowd,) = result["crowds"]
    assert (crowd["clients"], crowd["events"]) == (8, 8)
    assert crowd["memory_bytes"] > 10_000_000
    assert [one["durability"] for one in result["paced"]] == ["disk"]
    assert [one["what"] for one in result["through"]] == ["batches of 10,000 on disk, acknowledged"]
    page = StringIO()
    bench_live.print_report(result, Console(file=page, width=120))
    assert "8 clients of 2 brokers" in page.getvalue()


def test_what_there_is_no_row_of_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="only is 'fast'; accepted are throughput, paced, disk, crowd"):
        bench_live.run(only=["fast"])
