"""The server of our own: how durable it is."""

import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from catchment.model.errors import ConfigurationError
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
