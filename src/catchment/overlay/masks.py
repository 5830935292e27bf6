"""Sets of brokers as bit masks: one bit per broker index, in words of 64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from catchment.model.errors import OverlayError

__all__ = ["Indices", "Words", "mask_of", "masks_of", "word_count"]

Words = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.integer]


def word_count(broker_count: int) -> int:
    """How many 64-bit words hold one bit per broker."""
    return (broker_count + 63) // 64


def mask_of(brokers: Iterable[int], broker_count: int) -> Words:
    """The set of these broker indices; shape [words]."""
    indices = np.fromiter(brokers, dtype=np.int64)
    rows = np.zeros(len(indices), dtype=np.int64)
    return masks_of(rows, indices, row_count=1, broker_count=broker_count).reshape(-1)


def masks_of(row: Indices, broker: Indices, *, row_count: int, broker_count: int) -> Words:
    """One set per row from aligned (row, broker index) pairs in any order; shape [row_count, words]."""
    for name, given, limit in (("row", row, row_count), ("broker index", broker, broker_count)):
        if len(given) and (given.min() < 0 or given.max() >= limit):
            raise OverlayError(f"{name} out of range: found {given.min()}..{given.max()}, accepted is 0..{limit - 1}")
    masks = np.zeros((row_count, word_count(broker_count)), dtype=np.uint64)
    bits = np.left_shift(np.uint64(1), (broker & 63).astype(np.uint64))
    np.bitwise_or.at(masks, (row, broker >> 6), bits)
    return masks
