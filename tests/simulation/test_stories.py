"""Seeded worlds: whatever happens in them, subscribers get what a central system would have given them."""

import pytest

from catchment.simulation.stories import told


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_stories_end_well(first: int) -> None:
    for seed in range(first, first + 10):
        story = told(seed)
        assert story.problems == [], f"replay: catchment simulate --seed {seed} --trace"


def test_stories_are_worth_telling() -> None:
    stories = [told(seed) for seed in range(20)]
    delivered = sum(
        len(wish.received) for story in stories for client in story.world.clients.values() for wish in client.all_wishes
    )
    assert delivered > 200
    assert sum(node.restarts for story in stories for node in story.world.nodes.values()) > 5
    assert sum(story.world.tally.repeated for story in stories) > 50
    assert sum(story.world.tally.joined for story in stories) > 20
    clients = [client for story in stories for client in story.world.clients.values()]
    assert sum(len(client.pauses_us) for client in clients) > 20
    assert any(client.is_dropped for client in clients)


def test_a_seed_replays_exactly() -> None:
    for seed in (3, 11):
        first, second = told(seed, traces=True), told(seed, traces=True)
        assert first.world.trace == second.world.trace
        assert len(first.world.trace) > 50


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_a_thousand_stories_end_well(first: int) -> None:
    for seed in range(first, first + 100):
        story = told(seed)
        assert story.problems == [], f"replay: catchment simulate --seed {seed} --trace"
