"""How brokers of one overlay aggregate."""

from typing import Any

import pytest

from catchment.broker.aggregation import COLLECTION_US, AggregationOptions
from catchment.model.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delivery": "soon"}, "delivery is 'soon'; accepted are 'final' and 'revisions'"),
        ({"placement": "optimal"}, "placement is 'optimal'; accepted are late, early"),
        ({"lateness_us": -1}, "lateness_us is -1; accepted are numbers from 0 on"),
        ({"idle_after_us": 0}, "idle_after_us is 0; accepted are numbers from 1 on"),
        ({"sampling_period_us": 0}, "sampling_period_us is 0; accepted are numbers from 1 on"),
        ({"memory_bytes_max": 0}, "memory_bytes_max is 0; accepted are numbers from 1 on"),
        ({"collection_us": (50, 10)}, "collection_us is (50, 10); accepted is a rising pair"),
        ({"collection_us": -1}, "collection_us is -1; accepted is a rising pair from 0 on"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        AggregationOptions(**given)
    assert said in str(error.value)


def test_a_fixed_collection_delay_is_the_same_everywhere() -> None:
    options = AggregationOptions(collection_us=7)
    assert {options.collection_delay_us(broker, end_us) for broker in ("b1", "b2") for end_us in range(9)} == {7}


def test_a_varying_collection_delay_is_spread_over_its_bounds_and_not_by_chance() -> None:
    low, high = COLLECTION_US
    delays = {
        broker: [AggregationOptions().collection_delay_us(broker, end_us) for end_us in range(200)]
        for broker in ("b1", "b2")
    }
    again = [AggregationOptions().collection_delay_us("b1", end_us) for end_us in range(200)]
    assert delays["b1"] == again != delays["b2"]
    assert low <= min(again) < low + 5_000
    assert high - 5_000 < max(again) <= high


def test_bounds_of_collection_delays_are_included() -> None:
    options = AggregationOptions(collection_us=(3, 4))
    assert {options.collection_delay_us("b1", end_us) for end_us in range(50)} == {3, 4}
