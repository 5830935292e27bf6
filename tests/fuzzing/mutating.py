"""Damage bytes in the ways that networks, disks and attackers do."""

import random
from collections.abc import Callable, Sequence

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]

TELLING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"-1", b"9" * 20, b"1e999")
TELLING += (b"[" * 2_000, b'{"a":' * 2_000, b"\x91" * 2_000, b'"', b"\\", b"\r\n", b"\xed\xa0\x80", b"NaN", b"null")
"""What decoders stumble over."""


def mutated(draw: random.Random, samples: Sequence[bytes]) -> bytes:
    """One of the samples, damaged once or some times; now and then nothing but noise."""
    if draw.random() < 0.02:
        return draw.randbytes(draw.randrange(200))
    data = bytearray(draw.choice(samples))
    for _ in range(draw.choice([1, 1, 2, 4, 8])):
        draw.choice(MUTATIONS)(draw, data, samples)
    return bytes(data[:2_000_000])


def _place(draw: random.Random, data: bytearray) -> int:
    return draw.randrange(len(data) + 1)


def _stretch(draw: random.Random, data: bytearray) -> slice:
    begin = _place(draw, data)
    return slice(begin, begin + draw.choice([1, 2, 4, 8, 64]))


def _flip_a_bit(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _set_a_byte(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.randrange(256)


def _cut_off(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    del data[_place(draw, data) :]


def _leave_out(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    del data[_stretch(draw, data)]


def _repeat(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    place = _place(draw, data)
    data[place:place] = data[_stretch(draw, data)] * draw.choice([1, 1, 3, 50])


def _insert(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    place = _place(draw, data)
    data[place:place] = draw.choice(TELLING)


def _overwrite(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    place, telling = _place(draw, data), draw.choice(TELLING)
    data[place : place + len(telling)] = telling


def _splice(draw: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    other = draw.choice(samples)
    data[_place(draw, data) :] = other[draw.randrange(len(other) + 1) :]


MUTATIONS: list[Mutation] = [_flip_a_bit, _set_a_byte, _cut_off, _leave_out, _repeat, _insert, _overwrite, _splice]
