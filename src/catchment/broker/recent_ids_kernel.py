"""Compiled: digests of ids, and a hash table of the records of recent ones.

A record has 24 bytes: digest (16), low 32 bits of its time (4), link (4) to the next older record of its bucket. The
position of a record is how many came before it; a link is the low 32 bits of a position.

Rule 1: the records of a bucket are linked newest first, so that the first forgotten one ends the chain: forgetting
        only moves `first`, and deletes nothing.
Rule 2: buckets split and merge one by one (linear hashing), so that no call has to rebuild the table.
Rule 3: each new record renews the head of one empty bucket, in turn, so that no link is 2^32 positions old and comes
        to mean a new record. That holds for up to 2^30 ids.
Rule 4: remembered times lie within the window, below 2^32 µs, so that 32 bits and the latest time give them in full.
Rule 5: pages of records and of buckets are reached by address. The caller provides enough of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from catchment.matching.memory import compiled, intrinsic, load_i32, load_i64, load_u8, load_u32, load_u64, prefetch

__all__ = [
    "BUCKETS",
    "EMPTY",
    "END",
    "FIRST",
    "LATEST_US",
    "PAGE_BUCKETS",
    "PAGE_RECORDS",
    "digests_of",
    "first_kept",
    "remember",
]

FIRST, END, LATEST_US, BUCKETS, HALF, TURN = range(6)
"""The state of a table: positions of the oldest record and of the next one; the latest time; how many buckets there
are; the largest power of two up to that; and the bucket whose turn it is to be renewed."""
EMPTY = (0, 0, -(1 << 62), 1, 1, 0)

PAGE_RECORDS, PAGE_BUCKETS = 1 << 13, 1 << 15
RECORD_BYTES, TIME_AT, LINK_AT = 24, 16, 20
LOW_32 = (1 << 32) - 1
BLOCK = 128
"""Ids whose memory is asked for before the first of them is looked up."""

# The key of SipHash's published test vectors: the digest must be the same everywhere, and need not be secret.
KEY = np.frombuffer(bytes(range(16)), "<u8")
START = np.frombuffer(b"uespemosmodnarodarenegylsetybdet", "<u8") ^ np.tile(KEY, 2)
V0, V1, V2, V3 = START ^ np.array([0, 0xEE, 0, 0], np.uint64)


def _storer(kind: types.Type, stored: ir.Type) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], stored.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return store


store_u32 = _storer(types.uint32, ir.IntType(32))
store_u64 = _storer(types.uint64, ir.IntType(64))


@compiled
def _rotated(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled
def _mixed(v0: Any, v1: Any, v2: Any, v3: Any, rounds: Any) -> Any:
    for _ in range(rounds):
        v0, v2 = v0 + v1, v2 + v3
        v1, v3 = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
        v0, v2 = _rotated(v0, 32) + v3, v2 + v1
        v1, v3 = _rotated(v1, 17) ^ v2, _rotated(v3, 21) ^ v0
        v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


@compiled
def digests_of(offsets: Any, data: Any, count: Any) -> Any:
    """Compute SipHash-2-4 with 128 bits of each string; offsets and data are addresses of Arrow's buffers."""
    digests = np.empty((count, 2), np.uint64)
    for row in range(count):
        address, last = data + load_i32(offsets + row * 4), data + load_i32(offsets + row * 4 + 4)
        word = np.uint64(last - address) << np.uint64(56)
        v0, v1, v2, v3 = V0, V1, V2, V3
        while address + 8 <= last:
            full = load_u64(address)
            v0, v1, v2, v3 = _mixed(v0, v1, v2, v3 ^ full, 2)
            v0 ^= full
            address += 8
        for at in range(last - address):
            word |= np.uint64(load_u8(address + at)) << np.uint64(8 * at)
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3 ^ word, 2)
        v0, v1, v2, v3 = _mixed(v0 ^ word, v1, v2 ^ np.uint64(0xEE), v3, 4)
        digests[row, 0] = v0 ^ v1 ^ v2 ^ v3
        v0, v1, v2, v3 = _mixed(v0, v1 ^ np.uint64(0xDD), v2, v3, 4)
        digests[row, 1] = v0 ^ v1 ^ v2 ^ v3
    return digests


