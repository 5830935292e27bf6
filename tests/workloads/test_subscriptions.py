"""Generated subscriptions: valid, mixed, distinct, and about as selective as asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from catchment.model.errors import ConfigurationError
from catchment.model.subscription import Subscription
from catchment.workloads import (
    SubscriptionText,
    debs14_links,
    generate_stock,
    generate_traffic,
    load_traffic,
    stock_subscriptions,
    traffic_subscriptions,
)
from tests.workloads.tools import REAL_DATA, needs_real_data, sqlite_of

GENERATORS = [
    pytest.param(traffic_subscriptions, generate_traffic, "traffic", 990, id="traffic"),
    pytest.param(stock_subscriptions, generate_stock, "stock", 810, id="stock"),
]
Make = Callable[..., list[SubscriptionText]]
Generate = Callable[..., pa.Table]


def condition(sql: str) -> str:
    found = re.search(r" WHERE (.*?)(?: GROUP BY |$)", sql)
    assert found is not None
    return found[1]


def selectivities(events: pa.Table, topic: str, texts: list[SubscriptionText]) -> list[float]:
    database = sqlite_of(events, topic)
    counts = (database.execute(f"SELECT count(*) FROM {topic} WHERE {condition(text.sql)}") for text in texts)
    shares = [count.fetchone()[0] / events.num_rows for count in counts]
    database.close()
    return shares


@pytest.mark.parametrize(("make", "generate", "topic", "paper"), GENERATORS)
@pytest.mark.parametrize("selectivity", [0.005, 0.01, 0.02])
def test_selectivity(make: Make, generate: Generate, topic: str, paper: int, selectivity: float) -> None:
    # Neither the events' nor the subscriptions' seed is the one that the bounds were fitted to.
    texts = make(120, seed=11, selectivity=selectivity)
    shares = selectivities(generate(20_000, seed=12), topic, texts)
    mean = sum(shares) / len(shares)
    assert selectivity / 2 < mean < selectivity * 2
    assert sum(share == 0 for share in shares) <= len(shares) // 20


@needs_real_data
def test_selectivity_on_a_sample_of_ones_own() -> None:
    events = load_traffic(REAL_DATA / "traffic").events.take(list(range(0, 274_301, 11)))
    shares = selectivities(events, "traffic", traffic_subscriptions(120, seed=11, sample=events))
    assert 0.005 < sum(shares) / len(shares) < 0.02


@pytest.mark.parametrize(("make", "generate", "topic", "paper"), GENERATORS)
def test_the_papers_number_of_subscriptions_are_all_distinct(
    make: Make, generate: Generate, topic: str, paper: int
) -> None:
    brokers = debs14_links().subscribers
    texts = make(paper, seed=1, brokers=brokers, regular_share=0.5)
    assert len({text.name for text in texts}) == len({condition(text.sql) for text in texts}) == paper
    assert sum(text.sql.startswith("SELECT * ") for text in texts) == paper // 2
    assert Counter(text.at for text in texts) == dict.fromkeys(brokers, paper // 9)
    assert texts == make(paper, seed=1, brokers=brokers, regular_share=0.5)
    assert texts != make(paper, seed=2, brokers=brokers, regular_share=0.5)


@pytest.mark.parametrize(("make", "generate", "topic", "paper"), GENERATORS)
def test_they_are_subscriptions(make: Make, generate: Generate, topic: str, paper: int) -> None:
    for text in make(60, seed=3, regular_share=0.3):
        assert Subscription(text.name, at=text.at, sql=text.sql).name == text.name


def test_shapes_and_aggregates_are_mixed() -> None:
    texts = traffic_subscriptions(400, seed=3)
    aggregates = Counter(text.sql.split("(")[0].removeprefix("SELECT ") for text in texts)
    assert set(aggregates) == {"avg", "count", "sum", "min", "max"}
    starts = Counter(" ".join(condition(text.sql).split()[:2]) for text in texts)
    assert set(starts) == {"segment =", "highway =", "road_type =", "segment IN"}
    assert min(*aggregates.values(), *starts.values()) > 40
    assert all("GROUP BY window(ts, '20 seconds', '2 seconds')" in text.sql for text in texts)


def test_filters_can_be_drawn_from_few() -> None:
    texts = traffic_subscriptions(990, seed=3, distinct_filters=60)
    often = Counter(condition(text.sql) for text in texts).most_common()
    assert 50 <= len(often) <= 60
    # Zipf's law over 60: the first has 21% of all.
    assert 150 < often[0][1] < 270


def test_more_filters_than_a_sample_can_tell_apart_are_refused() -> None:
    few = generate_traffic(3, seed=1, null_rate=0.0).slice(0, 1)
    with pytest.raises(ConfigurationError, match=r"different filters, wanted are 500"):
        traffic_subscriptions(500, seed=1, sample=few)
    with pytest.raises(ConfigurationError, match="selectivity=0"):
        traffic_subscriptions(1, seed=1, selectivity=0.0)
    with pytest.raises(ConfigurationError, match="regular_share=2"):
        traffic_subscriptions(1, seed=1, regular_share=2.0)


def test_the_papers_overlay() -> None:
    links, publishers, subscribers = debs14_links()
    assert len({end for link in links for end in link}) == 16
    assert len(links) == 15
    both = set(publishers) & set(subscribers)
    assert (len(publishers), len(subscribers), len(both)) == (9, 9, 6)
    assert Counter(link[0] for link in links if link[1].startswith("edge")) == dict.fromkeys(
        ("core1", "core2", "core3", "core4"), 3
    )
