"""A Spark session that works out of the box: no Java to install, no port to free, no noise on the console.

Everything set here is a default: whatever `config` says wins.
"""

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from catchment.model.errors import ConfigurationError
from catchment.pipeline.folders import private_folder, temporary_folder
from catchment.pipeline.java import prepare_java
from catchment.pipeline.overlay_source import OverlaySource

__all__ = ["spark_session"]

LOOPBACK = "127.0.0.1"

JOB_DEFAULTS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""What our jobs count on, wherever they run."""


def spark_session(
    app_name: str = "catchment", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process: a new one, or the one that runs already with `config` applied to it.

    Called on the driver, once by each command and by a user who has no session; a job never calls it. Starting takes
    some seconds. `master` is `local[*]` unless given; under `spark-submit`, its master, Java and memory are kept.
    Sets what a JVM and Python workers inherit in `os.environ`: JAVA_HOME, PYSPARK_PYTHON, SPARK_LOCAL_IP,
    NUMBA_CACHE_DIR.
    """
    if master is not None:
        _require_master(master)
    defaults: dict[str, str] = {}
    if SparkSession.getActiveSession() is None:
        defaults = JOB_DEFAULTS | _executor_environment()
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            master = master or "local[*]"
            defaults |= _launch_defaults(master)
        if master:
            defaults["spark.master"] = master
    handler = signal.getsignal(signal.SIGINT)
    session = SparkSession.builder.appName(app_name).config(map={**defaults, **(config or {})}).getOrCreate()
    if handler not in (None, signal.default_int_handler) and threading.current_thread() is threading.main_thread():
        # Spark puts one of its own in the place of whatever a program does at Ctrl-C.
        signal.signal(signal.SIGINT, handler)
    session.dataSource.register(OverlaySource)
    return session


def _require_master(master: str) -> None:
    # Spark itself would say so below a page of Java.
    threads, hosts = r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[[\d\s,]+\]", r"spark://[^\s,]+:\d+(,[^\s,]+:\d+)*"
    others = r"yarn|(?!spark)[a-z][a-z0-9+.-]*://\S+"
    if not re.fullmatch(f"{threads}|{hosts}|{others}", master):
        raise ConfigurationError(
            f"master is {master!r}; accepted are local, local[4], local[*], spark://host:port, yarn, k8s://https://host:port"
        )


def _launch_defaults(master: str) -> dict[str, str]:
    """How to start the JVM of the driver; prepares the environment that it inherits."""
    prepare_java(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java_options = [
        f"-Djava.io.tmpdir={temporary_folder(os.environ)}",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        # Nobody waits for a single answer: what counts is the whole, which this collector disturbs least.
        "-XX:+UseParallelGC",
        # Spark writes and reads Arrow's vectors in order: looking after each value whether it may costs a tenth.
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
    ]
    defaults = {
        "spark.driver.defaultJavaOptions": shlex.join(java_options),
        # With two Python workers beside it, a job over a thousand subscriptions stays below 4 GB in all.
        "spark.driver.memory": "1536m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return defaults | (_loopback_defaults(master) if _is_loopback(master) else {})


def _loopback_defaults(master: str) -> dict[str, str]:
    """Nothing leaves this machine, and no more shuffle partitions than it has cores to work on them."""
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    cores = re.match(r"local\[(\d+)", master)
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": cores[1] if cores else str(os.cpu_count() or 1),
    }


def _is_loopback(master: str) -> bool:
    return re.match(r"local($|\[|-cluster\[)|spark://(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:|$)", master) is not None


def _executor_environment() -> dict[str, str]:
    """What Python workers find in their environment.

    A place for numba's compiled code: each worker loads it in a fraction of the time that compiling takes. Where an
    executor cannot use this folder, numba falls back to one beside the code. And memory that one batch gave back is
    kept for the next, as arrays of the same sizes come with each.
    """
    folder = os.environ.setdefault("NUMBA_CACHE_DIR", str(private_folder(os.environ) / "numba"))
    found = {"NUMBA_CACHE_DIR": folder, "MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
    return {f"spark.executorEnv.{name}": value for name, value in found.items()}
