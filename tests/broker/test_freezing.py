"""Taking a snapshot changes nothing, and what the broker does while its pieces are written does not show in them."""

from collections import Counter
from random import Random

import pytest

from catchment.broker.broker import Broker
from catchment.broker.memory import PIECE_BYTES_MAX, freeze, restored
from catchment.overlay.placement import ONLINE
from tests.broker.test_hosting import SETTINGS, advice, aggregating, new_broker, story

SEEDS = 4 * len(ONLINE)
"""Each placement with either delivery, twice."""


class Unwritten:
    """A snapshot whose pieces are written one after the other while its broker goes on."""

    def __init__(self, broker: Broker) -> None:
        self._expected = list(freeze(broker).pieces())
        self._pieces, self._written = freeze(broker).pieces(), list[bytes]()
        assert max(map(len, self._expected)) <= PIECE_BYTES_MAX

    @property
    def pieces(self) -> list[bytes]:
        """As they were before the broker went on."""
        return self._expected

    def write(self) -> bool:
        """Write a piece; whether there are more."""
        self._written.append(next(self._pieces))
        assert self._written[-1] == self._expected[len(self._written) - 1]
        return len(self._written) < len(self._expected)


def check(seed: int) -> Counter[str]:
    """What was there when snapshots were taken."""
    how, random, seen = aggregating(seed), Random(seed), Counter[str]()
    log, _ = story(seed)
    calm, frozen = new_broker(how), new_broker(how)
    back: Broker | None = None
    unwritten: list[Unwritten] = []
    while calm.position + 1 < log.end:
        inputs = log.read(calm.position + 1, calm.position + 1 + random.randint(1, 5))
        expected = calm.step(inputs)
        for broker in (frozen, back):
            if broker is not None:
                step = broker.step(inputs)
                where = f"seed {seed}, {how.placement}, {how.delivery}, at {broker.position}"
                assert (step.sends, step.timer_us) == (expected.sends, expected.timer_us), where
        unwritten = [one for one in unwritten if random.random() < 0.5 or one.write()]
        if random.random() < 0.2:
            unwritten.append(Unwritten(frozen))
            seen["timers"] += len(frozen.weaver.timers)
            seen.update(frozen.table_sizes())
            back = restored(unwritten[-1].pieces, SETTINGS, advice(how))
            # What nobody needed since the broker is back is written as it was read.
            unwritten.append(Unwritten(back))
    assert frozen.counters == calm.counters
    return seen


def test_taking_snapshots_changes_nothing_whatever_is_open() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += check(seed)
    for what in ("cells of open windows", "held publications", "series", "timers", "remembered ids", "waiting answers"):
        assert seen[what] > 0, what


def test_a_broker_that_was_just_restored_shares_nothing_with_its_snapshot() -> None:
    for seed in range(len(ONLINE)):
        how = aggregating(seed)
        log, _ = story(seed)
        before = new_broker(how)
        before.step(log.read(1, log.end // 2))
        back = restored(freeze(before).pieces(), SETTINGS, advice(how))
        frozen, expected = freeze(back), list(freeze(back).pieces())
        back.step(log.read(back.position + 1))
        assert list(frozen.pieces()) == expected, f"seed {seed}, {how.placement}"


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_taking_a_thousand_times_snapshots_changes_nothing(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)
