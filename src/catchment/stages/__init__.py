"""The data plane's steps as pure functions over columns: compile, match, aggregate, merge, finish."""

from catchment.model.states import COLLECTED
from catchment.stages.compacting import compact_rows
from catchment.stages.describing import described_partials
from catchment.stages.finishing import ANSWER_SCHEMA, Finished, finish_rows, finish_windows
from catchment.stages.fitting import misfits, partials_from_bytes, partials_to_bytes
from catchment.stages.lots import (
    NOTHING,
    LotRows,
    cells_of,
    collected_values,
    lots_of,
    mixed,
    text_hashes,
    value_hashes,
    wants_of,
)
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
from catchment.stages.merging import Cells, Instance, Selection
from catchment.stages.open_cells import CELL_BYTES, ByCode, Names, OpenCells, in_pieces, together
from catchment.stages.packing import PACKED_SCHEMA, packed, unpacked
from catchment.stages.partials import PARTIAL_SCHEMA, partials_of
from catchment.stages.placing import Prepared, SeriesName, prepared_lots
from catchment.stages.plan import (
    Active,
    Asker,
    CellPlan,
    Layout,
    Part,
    Plan,
    Question,
    broker_of,
    compile_plan,
    part_of,
)
from catchment.stages.wire import LOT_KINDS, crossings_from, lot_tables, lots_from, pass_rows, pass_schema

__all__ = [
    "ANSWER_SCHEMA",
    "CELL_BYTES",
    "COLLECTED",
    "HEADER_BYTES",
    "LOT_KINDS",
    "NOTHING",
    "PACKED_SCHEMA",
    "PARTIAL_BYTES",
    "PARTIAL_SCHEMA",
    "Active",
    "Asker",
    "ByCode",
    "CellPlan",
    "Cells",
    "Finished",
    "Instance",
    "Judged",
    "Layout",
    "LotRows",
    "Names",
    "OpenCells",
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
    "collected_values",
    "compact_rows",
    "compile_plan",
    "crossings_from",
    "described_partials",
    "event_bytes",
    "finish_rows",
    "finish_windows",
    "in_pieces",
    "lot_tables",
    "lots_from",
    "lots_of",
    "misfits",
    "mixed",
    "origins_of",
    "packed",
    "part_of",
    "partials_from_bytes",
    "partials_of",
    "partials_of_accepted",
    "partials_to_bytes",
    "pass_rows",
    "pass_schema",
    "prepared_lots",
    "run_pass",
    "state_bytes",
    "state_bytes_max",
    "text_hashes",
    "together",
    "unpacked",
    "value_hashes",
    "wants_of",
]
