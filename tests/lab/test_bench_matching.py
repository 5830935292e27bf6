"""The benchmark runs, says everything that it promises, and its report can be read."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from catchment.lab.bench_matching import matching_filter_values, print_report, run
from catchment.model.filter import Filter
from catchment.model.schema import Schema
from catchment.workloads.matching import MATCHING_SCHEMA, matching_filters


def test_it_measures_and_reports() -> None:
    heard: list[str] = []
    result = run(profiles=("broad", "ranges"), sizes=(60,), events=300, repetitions=1, report=heard.append)
    measured = json.loads(json.dumps(result))["measured"]
    assert [(one["profile"], one["filters"]) for one in measured] == [("broad", 60), ("ranges", 60)]
    for one in measured:
        assert all(one[name] > 0 for name in one if name not in ("profile", "filters"))
        assert one["ratio"] == pytest.approx(one["linear_ns_per_event_and_filter"] / one["ns_per_event_and_filter"])
    assert any("broad, 60 filters" in line for line in heard)
    console = Console(width=200, record=True, file=None, quiet=True)
    print_report(result, console)


def test_filters_made_without_parsing_are_those_of_the_workload() -> None:
    schema = Schema.of(MATCHING_SCHEMA)
    for profile in ("broad", "narrow", "ranges"):
        made = matching_filter_values(profile, 100, 7)  # type: ignore[arg-type]
        for name, text in matching_filters(profile, 100, 7).items():  # type: ignore[arg-type]
            assert made[name].within(schema) == Filter.parse(text, schema)
