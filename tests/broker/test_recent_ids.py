"""Recent ids are those of a plain dictionary with times, in a fifth of its memory; and they outlive a restart."""

import copy
import tracemalloc
from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.broker.recent_ids import Piece, RecentIds
from catchment.broker.recent_ids_kernel import BUCKETS, END, digests_of
from catchment.model.errors import CheckpointError, ConfigurationError

WINDOW_US = 10
MINUTES_US = 120_000_000
SMALL = 120
"""Bytes of a piece with room for two ids."""


class Dictionary:
    """The same in plain Python."""

    def __init__(self, window_us: int) -> None:
        self.window_us, self.latest_us = window_us, -(10**18)
        self.came_us: OrderedDict[str, int] = OrderedDict()

    def fresh(self, ids: list[str], came_us: list[int]) -> list[bool]:
        found = []
        for one, time_us in zip(ids, came_us, strict=True):
            self.latest_us = max(time_us, self.latest_us)
            while self.came_us and self.latest_us - next(iter(self.came_us.values())) > self.window_us:
                self.came_us.popitem(last=False)
            found.append(one not in self.came_us)
            self.came_us.setdefault(one, self.latest_us)
        return found

    def count_at(self, now_us: int) -> int:
        return sum(max(now_us, self.latest_us) - came_us <= self.window_us for came_us in self.came_us.values())


Call = tuple[list[str], list[int]]


@st.composite
def call_lists(draw: st.DrawFn) -> list[Call]:
    """Draw successive calls: ids that repeat, times that stand still, run back, or jump over the window's edge."""
    ids = st.sampled_from(["", "a", "b", "ab", "12345678", "123456789", "\0", "\0\0", "ä", "日本語", "🦆" * 9])
    steps = st.sampled_from([0, 0, 1, 2, WINDOW_US - 1, WINDOW_US, WINDOW_US + 1, 2**32, 2**32 + 5, -3])
    now_us, calls = draw(st.sampled_from([0, -5, 2**32 - 7, 1_700_000_000_000_000])), []
    for rows in draw(st.lists(st.lists(st.tuples(ids | st.text(), steps), max_size=12), max_size=8)):
        came_us = (now_us + np.cumsum([step for _, step in rows], dtype=np.int64)).tolist()
        now_us = came_us[-1] if came_us else now_us
        calls.append(([one for one, _ in rows], came_us))
    return calls


def fresh(recent: RecentIds, call: Call, before: int = 0, after: int = 0) -> list[bool]:
    """Ask with an array that is a slice of a longer one."""
    ids, came_us = call
    array = pa.array(["x"] * before + ids + ["y"] * after, pa.string()).slice(before, len(ids))
    return recent.fresh(array, np.array(came_us, np.int64)).tolist()  # type: ignore[no-any-return]


def starting_at(position: int, window_us: int) -> RecentIds:
    nothing = np.empty((0, 5), np.uint32)
    return RecentIds.restored(window_us, [Piece(position, position, position, 0, window_us, nothing).written()])


@given(call_lists(), st.integers(0, 3), st.integers(0, 3), st.integers(-2, 2 * WINDOW_US))
def test_it_is_a_dictionary_with_times(calls: list[Call], before: int, after: int, ahead_us: int) -> None:
    recent, plain = RecentIds(WINDOW_US), Dictionary(WINDOW_US)
    for call in calls:
        assert fresh(recent, call, before, after) == plain.fresh(*call)
        later_us = max(plain.latest_us, 0) + ahead_us
        assert recent.count_at(later_us) == plain.count_at(later_us)
        assert len(recent) == len(plain.came_us)


@pytest.mark.parametrize("begin", [0, 2**32 - 50_000, 2**33 - 3])
def test_it_grows_shrinks_and_wraps_round(begin: int) -> None:
    random, window_us, now_us = np.random.default_rng(1), 100_000, 1_700_000_000_000_000
    recent, plain = starting_at(begin, window_us), Dictionary(window_us)
    # At a rate of one id in so many µs: up to 50,000 ids, down to 2,000, up to 60,000, and down to one.
    for call_count, rows, apart_us in [(60, 1_000, 2), (80, 500, 50), (5, 20_000, 1), (3, 1, 200_000)]:
        for _ in range(call_count):
            ids = [f"client/{number}" for number in random.integers(0, 200_000, rows)]
            came_us = (now_us + np.cumsum(random.integers(0, 2 * apart_us + 1, rows))).tolist()
            now_us = came_us[-1]
            assert fresh(recent, (ids, came_us)) == plain.fresh(ids, came_us)
            assert len(recent) == len(plain.came_us)


