"""Folders that a job will write: refused before the work if nothing can be written there."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from catchment.app.failures import explanation
from catchment.model.errors import ConfigurationError
from catchment.pipeline.files import Folder
from catchment.pipeline.folders import writable_folder

__all__ = ["refuse_to_overwrite", "require_local_folder", "require_spark_folder"]


def require_local_folder(path: str | None, what: str, master: str | None) -> None:
    """Make and try a folder of this machine, before Spark starts. On a cluster a plain path may lie elsewhere."""
    if path is not None and "://" not in path and (master or "local").startswith("local"):
        writable_folder(Path(path), what)


def require_spark_folder(spark: SparkSession, path: str | None, what: str) -> None:
    """Make and try a folder on any file system that Spark can reach, before the first job."""
    if path is None:
        return
    probe = f".probe-{uuid4().hex}"
    try:
        folder = Folder(spark, path)
        folder.write(probe, b"")
        folder.delete(probe)
    except (OSError, Py4JError) as error:
        raise ConfigurationError(
            f"{what} cannot be written to {path!r} ({explanation(error)}); "
            "accepted is a folder that can be made and written to"
        ) from error


def refuse_to_overwrite(spark: SparkSession, path: str | None) -> None:
    if path is not None and Folder(spark, path).names():
        raise ConfigurationError(f"{path} is not empty; accepted is a new folder, or --overwrite")
