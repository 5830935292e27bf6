"""The benchmark of a broker runs, says everything that it promises, and can be read on a terminal."""

import json
from io import StringIO

import pytest
from rich.console import Console

from catchment.lab import bench_broker
from catchment.lab.bench_broker import KINDS, print_report, run
from catchment.model.errors import ConfigurationError


def test_it_measures_every_row_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_broker, "WARM_S", 2)
    monkeypatch.setattr(bench_broker, "SNAPSHOT_IDS", 1_000)
    heard: list[str] = []
    result = run(sizes=(10,), batches=(100, 1_000), rounds=1, limit_s=5.0, report=heard.append)
    assert json.loads(json.dumps(result)) == result
    rows = [(one["kind"], one["broker"], one["batch"]) for one in result["measured"]]
    regular = [("regular", role, batch) for batch in (100, 1_000) for role in ("ingress", "transit", "egress")]
    aggregate = [(kind, "ingress", batch) for kind in KINDS[1:-2] for batch in (100, 1_000)]
    assert rows == [*regular, *aggregate, ("waiting", "ingress", 1), ("posts", "ingress", 1)]
    for one in result["measured"]:
        assert one["median_us"] >= one["us"] > 0 < one["match_us"]
        assert (one["partials_us"] is None) == (one["kind"] in ("regular", "waiting", "posts"))
        # Ten subscriptions have no target; what waits together always has.
        assert (one["passes"] is None) == (one["kind"] not in ("waiting", "posts"))
    assert "early, 10 subscriptions, 1,000 events in a frame" in heard
    assert [one["broker"] for one in result["snapshots"]] == ["ingress", "transit", "egress"]
    for one in result["snapshots"]:
        assert one["freeze_ms"] > 0 < one["piece_ms"]
        assert (one["subscriptions"], one["ids"], one["wanted_ms"]) == (10, 1_000, 2.0)
        assert one["pieces"] > 1
        assert one["bytes"] > 20_000
    page = StringIO()
    print_report(result, Console(file=page, width=100))
    assert page.getvalue().count("longest of") == 3
    assert "…" not in page.getvalue(), "a table does not fit a terminal"


def test_a_row_that_takes_too_long_ends_with_what_it_has() -> None:
    (one,) = run(only=["early"], sizes=[10], batches=[100], rounds=9, limit_s=1e-6)["measured"]
    assert one["is_cut"]
    assert 0 < one["events"] < 2_000


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"only is 'lat'; accepted are regular, late, .*, snapshots"):
        run(only=["lat"])
