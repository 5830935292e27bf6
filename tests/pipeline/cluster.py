"""A real standalone Spark cluster on this machine: a master and some workers, each a process of its own."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.find_spark_home import _find_spark_home

from catchment.pipeline.java import prepare_java

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
POLL_INTERVAL_S = 0.05

MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
WORKER_REGISTERED = re.compile(r"Successfully registered with master (spark://\S+)")


class SparkCluster:
    """Runs from `__enter__` to `__exit__`; the system chooses the ports, the logs tell them."""

    def __init__(self, folder: Path, *, worker_count: int) -> None:
        self.master = ""
        self._folder = folder
        self._worker_count = worker_count
        self._processes = ExitStack()
        self._environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
        prepare_java(self._environ)

    def __enter__(self) -> Self:
        with self._processes:
            address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self.master = self._start("master", ["master.Master", *address], MASTER_STARTED)
            for number in range(1, self._worker_count + 1):
                limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work{number}")]
                self._start(f"worker{number}", ["worker.Worker", *address, *limits, self.master], WORKER_REGISTERED)
            self._processes = self._processes.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def run(self, program: str, *arguments: str, timeout_s: float) -> str:
        """What a Python program prints whose driver is a process of its own; `sys.argv[1]` is the master."""
        driver = subprocess.run(
            [sys.executable, "-c", program, self.master, *arguments],
            env=self._environ,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert driver.returncode == 0, f"the driver failed:\n{driver.stderr}\n{self._logs()}"
        return driver.stdout

    def _start(self, name: str, command: list[str], ready: re.Pattern[str]) -> str:
        """Start a daemon and return what it says about itself once it is ready."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    Path(_find_spark_home()) / "bin" / "spark-class",
                    f"org.apache.spark.deploy.{command[0]}",
                    *command[1:],
                ],
                env=self._environ,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.callback(_stop, process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if found := ready.search(log.read_text()):
                return found[1]
            time.sleep(POLL_INTERVAL_S)
        raise TimeoutError(f"{name} is not ready; exit status {process.poll()}\n{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-5_000:]}" for log in sorted(self._folder.glob("*.log")))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
