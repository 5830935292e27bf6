"""Sources that land in lumps, each with the events since the lump before it, under the default settings, without Spark.

driver   0s        60s        120s        180s
lumps    │■        │■         │■          │■          each brings the events of the minute before it
events   ├─────────┼──────────┼───────────┤
"""

import inspect
import random
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import stream
from catchment.model.times import duration_us
from catchment.pipeline.ledger import Ledger, Pin, moved_on

SECOND_US = 1_000_000
IDLE_AFTER_US = duration_us(inspect.signature(stream).parameters["idle_after"].default)
START_US = 1_700_000_000 * SECOND_US


@dataclass(frozen=True)
class Lumps:
    """A broker's lumps: about every `interval_s`, each late by up to a share of it, the first after `phase_s`."""

    interval_s: float
    jitter: float
    phase_s: float
    delay_s: float = 0.0
    """How long its events take to the driver at least."""

    def arrivals(self, seed: int, until_s: float) -> Iterator[tuple[int, int, int]]:
        """When lumps come, and the first and last event time in each."""
        chance = random.Random(seed)
        number, known_s = 0, self.phase_s - self.interval_s
        while self.phase_s + number * self.interval_s < until_s:
            comes_s = self.phase_s + (number + chance.random() * self.jitter) * self.interval_s
            yield _us(comes_s), _us(known_s - self.delay_s) + 1, _us(comes_s - self.delay_s)
            known_s, number = comes_s, number + 1


def _us(seconds: float) -> int:
    return START_US + round(seconds * SECOND_US)


def dropped(
    brokers: dict[str, Lumps], *, seed: int, until_s: float, batch_s: float = 1.0, idle_after_us: int = IDLE_AFTER_US
) -> tuple[int, Ledger]:
    """How many lumps had an event behind the watermark, and the last ledger; batches run as long as one takes."""
    chance = random.Random(seed)
    waiting = sorted(
        (*arrival, broker)
        for number, (broker, lumps) in enumerate(sorted(brokers.items()))
        for arrival in lumps.arrivals(seed + number, until_s)
    )
    ledger, late, now_us = Ledger(), 0, START_US - SECOND_US
    while now_us < _us(until_s):
        now_us += round(batch_s * SECOND_US * (0.5 + chance.random()))
        heard: dict[str, tuple[int, int]] = {}
        while waiting and waiting[0][0] <= now_us:
            _, first_us, last_us, broker = waiting.pop(0)
            late += ledger.watermark_us is not None and first_us < ledger.watermark_us
            heard[broker] = (max(last_us, heard.get(broker, (last_us, 0))[0]), 1)
        pin = Pin(version=1, began_us=now_us, resumed_us=START_US - SECOND_US)
        moved = moved_on(ledger, pin, heard, lateness_us=0, idle_after_us=idle_after_us)
        ledger = Ledger(batch=ledger.batch + 1, **msgspec.structs.asdict(moved))
    return late, ledger


lumps = st.builds(
    Lumps,
    interval_s=st.sampled_from([0.5, 1, 5, 15, 30, 60]),
    jitter=st.floats(0, 0.5),
    phase_s=st.floats(0, 60),
    delay_s=st.floats(0, 300),
)


