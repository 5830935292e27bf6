"""The server of our own: how durable it is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from catchment.model.errors import ConfigurationError, TransportError
from catchment.transport.description import Description
from catchment.transport.server import Server


class Monitored(Server):
    """A server that also tells how it runs."""

    @property
    def configuration(self) -> str:
        return super().configuration + 'http: "127.0.0.1:-1"\n'

    @property
    def is_synced(self) -> bool:
        ports = json.loads((self.folder / f"nats-server_{self.process_id}.ports").read_text())
        with urlopen(f"{ports['monitoring'][0]}/varz") as answer:
            return bool(json.load(answer)["jetstream"]["config"].get("sync_always", False))


@pytest.mark.parametrize(("durability", "is_synced"), [("process", False), ("disk", True)])
def test_durability_reaches_the_server(tmp_path: Path, durability: str, is_synced: bool) -> None:
    with Monitored(tmp_path, durability=durability, store_bytes_max=1_000_000) as server:
        assert server.is_synced is is_synced


def test_another_durability_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="durability is 'ram'; accepted are process and disk"):
        Description(brokers=["b1"], links=[], topics={}, durability="ram")


def test_a_folder_has_one_server_until_that_has_ended_however_it_did(tmp_path: Path) -> None:
    first, second = Server(tmp_path), Server(tmp_path)
    first.start()
    try:
        written = (tmp_path / "server.conf").read_text()
        with pytest.raises(TransportError) as caught:
            second.start()
        assert str(caught.value) == (
            f"the folder '{tmp_path}' is in use by the server of process {first.process_id}; accepted is another "
            "folder, or the same once that has ended"
        )
        assert (tmp_path / "server.conf").read_text() == written
        first.kill()
        second.start()
        with pytest.raises(TransportError, match=f"process {second.process_id};"):
            first.start()
    finally:
        first.stop()
        second.stop()


def test_a_server_keeps_its_folder_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    start = "import os, pathlib; from catchment.transport.server import Server; "
    start += f"server = Server(pathlib.Path({str(tmp_path)!r})); server.start(); print(server.process_id); os._exit(0)"
    process_id = int(subprocess.run([sys.executable, "-c", start], capture_output=True, check=True).stdout)
    try:
        with pytest.raises(TransportError, match=f"in use by the server of process {process_id};"):
            Server(tmp_path).start()
    finally:
        os.kill(process_id, signal.SIGKILL)
