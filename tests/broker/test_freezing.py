"""Taking a snapshot changes nothing, and what the broker does while its pieces are written does not show in them."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from catchment.broker.broker import Broker
from catchment.broker.memory import PIECE_BYTES_MAX, freeze, restored
from catchment.overlay.placement import ONLINE
from tests.broker.test_hosting import SETTINGS, advice, aggregating, new_broker, story

SEEDS = 4 * len(ONLINE)
"""Each placement with either delivery, twice."""


class Watch:
    """Freezes a broker at random moments, and lets pieces be written later, one after the other."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._unwritten: Iterator[bytes] = iter(())
        self._expected: list[bytes] = []
        self._written: list[bytes] = []
        self.seen: Counter[str] = Counter()

    def after_step(self, broker: Broker) -> list[bytes]:
        """The pieces of the snapshot that was taken, if one was."""
        for data in self._next(self._random.randint(0, 2)):
            self._written.append(data)
        if len(self._written) == len(self._expected):
            assert self._written == self._expected
            if self._random.random() < 0.3:
                return self._freeze(broker)
        return []

    def _next(self, count: int) -> Iterator[bytes]:
        for _, data in zip(range(count), self._unwritten, strict=False):
            yield data

    def _freeze(self, broker: Broker) -> list[bytes]:
        self._expected, self._written = list(freeze(broker).pieces()), []
        self._unwritten = freeze(broker).pieces()
        assert max(map(len, self._expected)) <= PIECE_BYTES_MAX
        self.seen["pieces"] += len(self._expected)
        self.seen["timers"] += len(broker.weaver.timers)
        for what, size in broker.table_sizes().items():
            self.seen[what] += size
        return self._expected


def check(seed: int) -> Counter[str]:
    """What was there when snapshots were taken."""
    how, random = aggregating(seed), Random(seed)
    (log, _), watch = story(seed), Watch(random)
    calm, frozen = new_broker(how), new_broker(how)
    back: Broker | None = None
    while calm.position + 1 < log.end:
        inputs = log.read(calm.position + 1, calm.position + 1 + random.randint(1, 5))
        expected = calm.step(inputs)
        for broker in (frozen, back):
            if broker is not None:
                step = broker.step(inputs)
                where = f"seed {seed}, {how.placement}, {how.delivery}, at {broker.position}"
                assert (step.sends, step.timer_us) == (expected.sends, expected.timer_us), where
        pieces = watch.after_step(frozen)
        if pieces:
            back = restored(pieces, SETTINGS, advice(how))
    assert frozen.counters == calm.counters
    return watch.seen


@pytest.mark.parametrize("first", [0, SEEDS])
def test_taking_snapshots_changes_nothing_whatever_is_open(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + SEEDS):
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
