"""The tables of operators and states: nothing is missing in any, and a new operator is one row."""

from __future__ import annotations

import json
import math
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pytest

from catchment import Overlay, Subscription, simulate
from catchment.model.errors import SubscriptionError
from catchment.model.events import as_events
from catchment.model.operators import BEYOND_DOUBLE, OPERATORS, Measure, Operator, beyond_integer, operator_named
from catchment.model.schema import Schema, Type
from catchment.model.states import COLLECTED, MOMENTS, REAL_TOTAL, STATES, WHOLE_TOTAL, BlobState, State
from catchment.oracle import measures as oracle_measures
from catchment.stages import Active, Selection, compile_plan, partials_of_accepted, state_bytes, state_bytes_max
from catchment.stages.holding import _ROWS, BY_CODE, COLUMNS, HELD
from catchment.stages.merging import merge_cells, windows_of
from catchment.stages.partials import PARTIAL_SCHEMA
from tests.stages.local import answers

SCHEMA = Schema({"n": "int", "six": "int", "few": "int", "x": "float", "s": "string", "b": "bool", "t": "timestamp"})
VALUES: dict[str, list[Any]] = {
    "n": [5, -3, 0, 2**62, 2**62, 2**62],
    "six": [1, 2, 3, 4, 5, 6],
    "few": [1, None, -2, 3, None, None],
    "x": [0.5, 1.0, -2.25, 1.7e308, 1.7e308, 8.0],
    "s": ["b", "a", None, "", "é", "b"],
    "b": [True, None, False, True, True, True],
    "t": [7, 3, 3, None, 9, 1],
}


def events() -> pa.Table:
    count = len(VALUES["n"])
    columns = {
        "event_id": pa.array(range(count)),
        "topic": pa.array(["t"] * count),
        "broker": pa.array(["b1"] * count),
        "ts": pa.array(range(count), pa.timestamp("us", tz="UTC")),
    }
    given = {name: pa.array(values, SCHEMA[name].arrow) for name, values in VALUES.items()}
    return as_events(pa.table({**columns, **given}), SCHEMA)


def asking(text: str) -> Subscription:
    return Subscription("one", "b1", sql=f"SELECT {text} FROM t GROUP BY window(ts, '1 second')")


# -- nothing is missing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATES)
def test_every_state_has_all_its_facts(name: str) -> None:
    state = STATES[name]
    assert state.name == name
    assert state.contents
    assert 0 < state_bytes(name) == state.size_bytes <= state_bytes_max(name) == state.size_bytes_max
    for kind in Type:
        held = HELD[name, kind]
        assert set(held.columns) <= set(COLUMNS)
        assert set(held.large) <= set(held.columns)
        assert held.columns == BY_CODE[held.code].columns
        is_text = isinstance(state, State) and "blob" in held.columns
        assert (held.choose is not None) == is_text


def test_both_tables_have_the_same_states() -> None:
    assert {row if isinstance(row, str) else row[0] for row in _ROWS} == set(STATES)
    assert {name for name, _ in HELD} == set(STATES)
    assert sorted(BY_CODE) == list(range(len(BY_CODE)))  # every code of the kernels, and no other
    assert {"values", "distinct values"} == COLLECTED


def test_a_state_without_a_size_is_an_error() -> None:
    verbs = {verb: lambda *given: None for verb in ("create", "add", "merge", "numbers")}
    with pytest.raises(TypeError, match="size_bytes"):
        State("new", "something", **verbs)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="size_bytes"):
        BlobState("new", "something")  # type: ignore[call-arg]
    with pytest.raises(KeyError):
        state_bytes("new")


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_all_its_facts(name: str) -> None:
    operator = OPERATORS[name]
    assert operator.name == name
    assert operator.category in get_args(get_type_hints(Operator)["category"])
    assert operator.accepts
    for kind in operator.accepts:
        assert STATES[operator.state(kind).name] is operator.state(kind)
        assert operator.result(kind) in (None, *Type)
    # Of nothing, there is nothing or a result; the formula fits the numbers of the state and the parameters.
    measure = Measure(name, "x", tuple(1.0 for _ in operator.parameters))
    assert measure.finish(operator.create(operator.accepts[0]), operator.accepts[0]) in (None, 0, [])
    assert (operator.category == "not decomposable") == (operator.travels.name in COLLECTED)
    assert name in oracle_measures._MEASURES


