"""Compiled: a few events from columns to pairs in one call, as handing arrays over costs more than matching them."""

from __future__ import annotations

from typing import Any

from catchment.matching.kernel import look
from catchment.matching.layout import FINE
from catchment.matching.memory import compiled
from catchment.matching.pairs import count, emit
from catchment.matching.reading import read

__all__ = ["match_few"]


@compiled
def match_few(
    columns: Any, lanes: Any, texts: Any, pieces: Any, memo: Any, codes: Any, cells: Any, tiles: Any, checks: Any,
    owners: Any, scratch: Any, out_row: Any, out_slot: Any,
) -> Any:  # fmt: skip
    """How many pairs there are, written if there is room for them; -1 if something else is wrong, which the long way
    will tell."""
    problem, _, _ = read(columns, 0, lanes, texts, pieces, memo, codes, cells)
    if problem != FINE:
        return -1
    hits = look(tiles, checks, codes, cells, memo.bits, scratch)
    if hits < 0:
        return -1
    pairs = count(owners, scratch, codes.shape[0], hits)
    if pairs > len(out_row):
        return pairs
    return emit(owners, scratch, len(tiles.fail), codes.shape[0], 0, out_row, out_slot)
