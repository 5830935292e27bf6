"""The data plane's steps as pure functions over columns: compile, match, aggregate, merge, finish."""

from catchment.stages.compacting import compact_rows
from catchment.stages.finishing import Finished, finish_rows
from catchment.stages.lots import LotRows, lots_of
from catchment.stages.matching import (
    HEADER_BYTES,
    REASON,
    SIZE,
    PassResult,
    Wanted,
    event_bytes,
    origins_of,
    partials_of_accepted,
    run_pass,
)
from catchment.stages.merging import Selection
from catchment.stages.packing import PACKED_SCHEMA, packed, unpacked
from catchment.stages.partials import PARTIAL_SCHEMA, partials_of
from catchment.stages.placing import Prepared, prepared_lots
from catchment.stages.plan import Active, Plan, broker_of, compile_plan
from catchment.stages.wire import crossings_from, pass_rows, pass_schema

__all__ = [
    "HEADER_BYTES",
    "PACKED_SCHEMA",
    "PARTIAL_SCHEMA",
    "REASON",
    "SIZE",
    "Active",
    "Finished",
    "LotRows",
    "PassResult",
    "Plan",
    "Prepared",
    "Selection",
    "Wanted",
    "broker_of",
    "compact_rows",
    "compile_plan",
    "crossings_from",
    "event_bytes",
    "finish_rows",
    "lots_of",
    "origins_of",
    "packed",
    "partials_of",
    "partials_of_accepted",
    "pass_rows",
    "pass_schema",
    "prepared_lots",
    "run_pass",
    "unpacked",
]
