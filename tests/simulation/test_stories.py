"""Seeded worlds: whatever happens in them, subscribers get what a central system would have given them."""

import pytest

from catchment.overlay.placement import ONLINE
from catchment.simulation.stories import ADDED, play


def end_well(seeds: range, placement: str) -> None:
    for seed in seeds:
        story = play(seed, placement=placement)
        assert story.problems == [], f"replay: catchment simulate --seed {seed} --placement {placement} --trace"


@pytest.mark.parametrize("placement", ONLINE)
@pytest.mark.parametrize("first", [0, 10])
def test_stories_end_well(first: int, placement: str) -> None:
    end_well(range(first, first + 10), placement)


def test_stories_are_worth_telling() -> None:
    stories = [play(seed) for seed in range(20)]
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
    posted = [one for story in stories for one in story.world.publications if one.event_id in story.world.posted]
    assert len(posted) > 200
    changed = [node.broker.placements for story in stories for node in story.world.nodes.values()]
    assert sum(map(len, changed)) > 20
    added = {name for attributes in ADDED.values() for name in attributes}
    events = [one for story in stories for one in story.world.publications]
    assert sum(any(one.values.get(name) is not None for name in added) for one in events) > 200
    asked = [wish for client in clients for wish in client.all_wishes if wish.asked.refused is None]
    assert sum(bool(wish.received or wish.values) for wish in asked if added & set(wish.subscription.sql.split())) > 5


def test_a_seed_replays_exactly() -> None:
    for seed in (3, 11):
        first, second = play(seed, traces=True), play(seed, traces=True)
        assert first.world.trace == second.world.trace
        assert len(first.world.trace) > 50


def test_some_windows_have_more_values_than_a_sketch_keeps() -> None:
    most = max(
        value.publications
        for seed in range(20)
        for client in play(seed).world.clients.values()
        for wish in client.all_wishes
        for _, value in wish.values
    )
    assert most > 200


@pytest.mark.long
@pytest.mark.parametrize("placement", ONLINE)
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_a_thousand_stories_of_each_placement_end_well(first: int, placement: str) -> None:
    end_well(range(first, first + 100), placement)
