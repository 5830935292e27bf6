"""The topic `stock`: quotes of 62 symbols, made up by seed or read from the Yahoo! Finance files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from catchment.model.errors import ConfigurationError
from catchment.model.schema import Schema, Type
from catchment.workloads import loading
from catchment.workloads.loading import Loaded, data_files, read_rows
from catchment.workloads.publications import assign_brokers, publications

__all__ = ["STOCK_SCHEMA", "STOCK_SYMBOLS", "generate_stock", "load_stock", "stock_batches"]

STOCK_SCHEMA = Schema(
    {
        "symbol": Type.STRING,
        "open": Type.FLOAT,
        "high": Type.FLOAT,
        "low": Type.FLOAT,
        "close": Type.FLOAT,
        "adj_close": Type.FLOAT,
        "volume": Type.INT,
    }
)
"""With ts the 8 fields of the DEBS'14 paper's stock publications."""

# fmt: off
STOCK_SYMBOLS = (
    "IBM", "A", "AEE", "AMGN", "ATI", "BDK", "BRCM", "CBG", "CIEN", "COH", "CVC", "DHR", "DVN", "EP",
    "FAST", "FMCC", "GLW", "HCN", "HSP", "ISRG", "JOY", "L", "LSI", "MDP", "MTB", "NFLX", "NWL", "PBI",
    "PHM", "PXD", "ROST", "SH", "SNV", "SVU", "TGT", "TXN", "AA", "AAPL", "ADBE", "AXP", "BA", "BAC",
    "C", "CAT", "CSCO", "CVX", "DD", "DIS", "GE", "HD", "HPQ", "INTC", "JNJ", "JPM", "KO", "MCD",
    "MMM", "MRK", "MSFT", "PFE", "PG", "T",
)
# fmt: on

_ROUNDS_PER_BATCH = 1_000
_START_US = 1_199_232_000_000_000  # 2 January 2008, 00:00 UTC: the first day of the real quotes
_DURATION_US = 1_000_000_000
_PULL = 0.05
_STEP = 0.02


def generate_stock(
    events: int,
    *,
    seed: int,
    duration_us: int = _DURATION_US,
    start_us: int = _START_US,
    brokers: Sequence[str] = ("b0",),
) -> pa.Table:
    """Quotes of 62 symbols in turn, in order of time; each symbol publishes at one broker.

    Prices walk at random and are pulled back to each symbol's own level, so that a filter which is selective in one
    stretch of the walk is as selective in any other.
    """
    batches = stock_batches(events, seed=seed, duration_us=duration_us, start_us=start_us, brokers=brokers)
    return pa.concat_tables(batches).combine_chunks()


def stock_batches(
    events: int,
    *,
    seed: int,
    duration_us: int = _DURATION_US,
    start_us: int = _START_US,
    brokers: Sequence[str] = ("b0",),
) -> Iterator[pa.Table]:
    """As generate_stock, 62,000 events at a time; at least one table, which may be empty."""
    if events < 0 or duration_us < 1:
        raise ConfigurationError(f"events={events}, duration_us={duration_us}; accepted are 0 and 1 or more")
    width = len(STOCK_SYMBOLS)
    # Levels belong to the symbols, not to the run: subscriptions with another seed must mean the same prices.
    levels = np.random.default_rng(62)
    price, volume = levels.lognormal(3.6, 0.9, width), levels.lognormal(14.0, 1.2, width)
    home = assign_brokers(STOCK_SYMBOLS, brokers)
    broker_of = np.array([home[symbol] for symbol in STOCK_SYMBOLS], dtype=np.int64)
    symbols_of = np.bincount(broker_of, minlength=len(brokers))
    names = pa.array(STOCK_SYMBOLS)
    position = np.random.default_rng([seed, 1 << 32]).normal(0.0, _STEP / np.sqrt(2 * _PULL), width)
    per_batch = _ROUNDS_PER_BATCH * width
    for batch, first in enumerate(range(0, max(1, events), per_batch)):
        random = np.random.default_rng([seed, batch])
        count = min(per_batch, events - first)
        steps = random.normal(0.0, _STEP, (_ROUNDS_PER_BATCH, width))
        walk = np.empty((_ROUNDS_PER_BATCH + 1, width))
        walk[0] = position
        for turn in range(_ROUNDS_PER_BATCH):
            walk[turn + 1] = walk[turn] * (1.0 - _PULL) + steps[turn]
        position = walk[-1]
        symbol = np.tile(np.arange(width), _ROUNDS_PER_BATCH)[:count]
        opened = np.round((price * np.exp(walk[:-1])).reshape(-1)[:count], 2)
        closed = np.round((price * np.exp(walk[1:])).reshape(-1)[:count], 2)
        reach = np.abs(random.normal(0.0, _STEP / 2, (2, count)))
        offset = (first + np.arange(count) + random.random(count)) * (duration_us / max(1, events))
        yield publications(
            "stock",
            STOCK_SCHEMA,
            brokers=brokers,
            broker=broker_of[symbol],
            ts_us=start_us + np.minimum(offset.astype(np.int64), duration_us - 1),
            sequence_start=symbols_of * (batch * _ROUNDS_PER_BATCH),
            attributes={
                "symbol": names.take(pa.array(symbol)),
                "open": pa.array(opened),
                "high": pa.array(np.round(np.maximum(opened, closed) * (1 + reach[0]), 2)),
                "low": pa.array(np.round(np.minimum(opened, closed) * (1 - reach[1]), 2)),
                "close": pa.array(closed),
                "adj_close": pa.array(np.round(closed * 0.97, 2)),
                "volume": pa.array((volume[symbol] * random.lognormal(0.0, 0.5, count)).astype(np.int64)),
            },
        )


def load_stock(folder: str | Path, *, brokers: Sequence[str] = ("b0",)) -> Loaded:
    """Read yahoo-*.csv.gz; a quote's time is midnight UTC of its day, and each symbol publishes at one broker."""
    sources = {
        "open": "Open",
        "high": "High",
        "low": "Low",
        "close": "Close",
        "adj_close": "Adj Close",
    }
    rows = read_rows(
        data_files(folder, "yahoo-*.csv*"),
        {
            "Symbol": loading.required,
            "Date": loading.time_us,
            "Volume": loading.integer,
            **dict.fromkeys(sources.values(), loading.decimal),
        },
    )
    ts_us = np.array(rows.columns["Date"], dtype=np.int64)
    order = np.argsort(ts_us, kind="stable")
    taken = pa.array(order)
    home = assign_brokers([str(symbol) for symbol in rows.columns["Symbol"]], brokers)
    broker = np.array([home[str(symbol)] for symbol in rows.columns["Symbol"]], dtype=np.int64)
    events = publications(
        "stock",
        STOCK_SCHEMA,
        brokers=brokers,
        broker=broker[order],
        ts_us=ts_us[order],
        attributes={
            "symbol": pa.array(rows.columns["Symbol"], pa.string()).take(taken),
            "volume": pa.array(rows.columns["Volume"], pa.int64()).take(taken),
            **{name: pa.array(rows.columns[source], pa.float64()).take(taken) for name, source in sources.items()},
        },
    )
    return Loaded(events, rows.rejected)
