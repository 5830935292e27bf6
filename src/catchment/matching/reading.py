"""Compiled: from the buffers of Arrow columns to codes and cells.

A code is an int64 that orders the values of a lane; a cell is the bucket of the lane that the code falls into. A lane
is one way to look at an attribute: its values in their order, its strings backwards, or the pieces its strings contain.

Rule 1: nothing here allocates per value.
Rule 2: a problem is reported as a number and a row; the caller words the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.matching.layout import (
    FINE,
    FLIP,
    FLOAT32,
    FLOAT64,
    KIND,
    LOWEST_CODE,
    MISSING,
    NOT_A_FLOAT,
    NOT_FINITE,
    NULL_CODE,
    OFFSET,
    SCALE,
    TOO_LARGE,
    UINT64,
    UTF8,
    VALIDITY,
    VALUES,
)
from catchment.matching.memory import compiled, load_f32, load_f64
from catchment.matching.strings import read_strings
from catchment.matching.values import cell_of, integer_at, is_valid

__all__ = ["read"]


@compiled
def _integer_codes(column: Any, first: Any, code: Any) -> Any:
    kind, values, validity, scale = column[KIND], column[VALUES], column[VALIDITY], column[SCALE]
    for row in range(len(code)):
        position = column[OFFSET] + first + row
        value = integer_at(kind, values, position)
        if not is_valid(validity, position):
            value = NULL_CODE
        elif (kind == UINT64 and value < 0) or (scale > 1 and (value < -(FLIP // scale) or value > FLIP // scale)):
            return TOO_LARGE, row
        elif value == NULL_CODE:
            value = LOWEST_CODE  # no filter tells the two least integers apart
        elif scale > 1:
            value *= scale
        elif scale < 0:
            value //= -scale
        code[row] = value
    return FINE, 0


@compiled
def _float_codes(column: Any, first: Any, code: Any) -> Any:
    kind, values, validity = column[KIND], column[VALUES], column[VALIDITY]
    value, bits = code.view(np.float64), code
    for row in range(len(code)):
        position = column[OFFSET] + first + row
        if kind == FLOAT64:
            number = load_f64(values + position * 8)
        elif kind == FLOAT32:
            number = np.float64(load_f32(values + position * 4))
        else:
            whole = integer_at(kind, values, position)
            number = np.float64(whole)
            # From 2^53 on not every integer is a double; at 2^63 there is no int64 to compare with.
            exact = abs(number) < 2.0**53 or (number < 2.0**63 and np.int64(number) == whole)
            if not (exact and (kind != UINT64 or whole >= 0)) and is_valid(validity, position):
                return NOT_A_FLOAT, row
        valid = is_valid(validity, position)
        if valid and not np.isfinite(number):
            return NOT_FINITE, row
        value[row] = number + 0.0  # -0.0 is 0.0
        bits[row] = (bits[row] if bits[row] >= 0 else bits[row] ^ FLIP) if valid else NULL_CODE
    return FINE, 0


@compiled
def _read_numbers(
    column: Any, is_float: Any, lane: Any, first: Any, lanes: Any, code: Any, codes: Any, cells: Any
) -> Any:
    problem, row = _float_codes(column, first, code) if is_float else _integer_codes(column, first, code)
    if problem != FINE:
        return problem, row
    search, null_cell, cell_max = lanes.search[lane].ctypes.data, lanes.first_cell[lane], lanes.cell_max[lane]
    for row in range(len(code)):
        codes[row, lane] = code[row]
        cell = cell_of(search, cell_max, code[row])
        cells[row, lane] = null_cell + cell * (code[row] != NULL_CODE)
    return FINE, 0


READ_ROWS = 256
"""Rows of which all columns are read before the next: so their codes and cells are written while in the cache."""


@compiled
def read(columns: Any, start: Any, lanes: Any, constants: Any, pieces: Any, memo: Any, codes: Any, cells: Any) -> Any:
    """Fill codes and cells for the rows from `start` on; says what was wrong, with which attribute, in which row."""
    buffer = np.empty(min(READ_ROWS, codes.shape[0]), np.int64)
    for begin in range(0, codes.shape[0], READ_ROWS):
        some_codes, some_cells = codes[begin : begin + READ_ROWS], cells[begin : begin + READ_ROWS]
        for attribute in range(columns.shape[0]):
            column = columns[attribute]
            plain, backwards, parts = lanes.of_attribute[attribute]
            if plain < 0 and backwards < 0 and parts < 0:
                continue
            if column[KIND] == MISSING:
                for lane in (plain, backwards, parts):
                    if lane >= 0:
                        for row in range(len(some_codes)):
                            some_codes[row, lane] = NULL_CODE
                            some_cells[row, lane] = lanes.first_cell[lane]
                continue
            if column[KIND] >= UTF8:
                problem, row = read_strings(
                    column, attribute, start + begin, lanes, constants, pieces, memo, some_codes, some_cells
                )
            else:
                problem, row = _read_numbers(
                    column, lanes.is_float[attribute], plain, start + begin, lanes, buffer[: len(some_codes)],
                    some_codes, some_cells,
                )  # fmt: skip
            if problem != FINE:
                return problem, attribute, begin + row
    return FINE, 0, 0
