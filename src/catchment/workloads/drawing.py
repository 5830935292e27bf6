"""Drawing conditions that a wanted share of a sample of events meets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.errors import ConfigurationError

__all__ = ["Drawing", "Rows"]

Rows = npt.NDArray[np.bool_]


class Drawing:
    """A sample of events as NumPy columns, and the randomness of one call."""

    def __init__(self, sample: pa.Table, random: np.random.Generator, selectivity: float) -> None:
        if not 0.0 < selectivity <= 1.0 or not sample.num_rows:
            raise ConfigurationError(
                f"selectivity={selectivity} on {sample.num_rows} events; accepted are above 0 to 1"
            )
        self.random = random
        self.selectivity = selectivity
        self._sample = sample
        self._numbers: dict[str, npt.NDArray[np.float64]] = {}
        self._words: dict[str, tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = {}

    @property
    def rows(self) -> int:
        return int(self._sample.num_rows)

    def numbers(self, attribute: str) -> npt.NDArray[np.float64]:
        """A numeric column; a missing value is NaN, which fails every comparison."""
        if attribute not in self._numbers:
            self._numbers[attribute] = self._sample[attribute].cast(pa.float64()).to_numpy()
        return self._numbers[attribute]

    def words(self, attribute: str) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The values of a string column in order of name, each row's position in them, and how often each occurs."""
        if attribute not in self._words:
            column = np.array(self._sample[attribute].fill_null("").to_pylist())
            values, codes = np.unique(column, return_inverse=True)
            self._words[attribute] = ([str(value) for value in values], codes, np.bincount(codes))
        return self._words[attribute]

    def one_of(self, attribute: str, *, least: float) -> tuple[str, Rows]:
        """A value that at least this share of the sample has (else one of the most frequent), and its rows."""
        values, codes, counts = self.words(attribute)
        fit = np.flatnonzero(counts >= min(least, 0.9 * counts.max() / self.rows) * self.rows)
        chosen = int(self.random.choice(fit))
        return values[chosen], codes == chosen

    def some_of(self, attribute: str, *, least: float) -> tuple[list[str], Rows]:
        """Two or more values that together have this share of the sample, and their rows."""
        values, codes, counts = self.words(attribute)
        order = self.random.permutation(len(values))
        enough = int(np.searchsorted(np.cumsum(counts[order]), least * self.rows)) + 1
        chosen = np.sort(order[: max(2, enough)])
        return [values[index] for index in chosen], np.isin(codes, chosen)

    def target(self) -> float:
        """The share of the sample that the next filter should have: the wanted one, half to one and a half times."""
        return self.selectivity * float(self.random.uniform(0.5, 1.5))

    def between(self, attribute: str, rows: Rows, share: float) -> tuple[float, float]:
        """Bounds that keep `share` of the whole sample out of these rows."""
        values, kept = self._kept(attribute, rows, share)
        first = float(self.random.uniform(0.0, 1.0 - kept))
        low, high = np.quantile(values, [first, first + kept]) if len(values) else (0.0, 0.0)
        return float(low), float(high)

    def below(self, attribute: str, rows: Rows, share: float) -> float:
        """The bound under which `share` of the whole sample is, out of these rows."""
        values, kept = self._kept(attribute, rows, share)
        return float(np.quantile(values, kept)) if len(values) else 0.0

    def _kept(self, attribute: str, rows: Rows, share: float) -> tuple[npt.NDArray[np.float64], float]:
        values = self.numbers(attribute)[rows]
        values = values[~np.isnan(values)]
        kept = share * self.rows / max(1, len(values))
        # Rows too few for the share: most of them then, by a bound that still says something and seldom repeats.
        return values, kept if kept < 0.95 else float(self.random.uniform(0.75, 0.95))
