"""Publications in lots: put together if they are wanted for the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from catchment.stages import lots_of_wants, mixed, numbered

WANTED = st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=12)


@given(wanted=WANTED, data=st.data())
def test_lots_say_the_same_as_their_publications(wanted: list[set[int]], data: st.DataObject) -> None:
    pairs = data.draw(st.permutations([(row, name) for row, names in enumerate(wanted) for name in names]))
    apart = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(wanted), max_size=len(wanted))))
    sizes = np.arange(1, len(wanted) + 1)
    event = np.array([row for row, _ in pairs], np.int64)
    keys = mixed(np.array([name for _, name in pairs], np.int64).reshape(-1, 1), 0)
    lots = lots_of_wants(event, keys, sizes, apart)
    alike: dict[tuple[frozenset[int], int], list[int]] = {}
    for row, names in enumerate(wanted):
        if names:
            alike.setdefault((frozenset(names), int(apart[row])), []).append(row)
    edges: dict[int, set[int]] = {}
    for lot, want in zip(lots.lot.tolist(), lots.want.tolist(), strict=True):
        edges.setdefault(lot, set()).add(pairs[want][1])
    found = {
        (frozenset(names), int(lots.apart[lot])): (int(lots.weights[lot]), int(lots.size_bytes[lot]))
        for lot, names in edges.items()
    }
    assert found == {key: (len(rows), int(sizes[rows].sum())) for key, rows in alike.items()}
    assert len(lots.lot) == sum(map(len, edges.values()))
    # Each want finds the edge of its own lot that is about the same.
    for (row, name), edge in zip(pairs, lots.edge.tolist(), strict=True):
        assert pairs[lots.want[edge]][1] == name
        assert frozenset(edges[int(lots.lot[edge])]) == wanted[row]
        assert lots.apart[lots.lot[edge]] == apart[row]


@given(st.lists(st.integers(0, 5)))
def test_equal_keys_have_one_number(keys: list[int]) -> None:
    example, numbers = numbered(np.array(keys, np.uint64))
    assert [keys[example[number]] for number in numbers.tolist()] == keys
    assert len(example) == len(set(keys))
