"""`catchment simulate`: random worlds in virtual time, each from its seed."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from catchment.model.errors import ConfigurationError
from catchment.overlay.placement import ONLINE
from catchment.simulation.stories import Story, play

__all__ = ["as_dict", "show_simulated", "show_trace", "simulated"]


def simulated(seed: int, count: int, steps: int, traces: bool, placement: str | None = None) -> list[Story]:
    """The stories of some seeds, one after the other."""
    if placement is not None and placement not in ONLINE:
        raise ConfigurationError(f"--placement is {placement!r}; accepted are {', '.join(ONLINE)}")
    return [play(one, steps=steps, traces=traces, placement=placement) for one in range(seed, seed + count)]


def as_dict(story: Story) -> dict[str, Any]:
    world = story.world
    wishes = [wish for client in world.clients.values() for wish in client.all_wishes]
    return {
        "seed": story.seed,
        "world": story.summary,
        "brokers": len(world.nodes),
        "virtual_us": world.timeline.now_us,
        "frames": world.tally.frames,
        "subscriptions": len(wishes),
        "publications": len(world.publications),
        "delivered": sum(len(wish.received) for wish in wishes),
        "values": sum(len(wish.values) for wish in wishes),
        "restarts": sum(node.restarts for node in world.nodes.values()),
        "problems": story.problems,
    }


def show_trace(story: Story) -> None:
    """Every message, with the time at which it arrived."""
    for line in story.world.trace:
        print(line)


COLUMNS = {
    "seed": "seed",
    "brokers": "brokers",
    "frames": "frames",
    "asked": "subscriptions",
    "events": "publications",
    "delivered": "delivered",
    "values": "values",
    "restarts": "restarts",
}


def show_simulated(stories: list[Story], console: Console | None = None) -> None:
    console = console or Console()
    table = Table(title="Simulated worlds")
    for name in (*COLUMNS, "wrong"):
        table.add_column(name, justify="right")
    for row in map(as_dict, stories):
        table.add_row(*(f"{row[name]:,}" for name in COLUMNS.values()), str(len(row["problems"])))
    console.print(table)
    for story in stories:
        for problem in story.problems:
            console.print(f"seed {story.seed}: {problem}", markup=False)
