"""The data plane's steps as pure functions over columns: compile, match, aggregate, merge, finish."""

from catchment.model.states import COLLECTED
from catchment.stages.compacting import compact_rows
from catchment.stages.finishing import ANSWER_SCHEMA, Finished, finish_rows
from catchment.stages.lots import LotRows, cells_of, lots_of
from catchment.stages.matching import (
    Judged,
    PassResult,
    Wanted,
    origins_of,
    partials_of_accepted,
    run_pass,
)
from catchment.stages.measuring import (
    HEADER_BYTES,
    PARTIAL_BYTES,
    event_bytes,
    state_bytes,
    state_bytes_max,
)
from catchment.stages.merging import Selection
from catchment.stages.packing import PACKED_SCHEMA, packed, unpacked
from catchment.stages.partials import PARTIAL_SCHEMA, partials_of
from catchment.stages.placing import Prepared, SeriesName, prepared_lots
from catchment.stages.plan import Active, Layout, Part, Plan, Question, broker_of, compile_plan, part_of
from catchment.stages.wire import LOT_KINDS, crossings_from, lot_tables, lots_from, pass_rows, pass_schema

__all__ = [
    "ANSWER_SCHEMA",
    "COLLECTED",
    "HEADER_BYTES",
    "LOT_KINDS",
    "PACKED_SCHEMA",
    "PARTIAL_BYTES",
    "PARTIAL_SCHEMA",
    "Active",
    "Finished",
    "Judged",
    "Layout",
    "LotRows",
    "Part",
    "PassResult",
    "Plan",
    "Prepared",
    "Question",
    "Selection",
    "SeriesName",
    "Wanted",
    "broker_of",
    "cells_of",
    "compact_rows",
    "compile_plan",
    "crossings_from",
    "event_bytes",
    "finish_rows",
    "lot_tables",
    "lots_from",
    "lots_of",
    "origins_of",
    "packed",
    "part_of",
    "partials_of",
    "partials_of_accepted",
    "pass_rows",
    "pass_schema",
    "prepared_lots",
    "run_pass",
    "state_bytes",
    "state_bytes_max",
    "unpacked",
]
