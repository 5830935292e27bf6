"""The benchmark of the simulation runs, says everything that it promises, and can be read on a terminal."""

import json
from io import StringIO

from rich.console import Console

from catchment.lab.bench_simulation import print_report, run
from catchment.lab.calibrating import calibrated, show_calibrated


def test_it_measures_and_reports() -> None:
    heard: list[str] = []
    result = run(large=40, messages=500, counts=(10,), seconds=0.01, report=heard.append)
    assert json.loads(json.dumps(result)) == result
    assert [one["batch"] for one in result["speeds"]] == [1, 10, 100, 1_000]
    assert all(one["messages"] >= one["frames"] > 0 for one in [*result["speeds"], result["large"]])
    assert result["large"]["messages"] >= 500
    by_way = {(one["way"], one["overlap"]): one for one in result["spreads"]}
    for overlap in (0.0, 0.5, 0.9):
        flooding, covering, bound = (by_way[way, overlap] for way in ("flooding", "covering", "bound"))
        assert covering["messages"] < flooding["messages"]
        assert bound["table"] <= covering["table"] < flooding["table"]
    assert "10 subscriptions, overlap 50%, covering" in heard
    page = StringIO()
    print_report(result, Console(file=page, width=80))
    assert "…" not in page.getvalue(), "a table does not fit a terminal"


def test_service_times_are_measured() -> None:
    found = calibrated()
    assert min(found.match_us, found.add_us, found.merge_us, found.send_us) > 0
    page = StringIO()
    show_calibrated(found, Console(file=page, width=80))
    assert "ServiceTimes(match_us=" in page.getvalue()
