"""A compiled plan on its way to the Python workers."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, field
from functools import lru_cache

from pyspark import Broadcast, SparkContext

from catchment.stages import Plan

__all__ = ["SentPlan"]

INLINE_BYTES_MAX = 900_000
"""Up to here a plan travels inside the function that needs it. Spark keeps a file for everything that it broadcasts,
and many replays of a long session would fill the disk."""


@dataclass(frozen=True, slots=True)
class SentPlan:
    """Made on the driver, once for each version of a plan; `value` is for the workers."""

    _digest: bytes = field(repr=False)
    _pickled: bytes | Broadcast[bytes] = field(repr=False)

    @classmethod
    def of(cls, context: SparkContext, plan: Plan) -> SentPlan:
        pickled = pickle.dumps(plan)
        digest = hashlib.sha256(pickled).digest()
        return cls(digest, pickled if len(pickled) <= INLINE_BYTES_MAX else context.broadcast(pickled))

    @property
    def value(self) -> Plan:
        return _unpickled(_Content(self._digest, self._pickled))

    def discard(self) -> None:
        """Let Spark forget the plan; no job that was given it may run any more."""
        if isinstance(self._pickled, Broadcast):
            self._pickled.destroy()


class _Content:
    """What a plan is read from, the same for every task that was given the same plan."""

    def __init__(self, digest: bytes, pickled: bytes | Broadcast[bytes]) -> None:
        self._digest, self.pickled = digest, pickled

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self._digest == other._digest


@lru_cache(maxsize=2)
def _unpickled(content: _Content) -> Plan:
    pickled = content.pickled
    plan: Plan = pickle.loads(pickled if isinstance(pickled, bytes) else pickled.value)
    return plan
