"""Whatever bytes come: every decoder reads them or refuses them by its own errors, and nothing else happens.

A failure prints the decoder and the seed of the damage. To see it again:

    FUZZ=sql:42 pytest tests/fuzzing
"""

import os
import random
import time

import pytest

from tests.fuzzing.mutating import mutated
from tests.fuzzing.targets import TARGETS

SECONDS_AT_LENGTH = 600
BRIEFLY = {"frame-in-conversation": 15, "http-connection": 40}
"""How many damaged samples a decoder gets in `make test`, where that is not `MANY`."""
MANY = 300


def check(name: str, seed: int) -> None:
    target = TARGETS[name]
    data = mutated(random.Random(seed), target.samples())
    try:
        target.take(data)
    except Exception as error:
        raise AssertionError(f"{name} of {data[:200]!r}; replay: FUZZ={name}:{seed} pytest tests/fuzzing") from error


CHOSEN = os.environ.get("FUZZ")


@pytest.mark.skipif(CHOSEN is None, reason="replays one case: FUZZ=decoder:seed")
def test_one_case() -> None:
    assert CHOSEN is not None
    name, seed = CHOSEN.split(":")
    check(name, int(seed))


@pytest.mark.parametrize("name", TARGETS)
def test_samples_are_read(name: str) -> None:
    target = TARGETS[name]
    samples = target.samples()
    assert samples
    for data in samples:
        target.take(data)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_samples_are_read_or_refused(name: str) -> None:
    for seed in range(BRIEFLY.get(name, MANY)):
        check(name, seed)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_samples_are_read_or_refused_at_length(name: str) -> None:
    seed, end_s = 10_000, time.monotonic() + SECONDS_AT_LENGTH
    while time.monotonic() < end_s:
        check(name, seed)
        seed += 1
