"""The benchmark's engines answer the same, and a small run holds everything that a large one reports."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from catchment.lab import bench_pipeline as bench
from catchment.lab.metering import Meter
from catchment.workloads import traffic_subscriptions

EVENTS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def by_window(table: pa.Table) -> dict[tuple[str, int], float | None]:
    columns = table.set_column(1, "window_start", table.column("window_start").cast(pa.int64())).to_pydict()
    keys = zip(columns["subscription"], columns["window_start"], strict=True)
    found = dict(zip(keys, columns["value"], strict=True))
    assert len(found) == table.num_rows
    return found


@pytest.mark.spark
@pytest.mark.parametrize("engine", [bench.AUTO, bench.SHARED, bench.JOIN, bench.KEYED, bench.DUCKDB])
def test_all_engines_answer_the_same(spark: SparkSession, folder: Path, engine: str) -> None:
    if engine == bench.DUCKDB:
        pytest.importorskip("duckdb", reason="a peer, of the optional dependencies")
    files = bench.traffic_files(folder, EVENTS)
    texts = traffic_subscriptions(12, seed=2)
    wanted = by_window(bench.answers(bench.UNION, spark, files, texts))
    assert len(wanted) > 1_000
    assert by_window(bench.answers(engine, spark, files, texts)) == pytest.approx(wanted)


@pytest.mark.spark
def test_a_small_run_reports_everything(spark: SparkSession, folder: Path) -> None:
    lines: list[str] = []
    result = bench.run(events=EVENTS, sizes=(1, 10), repetitions=1, spark=spark, folder=folder, report=lines.append)
    assert json.loads(json.dumps(result)) == {**result, "window": list(result["window"])}
    measured = {(one["engine"], one["subscriptions"]): one for one in result["measured"]}
    for engine in (bench.AUTO, bench.SHARED, bench.UNION, bench.JOIN, bench.KEYED, bench.PASS, bench.STREAM):
        for size in (1, 10):
            one = measured[engine, size]
            assert one["wall_s"] > 0
            assert one["cpu_s"] > 0
            assert one["peak_bytes"] > 100_000_000, "less than a JVM takes"
            assert one["events_per_s"] == pytest.approx(EVENTS / one["wall_s"])
    names = [target["name"] for target in result["targets"]]
    assert any("better of the two at 10" in name for name in names)
    assert any("100 slices" in name for name in names)
    assert any("Flink" in note for note in result["notes"])
    assert any(line.endswith("round 1") for line in lines)
    console = Console(record=True, width=200, file=io.StringIO())
    bench.print_report(result, console)
    text = console.export_text()
    assert all(name in text for name in names)


def test_what_one_more_subscription_costs_is_told_between_neighbouring_sizes() -> None:
    def measured(subscriptions: int, wall_s: float) -> bench.Measured:
        return bench.Measured(bench.AUTO, subscriptions, wall_s, wall_s, 1.0, 1, 0.0)

    slices = {"measured": [{"engine": f"{n} slices", "wall_s": 1.0} for n in ("10", "100", "100 finer")]}
    told = bench._targets([], [measured(100, 2.0), measured(1_000, 3.08), measured(10_000, 30.08)], slices)
    marginal = [(one.name, round(one.value, 6), one.passes) for one in told if "marginal" in one.name]
    assert marginal == [
        ("marginal subscription from 100 to 1,000", 1.2, True),
        ("marginal subscription from 1,000 to 10,000", 3.0, False),
    ]


def test_a_meter_counts_the_work_of_children() -> None:
    busy = "import time\nbegun = time.process_time()\nwhile time.process_time() < begun + 0.5: pass"
    with Meter() as meter:
        subprocess.run([sys.executable, "-c", busy], check=True)
    assert 0.4 < meter.cpu_s < 5.0
    assert meter.wall_s > 0.4


def test_a_meter_sees_memory_that_is_held() -> None:
    with Meter() as before:
        pass
    with Meter() as meter:
        held = bytearray(b"x" * 200_000_000)
    assert meter.peak_bytes > before.peak_bytes + 150_000_000
    assert len(held) == 200_000_000
