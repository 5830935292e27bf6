"""Topics, their attributes, and the five types an attribute may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from types import MappingProxyType

import pyarrow as pa

from catchment.model.errors import SchemaError

__all__ = [
    "DECIMALS_ACCEPTED",
    "IMPLICIT_ATTRIBUTES",
    "RESERVED_COLUMNS",
    "TYPES_ACCEPTED",
    "Schema",
    "Type",
    "column_types_of",
]


class Type(Enum):
    """The type of an attribute; `value` is how it is written in a schema."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    TIMESTAMP = "timestamp"

    @property
    def is_number(self) -> bool:
        return self in (Type.INT, Type.FLOAT)

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self]

    @classmethod
    def of(cls, given: object, *, attribute: str = "?") -> Type:
        """Read a type from its name, an Arrow type, or a Python type."""
        if isinstance(given, Type):
            return given
        if isinstance(given, pa.DataType):
            found = _of_arrow(given)
        elif isinstance(given, type):
            found = _PYTHON.get(given)
        else:
            found = _NAMES.get(str(given).lower())
        if found is None:
            raise SchemaError(f"attribute {attribute!r} has type {given}; accepted are {TYPES_ACCEPTED}")
        return found

    @classmethod
    def of_decimal(cls, precision: int, scale: int) -> Type | None:
        """The type that has every value of a decimal type; None where neither int64 nor a double does."""
        if scale <= 0 and precision - scale <= WHOLE_DIGITS_MAX:
            return cls.INT
        return cls.FLOAT if scale > 0 and precision <= REAL_DIGITS_MAX else None


WHOLE_DIGITS_MAX, REAL_DIGITS_MAX = 18, 15
"""Any number of so many decimal digits is an int64, and is told apart from every other by the double next to it."""
DECIMALS_ACCEPTED = f"decimals of up to {WHOLE_DIGITS_MAX} digits, or of {REAL_DIGITS_MAX} if they have fractions"

TYPES_ACCEPTED = f"{', '.join(kind.value for kind in Type)}, {DECIMALS_ACCEPTED}"

_ARROW = {
    Type.BOOL: pa.bool_(),
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
_PYTHON: dict[type, Type] = {
    bool: Type.BOOL,
    int: Type.INT,
    float: Type.FLOAT,
    str: Type.STRING,
    datetime: Type.TIMESTAMP,
}
_NAMES = {
    "bool": Type.BOOL,
    "boolean": Type.BOOL,
    "int": Type.INT,
    "int64": Type.INT,
    "integer": Type.INT,
    "long": Type.INT,
    "bigint": Type.INT,
    "float": Type.FLOAT,
    "float64": Type.FLOAT,
    "double": Type.FLOAT,
    "string": Type.STRING,
    "str": Type.STRING,
    "text": Type.STRING,
    "timestamp": Type.TIMESTAMP,
}


def _of_arrow(given: pa.DataType) -> Type | None:
    if pa.types.is_dictionary(given):
        return _of_arrow(given.value_type)
    if pa.types.is_boolean(given):
        return Type.BOOL
    if pa.types.is_integer(given):
        return Type.INT
    if pa.types.is_floating(given):
        return Type.FLOAT
    if pa.types.is_decimal(given):
        return Type.of_decimal(given.precision, given.scale)
    if pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given):
        return Type.STRING
    if pa.types.is_timestamp(given) or pa.types.is_date(given):
        return Type.TIMESTAMP
    return None


def column_types_of(columns: pa.Schema) -> dict[str, str]:
    """The types of Arrow's columns that say more than those of attributes."""
    found = {column.name: _column_type(column.type) for column in columns}
    return {name: said for name, said in found.items() if said is not None}


def _column_type(given: pa.DataType) -> str | None:
    if pa.types.is_dictionary(given):
        return _column_type(given.value_type)
    if pa.types.is_decimal(given) and given.scale > 0:
        return f"decimal({given.precision},{given.scale})"
    if pa.types.is_date(given):
        return "date"
    return "timestamp_ntz" if pa.types.is_timestamp(given) and given.tz is None else None


RESERVED_COLUMNS = ("event_id", "topic", "broker", "ts")
"""The columns of a publication that are not attributes of its topic."""

IMPLICIT_ATTRIBUTES: Mapping[str, Type] = MappingProxyType({"broker": Type.STRING, "ts": Type.TIMESTAMP})
"""What a subscription may use of every event besides the topic's own attributes."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The typed attributes that the events of one topic may have; any may be missing from an event."""

    attributes: Mapping[str, Type]
    case_sensitive: bool = False
    """Whether a subscription must write the names of attributes in the case that they have here."""
    unusable: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Columns of the data that are no attributes, and their types, so that who asks for one hears why."""
    column_types: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The types of columns, as Spark writes them, where they say more than those of the attributes: `decimal(10,2)`,
    `date`, `timestamp_ntz`."""
    _full: Schema | None = field(default=None, init=False, repr=False, compare=False)
    """With the implicit attributes, once somebody asked: thousands of subscriptions do."""

    def __post_init__(self) -> None:
        typed = {name: Type.of(given, attribute=name) for name, given in self.attributes.items()}
        object.__setattr__(self, "attributes", MappingProxyType(typed))

    @classmethod
    def of(cls, given: Schema | pa.Schema | Mapping[str, object]) -> Schema:
        """Read a schema from a mapping of attribute to type, or from an Arrow schema."""
        if isinstance(given, Schema):
            return given
        if isinstance(given, pa.Schema):
            types = {column.name: Type.of(column.type, attribute=column.name) for column in given}
            return cls(types, column_types=column_types_of(given))
        return cls({name: Type.of(kind, attribute=name) for name, kind in given.items()})

    def with_implicit(self) -> Schema:
        """This schema and the attributes that every event has."""
        if self._full is None:
            full = replace(self, attributes={**self.attributes, **IMPLICIT_ATTRIBUTES})
            object.__setattr__(self, "_full", full)
            object.__setattr__(full, "_full", full)
        assert self._full is not None
        return self._full

    def resolve(self, name: str) -> str:
        """The attribute that a subscription means by a name; the name itself if there is none."""
        if name in self.attributes or self.case_sensitive:
            return name
        alike = [attribute for attribute in self.attributes if attribute.lower() == name.lower()]
        if len(alike) > 1:
            raise SchemaError(f"{name!r} may mean {' or '.join(map(repr, sorted(alike)))}; write it as one of them")
        return alike[0] if alike else name

    def get(self, attribute: str) -> Type | None:
        return self.attributes.get(attribute)

    def __getitem__(self, attribute: str) -> Type:
        return self.attributes[attribute]

    def __contains__(self, attribute: object) -> bool:
        return attribute in self.attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __hash__(self) -> int:
        return hash(frozenset(self.attributes.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and (self.case_sensitive, dict(self.attributes)) == (
            other.case_sensitive,
            dict(other.attributes),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Schema, (dict(self.attributes), self.case_sensitive, dict(self.unusable), dict(self.column_types)))