@compiled
def _record(records: Any, position: Any) -> Any:
    """Find the address of a record; its page is one of a ring."""
    pages, mask = records
    page = load_i64(pages + ((position // PAGE_RECORDS) & mask) * 8)
    return page + (position % PAGE_RECORDS) * RECORD_BYTES


@compiled
def _head(heads: Any, bucket: Any) -> Any:
    """Find the address of the link to the newest record of a bucket."""
    return load_i64(heads + bucket // PAGE_BUCKETS * 8) + bucket % PAGE_BUCKETS * 4


@compiled
def _linked(link: Any, end: Any) -> Any:
    """Read the position at a link: the last one before `end` with these low bits."""
    return end - ((end - np.int64(load_u32(link))) & LOW_32)


@compiled
def _bucket_of(digest: Any, buckets: Any, half: Any) -> Any:
    bucket = np.int64(digest & np.uint64(2 * half - 1))
    return bucket if bucket < buckets else bucket - half


@compiled
def _time_us(records: Any, position: Any, latest_us: Any) -> Any:
    return latest_us - ((latest_us - np.int64(load_u32(_record(records, position) + TIME_AT))) & LOW_32)


@compiled
def _first_kept(records: Any, first: Any, end: Any, latest_us: Any, since_us: Any) -> Any:
    # Steps double while they skip only older records, and then halve: usually there are few to skip, or none.
    step, doubling = 1, True
    while step > 0:
        is_older = first + step <= end and _time_us(records, first + step - 1, latest_us) < since_us
        first += step if is_older else 0
        doubling = doubling and is_older
        step = 2 * step if doubling else step // 2
    return first


@compiled
def first_kept(state: Any, pages: Any, since_us: Any) -> Any:
    """Find the first position whose time is not before `since_us`."""
    records = pages.ctypes.data, len(pages) - 1
    return _first_kept(records, state[FIRST], state[END], state[LATEST_US], since_us)


@compiled
def _split(records: Any, heads: Any, first: Any, end: Any, buckets: Any, half: Any) -> Any:
    """Move to a new last bucket the records that belong there."""
    low, high = _head(heads, buckets - half), _head(heads, buckets)
    position = _linked(low, end)
    while position >= first:
        record = _record(records, position)
        if load_u64(record) & np.uint64(half):
            store_u32(high, position)
            high = record + LINK_AT
        else:
            store_u32(low, position)
            low = record + LINK_AT
        position = _linked(record + LINK_AT, end)
    store_u32(low, first - 1)
    store_u32(high, first - 1)


@compiled
def _merge(records: Any, heads: Any, first: Any, end: Any, buckets: Any, half: Any) -> Any:
    """Move the records of the last bucket to where they were before it was split off."""
    link = _head(heads, buckets - 1 - half)
    newer, older = _linked(link, end), _linked(_head(heads, buckets - 1), end)
    while max(newer, older) >= first:
        newer, older = max(newer, older), min(newer, older)
        store_u32(link, newer)
        link = _record(records, newer) + LINK_AT
        newer = _linked(link, end)
    store_u32(link, first - 1)


@compiled
def _fetch(records: Any, heads: Any, first: Any, end: Any, buckets: Any, half: Any, digests: Any, links: Any) -> Any:
    """Ask for the memory of the buckets that will be looked up or split, and of two records of each."""
    count = 0
    for digest in digests:
        links[count] = _head(heads, _bucket_of(digest, buckets, half))
        count += 1
    if buckets <= end - first:
        for bucket in range(buckets - half, min(buckets - half + len(digests), buckets)):
            links[count] = _head(heads, bucket)
            count += 1
    for at in range(count):
        prefetch(links[at])
    for _ in range(2):
        linked = 0
        for at in range(count):
            position = _linked(links[at], end)
            if position >= first:
                links[linked] = _record(records, position) + LINK_AT
                prefetch(links[linked])
                linked += 1
        count = linked


@compiled
def _is_known(records: Any, head: Any, first: Any, end: Any, low: Any, high: Any) -> Any:
    position = _linked(head, end)
    while position >= first:
        record = _record(records, position)
        if load_u64(record) == low and load_u64(record + 8) == high:
            return True
        position = _linked(record + LINK_AT, end)
    return False


@compiled
def remember(state: Any, pages: Any, bucket_pages: Any, window_us: Any, digests: Any, came_us: Any) -> Any:
    """Add a record for each digest that has none, and return which they were."""
    first, end, latest_us = state[FIRST], state[END], state[LATEST_US]
    buckets, half, turn = state[BUCKETS], state[HALF], state[TURN]
    records, heads = (pages.ctypes.data, len(pages) - 1), bucket_pages.ctypes.data
    fresh = np.zeros(len(digests), np.bool_)
    links = np.empty(2 * BLOCK, np.int64)
    for row in range(len(digests)):
        if row % BLOCK == 0:
            _fetch(records, heads, first, end, buckets, half, digests[row : row + BLOCK, 0], links)
        if came_us[row] > latest_us:
            first = _first_kept(records, first, end, latest_us, came_us[row] - window_us)
            latest_us = came_us[row]
        if first == end:
            buckets, half, turn = 1, 1, 0
            store_u32(_head(heads, 0), first - 1)
        low, high = digests[row, 0], digests[row, 1]
        head = _head(heads, _bucket_of(low, buckets, half))
        if not _is_known(records, head, first, end, low, high):
            fresh[row] = True
            record = _record(records, end)
            store_u64(record, low)
            store_u64(record + 8, high)
            store_u32(record + TIME_AT, latest_us)
            store_u32(record + LINK_AT, load_u32(head))
            store_u32(head, end)
            end += 1
            turn = turn + 1 if turn + 1 < buckets else 0
            if _linked(_head(heads, turn), end) < first:
                store_u32(_head(heads, turn), first - 1)
        if buckets < end - first:
            _split(records, heads, first, end, buckets, half)
            buckets += 1
            half = 2 * half if buckets == 2 * half else half
        for _ in range(2):
            if buckets > 2 * (end - first):
                half = half // 2 if buckets == half else half
                _merge(records, heads, first, end, buckets, half)
                buckets -= 1
    state[FIRST], state[END], state[LATEST_US] = first, end, latest_us
    state[BUCKETS], state[HALF], state[TURN] = buckets, half, turn
    return fresh
