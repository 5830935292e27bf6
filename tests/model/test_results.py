"""How typed values are written down for subscribers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catchment.model.results import exact_json, key_text, number_of
from catchment.model.schema import Type


@pytest.mark.parametrize(
    ("value", "kind", "number", "exact"),
    [
        (None, Type.INT, None, "null"),
        (3, Type.INT, 3.0, "3"),
        (2**63 - 1, Type.INT, 2.0**63, str(2**63 - 1)),
        (0.1, Type.FLOAT, 0.1, "0.1"),
        ("é'\"", Type.STRING, None, '"é\'\\""'),
        (True, Type.BOOL, None, "true"),
        (1_407_742_200_000_000, Type.TIMESTAMP, None, '"2014-08-11T07:30:00.000000Z"'),
        (-62_135_596_800_000_000, Type.TIMESTAMP, None, '"0001-01-01T00:00:00.000000Z"'),
        ([{"item": "a", "count": 2}], None, None, '[{"item": "a", "count": 2}]'),
    ],
)
def test_values(value: Any, kind: Type | None, number: float | None, exact: str) -> None:
    assert number_of(value, kind) == number
    assert exact_json(value, kind) == exact
    json.loads(exact)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, Type.INT, None),
        (-3, Type.INT, "-3"),
        (0.0, Type.FLOAT, "0.0"),
        (-0.0, Type.FLOAT, "0.0"),
        (1e22, Type.FLOAT, "1e+22"),
        ("", Type.STRING, ""),
        (False, Type.BOOL, "false"),
        (0, Type.TIMESTAMP, "1970-01-01T00:00:00.000000Z"),
    ],
)
def test_group_keys(value: Any, kind: Type, text: str | None) -> None:
    assert key_text(value, kind) == text
