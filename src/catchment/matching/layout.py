"""What the kernels share: codes, what columns say, and the arrays that describe lanes and strings."""

from __future__ import annotations

from typing import NamedTuple

from catchment.matching.memory import Array

NULL_CODE = -(2**63)
LOWEST_CODE, HIGHEST_CODE = NULL_CODE + 1, 2**63 - 1
FLIP = 2**63 - 1

# What a row of `columns` says about an attribute.
KIND, VALUES, VALIDITY, OFFSET, DATA, SCALE, INDEX_KIND, INDEX, INDEX_VALIDITY, INDEX_OFFSET = range(10)
COLUMN_FIELDS = 10
MISSING, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64, BOOL, UTF8, LARGE_UTF8 = range(14)

# What is wrong with a value.
FINE, MEMO_FULL, NOT_FINITE, TOO_LARGE, NOT_A_FLOAT = range(5)


class Lanes(NamedTuple):
    """Where the cells of each lane are. Cell 0 of a lane is null, cell k+1 lies above k of its boundaries."""

    of_attribute: Array
    is_float: Array
    cell_lane: Array
    """The lane whose cells count for a lane: pieces have none of their own, as the strings' order says what is null."""
    first_cell: Array
    cell_max: Array
    """Cells of a lane but the one of null, whose number within the lane is 0."""
    first_boundary: Array
    boundary: Array
    search: Array
    """The boundaries of each lane again, 16 by 16, behind every sixteenth of them."""


# What is remembered about a string: columns of a record of 64 bytes. There are two codes and two cells.
HASH, START, LENGTH, CODE, _, CELL, _, BITS_AT = range(8)
RECORD_FIELDS = 8


class Memo(NamedTuple):
    """Strings already seen, in an open hash table, with what was worked out about each."""

    table: Array
    record: Array
    pool: Array
    """Their bytes."""
    bits: Array
    """Per string, the set of pieces it contains."""
    counts: Array
    """Strings, bytes of the pool, words of bits: in use."""
