"""`catchment simulate`: the same seed prints the same bytes, and what goes wrong is an exit code."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from catchment.app import simulating
from catchment.app.main import app
from catchment.simulation.stories import play


def called(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *(str(one) for one in arguments)])


def test_the_same_seed_prints_the_same_bytes() -> None:
    first, second = (called("--seed", 7, "--trace") for _ in range(2))
    assert first.exit_code == 0
    assert first.stdout == second.stdout
    assert "us b1 -> " in first.stdout
    assert called("--seed", 8, "--trace").stdout != first.stdout


def test_several_seeds_as_a_table_and_as_json() -> None:
    assert "Simulated worlds" in called("--seed", 3, "--seeds", 2).stdout
    rows = json.loads(called("--seed", 3, "--seeds", 2, "--json").stdout)
    assert [row["seed"] for row in rows] == [3, 4]
    assert all(row["problems"] == [] for row in rows)


def test_a_placement_is_that_of_all_worlds_or_refused_by_name() -> None:
    (row,) = json.loads(called("--seed", 3, "--placement", "cover", "--json").stdout)
    assert "placement='cover'" in row["world"]
    refused = called("--placement", "optimal")
    assert refused.exit_code == 2
    assert "--placement is 'optimal'; accepted are late, early" in refused.output


def test_a_problem_is_named_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(seed: int, **options: Any) -> Any:
        story = play(seed, **options)
        story.problems.append("c1 did not get e1")
        return story

    monkeypatch.setattr(simulating, "play", spoilt)
    result = called("--seed", 3)
    assert result.exit_code == 1
    assert "seed 3: c1 did not get e1" in result.stdout
