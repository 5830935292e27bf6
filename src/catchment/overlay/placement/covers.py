"""The cheapest way to tell everyone: a minimum vertex cover between publications and partials.

An edge says that a publication is wanted in a partial: either the publication crosses the link as it is, or the partial
does. Both have weights: how many messages they stand for, or how many bytes. The cheapest cover is a smallest cut,

    source ── weight ──► publication ── without limit ──► partial ── weight ──► sink

found as a largest flow in phases of shortest paths (Hopcroft and Karp's matching, where all weights are one), and read
off by König's construction: a partial crosses if it can be reached from a publication that the flow has not exhausted.

Rule 1: of several cheapest covers this is one that depends on the graph alone, not on the flow that was found, so that
        all who decide the same thing decide alike. Equal costs are paid for publications.
Rule 2: publications with the same edges may stand together as one of their summed weight; that changes nothing.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from catchment.overlay.placement.offers import Bools, Ints

__all__ = ["minimum_cover"]


def minimum_cover(publication: Ints, partial: Ints, weights: Ints, partial_weights: Ints) -> tuple[Bools, Bools]:
    """Which publications and which partials cross, for edges (publication, partial) in any order.

    Whoever has no edge stays. A weight of nothing means that it crosses anyway.
    """
    begin, order = _by_number(publication, len(weights))
    left, right = publication[order], partial[order]
    back_begin, back = _by_number(right, len(partial_weights))
    reached, taken = _cut(
        begin, right, back_begin, back, left, weights.astype(np.int64), partial_weights.astype(np.int64)
    )
    has_edges = np.diff(begin) > 0
    return has_edges & ~reached, taken


@nb.njit(cache=True, nogil=True)
def _by_number(numbers: Ints, count: int) -> tuple[Ints, Ints]:
    """Where the stretch of each number begins among sorted ones, and the end; and the places in that order."""
    begin = np.zeros(count + 1, np.int64)
    for number in numbers:
        begin[number + 1] += 1
    for number in range(count):
        begin[number + 1] += begin[number]
    after = begin[:-1].copy()
    order = np.empty(len(numbers), np.int64)
    for place, number in enumerate(numbers):
        order[after[number]] = place
        after[number] += 1
    return begin, order


@nb.njit(cache=True, nogil=True)
def _cut(
    begin: Ints, right: Ints, back_begin: Ints, back: Ints, left: Ints, spare: Ints, room: Ints
) -> tuple[Bools, Bools]:
    """Which publications and partials a largest flow leaves reachable.

    Edges are numbered by publication; `back` lists them by partial. `spare` and `room` are used up.
    """
    flow = np.zeros(len(right), np.int64)
    # Distance in phases of the search from publications that have something to spare; below zero is out of reach.
    depth, back_depth = np.empty(len(spare), np.int64), np.empty(len(room), np.int64)
    queue = np.empty(len(spare), np.int64)
    turn, back_turn = np.empty(len(spare), np.int64), np.empty(len(room), np.int64)
    path = np.empty(2 * len(spare) + 2, np.int64)
    while True:
        found = _search(begin, right, back_begin, back, left, spare, room, flow, depth, back_depth, queue)
        if not found:
            return depth >= 0, back_depth >= 0
        turn[:] = begin[:-1]
        back_turn[:] = back_begin[:-1]
        for first in range(len(spare)):
            while spare[first] > 0:
                length = _path_from(
                    first, begin, right, back_begin, back, left, room, flow, depth, back_depth, turn, back_turn, path
                )
                if length == 0:
                    break
                _push(first, right, path[:length], spare, room, flow)


@nb.njit(cache=True, nogil=True)
def _search(
    begin: Ints, right: Ints, back_begin: Ints, back: Ints, left: Ints, spare: Ints, room: Ints, flow: Ints,
    depth: Ints, back_depth: Ints, queue: Ints,
) -> bool:  # fmt: skip
    """Set the distances; whether some partial with room can be reached."""
    depth[:] = -1
    back_depth[:] = -1
    head = tail = 0
    for one in range(len(spare)):
        if spare[one] > 0:
            depth[one] = 0
            queue[tail] = one
            tail += 1
    found = False
    while head < tail:
        one = queue[head]
        head += 1
        for edge in range(begin[one], begin[one + 1]):
            other = right[edge]
            if back_depth[other] < 0:
                back_depth[other] = depth[one] + 1
                if room[other] > 0:
                    found = True
                    continue
                for place in range(back_begin[other], back_begin[other + 1]):
                    giver = left[back[place]]
                    if flow[back[place]] > 0 and depth[giver] < 0:
                        depth[giver] = depth[one] + 2
                        queue[tail] = giver
                        tail += 1
    return found


@nb.njit(cache=True, nogil=True)
def _path_from(
    first: int, begin: Ints, right: Ints, back_begin: Ints, back: Ints, left: Ints, room: Ints, flow: Ints,
    depth: Ints, back_depth: Ints, turn: Ints, back_turn: Ints, path: Ints,
) -> int:  # fmt: skip
    """A shortest path from a publication to a partial with room: its edges, there and back in turn; none is 0."""
    length = 0
    one = first
    while True:
        # From a publication on to a partial.
        forward = False
        while turn[one] < begin[one + 1]:
            edge = turn[one]
            other = right[edge]
            if back_depth[other] == depth[one] + 1:
                path[length] = edge
                length += 1
                if room[other] > 0:
                    return length
                # From the partial back to a publication that gave to it.
                while back_turn[other] < back_begin[other + 1]:
                    given = back[back_turn[other]]
                    if flow[given] > 0 and depth[left[given]] == back_depth[other] + 1:
                        path[length] = given
                        length += 1
                        one = left[given]
                        forward = True
                        break
                    back_turn[other] += 1
                if forward:
                    break
                length -= 1
            turn[one] += 1
        if forward:
            continue
        if length == 0:
            return 0
        # Nothing further on this way: one step back, past the edge that led here.
        given, edge = path[length - 1], path[length - 2]
        back_turn[right[given]] += 1
        length -= 2
        one = left[edge]


@nb.njit(cache=True, nogil=True)
def _push(first: int, right: Ints, path: Ints, spare: Ints, room: Ints, flow: Ints) -> None:
    last = right[path[-1]]
    amount = min(spare[first], room[last])
    for place in range(1, len(path), 2):
        amount = min(amount, flow[path[place]])
    for place in range(len(path)):
        flow[path[place]] += amount if place % 2 == 0 else -amount
    spare[first] -= amount
    room[last] -= amount
