"""What a broker keeps and grants never errs by more than what it was granted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.broker.interest.slack import ADDED, DIVISIONS, MULTIPLIED, UNSHARED, WHOLE, Division, Sharing

SHARINGS = [ADDED, WHOLE, MULTIPLIED, UNSHARED]


@given(st.sampled_from(SHARINGS), st.floats(0, 1e6), st.integers(0, 20), st.booleans(), st.sampled_from(DIVISIONS))
def test_what_is_kept_and_granted_makes_up_at_most_what_was_granted(
    sharing: Sharing, slack: float, branches: int, whole: bool, division: Division
) -> None:
    slack = max(slack, sharing.none)
    own, granted = sharing.divided(slack, branches, whole=whole, division=division)
    assert len(granted) == branches
    assert all(one >= sharing.none for one in (own, *granted))
    below = sharing.total(granted)
    # A broker errs by what it keeps, besides what its branches err by.
    together = own * below if sharing is MULTIPLIED and branches else own + below if branches else own
    assert together <= slack * (1 + 1e-12)


@pytest.mark.parametrize(
    ("sharing", "division", "slack", "branches", "whole", "expected"),
    [
        # The paper's example: 2 is 1 for each of two children.
        (ADDED, "leaves", 2, 2, True, (0, [1, 1])),
        (ADDED, "leaves", 3, 2, True, (0, [2, 1])),
        (ADDED, "leaves", 1.5, 2, True, (0, [1, 0])),
        (ADDED, "leaves", 3, 2, False, (0, [1.5, 1.5])),
        (ADDED, "leaves", 3, 0, True, (3, [])),
        (ADDED, "even", 6, 2, True, (2, [2, 2])),
        (WHOLE, "leaves", 6, 2, False, (0, [6, 6])),
        (WHOLE, "even", 6, 2, False, (3, [3, 3])),
        (UNSHARED, "leaves", 0, 2, False, (0, [0, 0])),
    ],
)
def test_shares(
    sharing: Sharing, division: Division, slack: float, branches: int, whole: bool, expected: tuple[float, list[float]]
) -> None:
    assert sharing.divided(slack, branches, whole=whole, division=division) == expected