def test_no_two_operators_have_the_same_spelling() -> None:
    spellings = [text for one in OPERATORS.values() for text in (one.name, *one.spellings)]
    assert len(spellings) == len(set(spellings))
    assert all(operator_named(text) in OPERATORS for text in spellings)
    assert operator_named("nothing") is None


@pytest.mark.parametrize("attribute", SCHEMA)
def test_columns_hold_the_numbers_that_single_states_hold(attribute: str) -> None:
    kind = SCHEMA[attribute]
    for name, operator in OPERATORS.items():
        state = operator.state(kind)
        if kind not in operator.accepts or isinstance(state, BlobState) or "blob" in HELD[state.name, kind].columns:
            continue
        plan = compile_plan([Active(asking(f"{name}({attribute})"))], {"t": SCHEMA}, Overlay.from_links([("b1", "b2")]))
        rows = pa.Table.from_batches(
            [one for batch in events().to_batches() for one in partials_of_accepted(plan, batch)], PARTIAL_SCHEMA
        )
        instances, _, cells = merge_cells(rows, plan, words=0)
        ((code, merged),) = cells.items()
        assert code == HELD[state.name, kind].code
        found = HELD[state.name, kind].numbers(windows_of(merged, instances, Selection()), np.array([0]))
        single = operator.fold([value for value in VALUES[attribute] if value is not None], kind)
        count, *expected = state.numbers(single)
        assert len(found) == 1 + len(expected)
        has_count = state.name not in ("lowest", "highest")  # a single one knows only whether it has met any
        assert (found[0][0] == count) if has_count else (found[0][0] > 0)
        for column, number in zip(found[1:], expected, strict=True):
            assert np.broadcast_to(column, 1)[0] == pytest.approx(0 + number, rel=1e-12, nan_ok=True)


def test_the_mean_of_a_total_beyond_64_bits_is_a_double() -> None:
    asked = [asking("avg(n), sum(n), avg(six)")]
    table = events()
    table = table.set_column(table.schema.get_field_index("n"), "n", pa.array([2**63 - 1] * len(table)))
    notifications, _, overflows = answers(table, asked, {"t": SCHEMA})
    problem = beyond_integer(len(table) * (2**63 - 1))
    assert told(notifications, overflows) == {"avg(n)": 2.0**63, "avg(six)": 3.5, "sum(n)": problem}


# -- a new operator is one row ----------------------------------------------------------------------------------------

TOYS = [
    Operator(
        "root_mean_square", "indirectly decomposable", (Type.INT, Type.FLOAT), Type.FLOAT, MOMENTS,
        lambda n, mean, squares: (squares / n + mean * mean) ** 0.5, spellings=("rms",),
    ),
    Operator(
        "double_sum", "self-decomposable", (Type.INT, Type.FLOAT), "the same", WHOLE_TOTAL,
        lambda n, total, scale: 2 * total * scale, travels_of_floats=REAL_TOTAL, fewest=6,
    ),
]  # fmt: skip


def told(notifications: pa.Table, overflows: pa.Table) -> dict[str, Any]:
    found = {row["output"]: json.loads(row["exact"]) for row in notifications.to_pylist()}
    return found | {row["output"]: row["problem"] for row in overflows.to_pylist()}


def test_a_new_numeric_operator_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SubscriptionError, match="no aggregate"):
        _ = asking("rms(few)").query
    for row in TOYS:
        monkeypatch.setitem(OPERATORS, row.name, row)
    outputs = ["rms(few)", "rms(x)", "double_sum(few)", "double_sum(n)", "double_sum(x)", "double_sum(six)"]
    asked = [asking(", ".join(outputs))]
    overlay = Overlay.from_links([("b1", "b2")])
    notifications, _, overflows = answers(events(), asked, {"t": SCHEMA}, overlay=overlay, cuts=[2])
    simulated = simulate(events(), overlay=overlay, subscriptions=asked, schema={"t": SCHEMA})
    for found in (told(notifications, overflows), told(simulated.notifications, simulated.overflows)):
        assert found == {
            "rms(few)": pytest.approx(math.sqrt((1 + 4 + 9) / 3)),
            "rms(x)": BEYOND_DOUBLE,
            "double_sum(few)": None,
            "double_sum(six)": 42,
            "double_sum(n)": beyond_integer(2 * sum(VALUES["n"])),
            "double_sum(x)": BEYOND_DOUBLE,
        }
