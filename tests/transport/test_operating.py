"""The commands of those who run an overlay."""

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from catchment.app.main import app
from tests.transport.conftest import Live, run


@pytest.fixture
def overlay(live: Callable[..., Live]) -> Live:
    """An overlay of two brokers of which none runs."""
    made = live(("b1", "b2"))
    run(made.start(only=[]))
    return made


def said(*arguments: str) -> str:
    found = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})
    assert found.exit_code == 0, found.output
    return found.output


def test_topics_are_listed(overlay: Live) -> None:
    assert json.loads(said("topics", "--server", overlay.url, "--json")) == overlay.description.topics
    assert CliRunner().invoke(app, ["topics"]).exit_code == 2
    lines = [line.split() for line in said("topics", "--server", overlay.url).splitlines()]
    assert ["traffic", "speed", "float"] in lines
    assert ["vehicles", "int"] in lines


def test_brokers_that_do_not_run_are_shown_as_down(overlay: Live) -> None:
    shown = said("overlay", "show", "--server", overlay.url, "--every", "0.1")
    assert [line.split() for line in shown.splitlines() if "down" in line] == [["b1", "down"], ["b2", "down"]]
    found = json.loads(said("overlay", "show", "--server", overlay.url, "--every", "0.1", "--json"))
    assert found == {"brokers": [{"broker": name, "state": "down"} for name in ("b1", "b2")], "links": []}


def test_subscriptions_of_a_broker_that_is_down_are_not_known(overlay: Live) -> None:
    found = CliRunner().invoke(app, ["subscriptions", "--server", overlay.url])
    assert found.exit_code == 2
    assert "broker 'b1' does not answer" in found.output
