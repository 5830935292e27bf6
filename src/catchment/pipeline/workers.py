"""The Python workers of a session: that they can import what we send them, and what they say if they cannot.

A session that `spark_session` did not start lets its workers run `python3`, or what PYSPARK_PYTHON says, which need not
be the Python of the driver. Where the workers are on this machine that is set right; elsewhere a worker that cannot
import this package says so, with the remedy.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyspark import SparkContext, cloudpickle

__all__ = ["MapBatches", "prepare_workers", "shipped"]

MapBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_NEEDED = ("catchment", "numba", "pyarrow", "sqlglot")
_PROBE = (
    "import importlib.util, sys; "
    f"sys.exit(sys.version_info[:2] != {sys.version_info[:2]} or not all(map(importlib.util.find_spec, {_NEEDED})))"
)
_prepared: WeakSet[SparkContext] = WeakSet()


def prepare_workers(context: SparkContext) -> None:
    """Let workers on this machine run a Python that can import this package; workers elsewhere are left as they are.

    Called on the driver by every `replay` and `stream`. Looks once a session, by starting that Python, some 30 ms; no
    Spark job runs. A worker's Python is chosen when a function is sent to it, so that a running session can change it.
    """
    if context in _prepared:
        return
    _prepared.add(context)
    if not sys.executable or not re.match(r"local($|\[|-cluster\[)", str(context.master)):
        return
    given = context.environment.get("PYTHONPATH")
    if _imports_package(context.pythonExec, given):
        return
    context.pythonExec = sys.executable
    if not _imports_package(sys.executable, given):
        # This package was found by a change of sys.path, of which no other process knows.
        found = str(Path(__file__).parents[2])
        context.environment["PYTHONPATH"] = found if given is None else os.pathsep.join([found, given])


def _imports_package(python: str, path: str | None) -> bool:
    folders = [one for one in (path, os.environ.get("PYTHONPATH")) if one]
    environment = {**os.environ, **({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})}
    try:
        found = subprocess.run([python, "-c", _PROBE], env=environment, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0


def shipped(function: MapBatches) -> MapBatches:
    """The same function, which a worker that cannot import what it needs refuses with the remedy."""
    return _Shipped(function)


class _Shipped:
    def __init__(self, function: MapBatches) -> None:
        self._function = function

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._function(batches)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, str]]:
        return _unpacker(), (cloudpickle.dumps(self._function), sys.executable)  # type: ignore[no-untyped-call]


def _unpacker() -> Callable[[bytes, str], MapBatches]:
    def unpack(pickled: bytes, driver: str) -> MapBatches:
        # A function inside a function is sent by value: this one runs where nothing of ours can be imported.
        import pickle
        import socket
        import sys

        try:
            return pickle.loads(pickled)  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"the Python worker {sys.executable} on {socket.gethostname()} cannot import {error.name}, which "
                f"{driver} of the driver can; before the session starts, set PYSPARK_PYTHON or spark.pyspark.python to "
                "a Python with catchment installed on every node",
                name=error.name,
            ) from None

    return unpack
