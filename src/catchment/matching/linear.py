"""The plain alternative: every event against every entry, compiled, with an early exit.

It reads the same codes and the same checks as the index does, so that the difference between the two is the index. Used
by the benchmark and by tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.matching.columns import columns_of
from catchment.matching.kernel import addresses_of, holds
from catchment.matching.matcher import Matcher, joined
from catchment.matching.memory import Array, compiled

__all__ = ["LinearScan"]


class LinearScan:
    """The filters of a matcher, looked at one after the other."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._entries = np.array(matcher.index.living(), np.int64)
        self._checks = matcher.index.selective_first()

    def match_slots(self, events: pa.Table | pa.RecordBatch) -> tuple[Array, Array]:
        """As `Matcher.match_slots`; the slots of an event come in another order."""
        matcher, found, offset = self._matcher, [], 0
        for batch in [events] if isinstance(events, pa.RecordBatch) else events.to_batches():
            columns, alive = columns_of(batch, matcher.schema, [])
            for first, codes, _, workspace in matcher.encoded(columns, batch.num_rows):
                rows, slots = _scan(self._checks, matcher.owners(), self._entries, codes, workspace.memo.bits)
                found.append((rows + np.int32(offset + first), slots))
            del alive
            offset += batch.num_rows
        return joined(found)


@compiled
def _scan(checks: Any, owners: Any, entries: Any, codes: Any, bits: Any) -> Any:
    addresses, codes_at, row_bytes = addresses_of(checks, bits), codes.ctypes.data, codes.shape[1] * 8
    of_entry, chain_slot, chain_next, is_split = owners.of_entry, owners.chain_slot, owners.chain_next, owners.is_split
    last = np.full(len(is_split), -1, np.int32)
    out_row, out_slot = np.empty(1024, np.int32), np.empty(1024, np.int32)
    found = 0
    for row in range(codes.shape[0]):
        for entry in entries:
            if not holds(addresses, entry, codes_at + row * row_bytes):
                continue
            owner = of_entry[entry]
            link = np.int64(-2 - owner) if owner < 0 else np.int64(-1)
            while True:
                slot = owner if owner >= 0 else chain_slot[link]
                if last[slot] != row or not is_split[slot]:
                    last[slot] = row
                    if found == len(out_row):
                        out_row, out_slot = _doubled(out_row), _doubled(out_slot)
                    out_row[found] = row
                    out_slot[found] = slot
                    found += 1
                if owner >= 0 or chain_next[link] < 0:
                    break
                link = np.int64(chain_next[link])
    return out_row[:found].copy(), out_slot[:found].copy()


@compiled
def _doubled(array: Any) -> Any:
    longer = np.empty(2 * len(array), array.dtype)
    longer[: len(array)] = array
    return longer
