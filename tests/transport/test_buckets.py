"""Values by key on a server answer as the simulated store does."""

from random import Random

import pytest

from catchment.broker.store import DeleteKey, ListKeys, ReadKey, StoreReply, StoreRequest, WriteKey
from catchment.simulation.store import Store
from catchment.transport.buckets import Bucket, apply_request
from catchment.transport.jetstream import JetStream
from catchment.transport.server import Server
from catchment.transport.wire import open_connection
from tests.transport.conftest import run

KEYS = ["a", "a.b", "a/b c", "b>*"]


def drawn(random: Random, number: int, versions: dict[str, int]) -> StoreRequest:
    key = random.choice(KEYS)
    version = random.choice([0, versions.get(key, 0), versions.get(key, 0), 3])
    kind = random.choice(["read", "write", "write", "delete", "list"])
    if kind == "write":
        return WriteKey(number, key, b"value %d" % number, version)
    if kind == "delete":
        return DeleteKey(number, key, version)
    return ReadKey(number, key) if kind == "read" else ListKeys(number, random.choice(["", "a", "b"]), "a")


@pytest.mark.parametrize("seed", range(3))
def test_a_bucket_answers_as_the_simulated_store(server: Server, seed: int) -> None:
    async def test() -> None:
        connection = await open_connection(server.url, "test")
        bucket, model, random = Bucket(JetStream(connection), "test"), Store(), Random(seed)
        await bucket.create()
        versions: dict[str, int] = {}
        for number in range(1, 150):
            request = drawn(random, number, versions)
            expected, found = model.apply(request), await apply_request(bucket, request)
            if not isinstance(request, ListKeys):
                versions[request.key] = found.version
            assert found == expected, f"seed {seed}, {request}"
            assert isinstance(found, StoreReply)
        await connection.close()

    run(test())