def test_no_link_grows_old() -> None:
    """The same ids come again and again, so that some buckets never get a record; their heads are renewed still."""
    recent = RecentIds(WINDOW_US)
    for turn in range(100):
        ids = [str(number) for number in range(turn % 2, 1_000, 2)]
        assert all(fresh(recent, (ids, [turn * WINDOW_US * 2 // 3] * 500)))
    heads = recent._buckets.held[0][: recent._state[BUCKETS]].astype(np.int64)
    assert ((recent._state[END] - heads) % 2**32).max() <= 4_000


def test_an_id_is_known_by_the_published_digest() -> None:
    """SipHash-2-4 of 0, 1, … with 128 bits, as in `vectors.h` of its authors and as OpenSSL gives it."""
    published = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        7: "a1f1ebbed8dbc153c0b84aa61ff08239",
        8: "3b62a9ba6258f5610f83e264f31497b4",
        63: "5150d1772f50834a503e069a973fbd7c",
    }
    ids = pa.array([bytes(range(length)).decode() for length in published])
    _, offsets, data = ids.buffers()
    found = digests_of(offsets.address, data.address, len(ids))
    assert [one.tobytes().hex() for one in found] == list(published.values())


@given(call_lists(), call_lists(), call_lists(), st.sampled_from([SMALL, 1_000_000]))
def test_a_restored_one_goes_on_like_the_original(
    before: list[Call], between: list[Call], after: list[Call], max_bytes: int
) -> None:
    recent = RecentIds(WINDOW_US)
    for call in before:
        fresh(recent, call)
    earlier = recent.frozen()
    found_between = [fresh(recent, call) for call in between]
    later = recent.frozen()
    found_after = [fresh(recent, call) for call in after]

    pieces = list(earlier.pieces(max_bytes))
    restored = RecentIds.restored(WINDOW_US, pieces)
    assert [fresh(restored, call) for call in between] == found_between
    assert list(restored.frozen().pieces()) == list(later.pieces())
    pieces += later.pieces(max_bytes, after=earlier.end)
    assert max(map(len, pieces)) <= max_bytes
    needed = [one for one in pieces[:-1] if Piece.read(one).end > later.oldest] + pieces[-1:]
    for enough in (pieces, needed):
        restored = RecentIds.restored(WINDOW_US, enough)
        assert list(restored.frozen().pieces()) == list(later.pieces())
        assert [fresh(restored, call) for call in after] == found_after


class Publisher:
    """Lets new ids come, in calls of 1,000."""

    def __init__(self) -> None:
        self.recent, self.count, self.now_us = RecentIds(MINUTES_US), 0, 0

    def publish(self, count: int, apart_us: int) -> float:
        """Publish so many, each so long after the one before; returns the most memory per id after a call."""
        most = 0.0
        for _ in range(0, count, 1_000):
            ids = pa.array(np.arange(self.count, self.count + 1_000)).cast(pa.string())
            assert self.recent.fresh(ids, self.now_us + apart_us * np.arange(1, 1_001)).all()
            self.count += 1_000
            self.now_us += 1_000 * apart_us
            most = max(most, self.recent.nbytes / len(self.recent))
        return most


def test_an_id_takes_32_bytes() -> None:
    publisher = Publisher()
    publisher.publish(300_000, apart_us=400)
    assert publisher.publish(300_000, apart_us=400) <= 32
    assert len(publisher.recent) == 300_001


@pytest.mark.long
def test_twelve_million_ids_take_32_bytes_each() -> None:
    publisher = Publisher()
    publisher.publish(300_000, apart_us=10)
    assert publisher.publish(15_000_000, apart_us=10) <= 32
    assert len(publisher.recent) == 12_000_001


def test_all_memory_is_counted() -> None:
    tracemalloc.start()
    try:
        publisher = Publisher()
        publisher.publish(100_000, apart_us=10)
        assert publisher.recent.nbytes == pytest.approx(tracemalloc.get_traced_memory()[0], rel=0.02)
    finally:
        tracemalloc.stop()


def test_memory_is_freed_with_the_ids() -> None:
    publisher = Publisher()
    publisher.publish(300_000, apart_us=10)
    publisher.publish(150_000, apart_us=4_000)
    assert len(publisher.recent) == 30_001
    assert publisher.recent.nbytes < 1_500_000
    publisher.recent.forget(publisher.now_us + MINUTES_US + 1)
    assert len(publisher.recent) == 0
    assert publisher.recent.nbytes < 400_000


def test_memory_is_freed_by_the_next_id() -> None:
    publisher = Publisher()
    publisher.publish(300_000, apart_us=10)
    fresh(publisher.recent, (["next"], [publisher.now_us + MINUTES_US + 1]))
    assert len(publisher.recent) == 1
    assert publisher.recent.nbytes < 400_000


def test_a_snapshot_of_many_ids_stays_as_it_was() -> None:
    publisher = Publisher()
    publisher.publish(100_000, apart_us=10)
    frozen, again = publisher.recent.frozen(), publisher.recent.frozen()
    pieces = list(frozen.pieces())
    publisher.publish(200_000, apart_us=10)
    publisher.recent.forget(10**12)
    assert list(again.pieces()) == pieces
    ranges = [(one.begin, one.end) for one in map(Piece.read, pieces)]
    assert ranges == [(0, 49_996), (49_996, 99_992), (99_992, 100_000)]


def test_copies_share_nothing() -> None:
    recent = RecentIds(WINDOW_US)
    fresh(recent, (["a"], [1]))
    other = copy.copy(recent)
    assert fresh(other, (["a", "b"], [2, 2])) == [False, True]
    assert fresh(recent, (["a", "b"], [2, 2])) == [False, True]


def three_pieces() -> list[bytes]:
    recent = RecentIds(WINDOW_US)
    fresh(recent, (list("abcdef"), [1, 1, 2, 3, 3, 4]))
    return list(recent.frozen().pieces(SMALL))


@given(st.integers(0, 2), st.integers(0, SMALL - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused(piece: int, at: int, change: int) -> None:
    pieces = three_pieces()
    damaged = bytearray(pieces[piece])
    damaged[at] ^= change
    pieces[piece] = bytes(damaged)
    with pytest.raises(CheckpointError, match="120 bytes of remembered ids do not fit the checksum"):
        RecentIds.restored(WINDOW_US, pieces)


@pytest.mark.parametrize("length", [0, 31, 32, 79, 119])
def test_a_piece_cut_short_is_refused(length: int) -> None:
    first, *others = three_pieces()
    with pytest.raises(CheckpointError, match="do not fit the checksum"):
        RecentIds.restored(WINDOW_US, [first[:length], *others])


@pytest.mark.parametrize(
    ("kept", "complaint"),
    [
        ([], "no remembered ids are given"),
        ([1, 2], "ids are given from 2 on; accepted are all from 0 on"),
        ([0, 2], "ids 4 to 6 follow ids 0 to 2; accepted is a piece that begins at 2"),
        ([0, 1, 1, 2], "ids 2 to 4 follow ids 2 to 4"),
        ([1, 0, 2], "ids 0 to 2 follow ids 2 to 4"),
    ],
)
def test_pieces_that_are_missing_or_in_disorder_are_refused(kept: list[int], complaint: str) -> None:
    pieces = three_pieces()
    with pytest.raises(CheckpointError, match=complaint):
        RecentIds.restored(WINDOW_US, [pieces[one] for one in kept])


def test_ids_of_another_window_are_refused() -> None:
    with pytest.raises(CheckpointError, match="remembered for 10 µs; accepted are 20 µs"):
        RecentIds.restored(20, three_pieces())


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="4294967296 µs; accepted are 0 to 4294967295"):
        RecentIds(2**32)
    recent = RecentIds(WINDOW_US)
    with pytest.raises(ConfigurationError, match="1 ids have 2 times"):
        recent.fresh(pa.array(["a"]), np.array([1, 2]))
    with pytest.raises(ConfigurationError, match="LargeStringArray; accepted is pyarrow"):
        recent.fresh(pa.array(["a"], pa.large_string()), np.array([1]))
    with pytest.raises(ConfigurationError, match="after position 1; accepted are 100 bytes or more"):
        list(recent.frozen().pieces(after=1))