@settings(max_examples=150)
@given(
    sources=st.lists(lumps, min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
    batch_s=st.sampled_from([0.2, 1.0, 7.0]),
)
def test_nothing_is_dropped_from_sources_that_land_by_the_minute(
    sources: list[Lumps], seed: int, batch_s: float
) -> None:
    brokers = {f"b{number}": source for number, source in enumerate(sources)}
    late, ledger = dropped(brokers, seed=seed, until_s=400, batch_s=batch_s)
    assert late == 0
    assert ledger.watermark_us is not None
    slowest_s = max(one.interval_s * (1 + one.jitter) + one.delay_s for one in sources)
    assert ledger.watermark_us >= _us(400 - slowest_s - 4 * batch_s), "it goes on, too"


@pytest.mark.long
@settings(max_examples=3_000)
@given(
    sources=st.lists(lumps, min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
    batch_s=st.sampled_from([0.2, 1.0, 7.0, 20.0]),
)
def test_nothing_is_dropped_over_an_hour(sources: list[Lumps], seed: int, batch_s: float) -> None:
    brokers = {f"b{number}": source for number, source in enumerate(sources)}
    assert dropped(brokers, seed=seed, until_s=3_600, batch_s=batch_s)[0] == 0


@pytest.mark.parametrize("interval_s", [300, 900])
def test_longer_intervals_are_learned_from_the_first_one(interval_s: int) -> None:
    slow = {"b1": Lumps(interval_s, 0.3, 0)}
    late, _ = dropped(slow, seed=3, until_s=30 * interval_s, batch_s=5)
    assert late == 1, "the first pause comes unexpected"


def test_a_silent_broker_holds_windows_up_for_two_minutes_and_no_longer() -> None:
    # b2 speaks every second for a while, and then never again.
    both = {"b1": Lumps(1, 0, 0), "b2": Lumps(1, 0, 0)}
    _, ledger = dropped(both, seed=1, until_s=100)
    reached = []
    for silent_s in (60, 119, 121, 600):
        pin = Pin(version=1, began_us=_us(100 + silent_s), resumed_us=START_US)
        heard = {"b1": (_us(100 + silent_s), 1)}
        moved = moved_on(ledger, pin, heard, lateness_us=0, idle_after_us=IDLE_AFTER_US)
        assert moved.watermark_us is not None
        reached.append(round((moved.watermark_us - _us(100)) / SECOND_US))
    assert reached[:2] == [-1, -1]
    assert 0 < reached[2] < 121
    assert 600 - 120 <= reached[3] <= 600


def test_what_comes_after_a_long_silence_is_not_late_where_it_lands_in_lumps() -> None:
    steady = Lumps(60, 0.2, 0)
    back = dropped({"b1": steady}, seed=5, until_s=600)[1]
    for silent_s in range(60, 3_600, 60):
        pin = Pin(version=1, began_us=_us(600 + silent_s), resumed_us=START_US)
        moved = moved_on(back, pin, {}, lateness_us=0, idle_after_us=IDLE_AFTER_US)
        assert moved.watermark_us is not None
        assert moved.watermark_us <= _us(600 + silent_s - 60), "the minute before now may still come"


def test_a_night_of_silence_is_forgotten_and_never_makes_others_wait_for_hours() -> None:
    _, ledger = dropped({"b1": Lumps(1, 0, 0)}, seed=1, until_s=200)
    night_us = 8 * 3600 * SECOND_US
    pin = Pin(version=1, began_us=_us(200) + night_us, resumed_us=START_US)
    moved = moved_on(ledger, pin, {"b1": (pin.began_us, 1)}, lateness_us=0, idle_after_us=IDLE_AFTER_US)
    woken = Ledger(batch=ledger.batch + 1, **msgspec.structs.asdict(moved))
    later = Pin(version=1, began_us=pin.began_us + 10 * IDLE_AFTER_US, resumed_us=START_US)
    moved = moved_on(woken, later, {"b2": (later.began_us, 1)}, lateness_us=0, idle_after_us=IDLE_AFTER_US)
    assert moved.watermark_us == pin.began_us, "idle from ten times idle_after on, whatever was learned"


def test_with_all_brokers_known_and_heard_nobody_is_waited_for() -> None:
    heard = {"b1": (_us(5), 1), "b2": (_us(4), 1)}
    pin = Pin(version=1, began_us=_us(6), resumed_us=START_US)
    for expected, reached in (((), None), (("b1", "b2", "b3"), None), (("b1", "b2"), _us(4))):
        moved = moved_on(Ledger(), pin, heard, lateness_us=0, idle_after_us=IDLE_AFTER_US, expected=expected)
        assert moved.watermark_us == reached
