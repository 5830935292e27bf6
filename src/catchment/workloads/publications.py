"""How every workload makes its events: the columns of a publication, one road (symbol, source) at one broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.errors import ConfigurationError
from catchment.model.schema import Schema, Type

__all__ = ["assign_brokers", "publication_schema", "publications", "respaced"]


def publication_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a topic's publications: id, topic, broker, time, then the attributes."""
    return pa.schema(
        [
            ("event_id", pa.string()),
            ("topic", pa.string()),
            ("broker", pa.string()),
            ("ts", Type.TIMESTAMP.arrow),
            *((name, kind.arrow) for name, kind in schema.attributes.items()),
        ]
    )


def assign_brokers(keys: Iterable[str], brokers: Sequence[str]) -> dict[str, int]:
    """Which broker (by position in `brokers`) each road, symbol or source publishes at: in turn, in order of name."""
    if not brokers or len(set(brokers)) != len(brokers):
        raise ConfigurationError(f"brokers={tuple(brokers)!r}; accepted are one or more different broker ids")
    return {key: turn % len(brokers) for turn, key in enumerate(sorted(set(keys)))}


def publications(
    topic: str,
    schema: Schema,
    *,
    brokers: Sequence[str],
    broker: npt.NDArray[np.int64],
    ts_us: npt.NDArray[np.int64],
    attributes: Mapping[str, pa.Array | pa.ChunkedArray],
    sequence_start: npt.NDArray[np.int64] | None = None,
) -> pa.Table:
    """Build a table of publications; `broker` holds positions in `brokers`.

    An event's id is "<broker>-<sequence>", counted per broker from `sequence_start`, so that the batches of one
    workload never repeat an id.
    """
    names = pa.array(brokers, pa.string()).take(pa.array(broker))
    sequence = _per_broker_sequence(broker, len(brokers))
    if sequence_start is not None:
        sequence += sequence_start[broker]
    columns = {
        "event_id": pc.binary_join_element_wise(names, pa.array(sequence).cast(pa.string()), "-"),
        "topic": pa.repeat(pa.scalar(topic, pa.string()), len(ts_us)),
        "broker": names,
        "ts": pa.array(ts_us).cast(Type.TIMESTAMP.arrow),
        **attributes,
    }
    target = publication_schema(schema)
    return pa.table([columns[field.name] for field in target], schema=target)


def respaced(events: pa.Table, *, start_us: int, duration_us: int) -> pa.Table:
    """The same events in the same order, spread evenly over another stretch of time: the paper's publication rates."""
    steps = np.arange(events.num_rows, dtype=np.float64) * (duration_us / max(1, events.num_rows))
    ts = pa.array(start_us + steps.astype(np.int64)).cast(Type.TIMESTAMP.arrow)
    return events.set_column(events.schema.get_field_index("ts"), "ts", ts)


def _per_broker_sequence(broker: npt.NDArray[np.int64], broker_count: int) -> npt.NDArray[np.int64]:
    order = np.argsort(broker, kind="stable")
    counts = np.bincount(broker, minlength=broker_count)
    firsts = np.cumsum(counts) - counts
    sequence = np.empty(len(broker), dtype=np.int64)
    sequence[order] = np.arange(len(broker)) - np.repeat(firsts, counts)
    return sequence
