"""Overlays are values: order and repetition of links do not matter, and what is wrong is named."""

from __future__ import annotations

import pickle

import pytest

from catchment.model.errors import OverlayError
from catchment.overlay import Overlay


def test_order_direction_and_repetition_of_links_do_not_matter() -> None:
    one = Overlay.from_links([("b2", "b1"), ("b3", "b2"), ("b1", "b2")])
    other = Overlay.from_links([("b2", "b3"), ("b1", "b2")])
    assert one == other
    assert hash(one) == hash(other)
    assert one.brokers == ("b1", "b2", "b3")
    assert one.links == (("b1", "b2"), ("b2", "b3"))


def test_brokers_are_ordered_as_strings() -> None:
    overlay = Overlay.from_links([("b2", "b10"), ("b10", "B3")])
    assert overlay.brokers == ("B3", "b10", "b2")
    assert [overlay.require(broker) for broker in overlay.brokers] == [0, 1, 2]


def test_a_single_broker_is_an_overlay() -> None:
    alone = Overlay.single("b1")
    assert (alone.brokers, alone.links, len(alone), "b1" in alone) == (("b1",), (), 1, True)
    assert alone.neighbours("b1") == ()


def test_neighbours_are_ascending() -> None:
    assert Overlay.from_links([("m", "z"), ("m", "a"), ("m", "k")]).neighbours("m") == ("a", "k", "z")


def test_an_overlay_travels_by_pickle() -> None:
    overlay = Overlay.from_links([("a", "b"), ("b", "c")])
    copy = pickle.loads(pickle.dumps(overlay))
    assert copy == overlay
    assert copy.require("c") == 2


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([], "empty"),
        ([("a", "a")], "'a'-'a' joins a broker to itself"),
        ([("a", "b", "c")], "is no link; accepted is a pair"),
        (["ab"], "'ab' is no link"),
        ([("a", "")], "'' is no broker id"),
        ([("a", "b"), ("c", "d")], "in 2 pieces: a, b and c, d"),
    ],
)
def test_what_is_no_overlay_is_refused(links: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(OverlayError, match=said):
        Overlay.from_links(links)


def test_a_link_to_an_unlisted_broker_is_refused() -> None:
    with pytest.raises(OverlayError, match=r"names 'c'; known are a, b"):
        Overlay(("a", "b"), (("a", "b"), ("b", "c")))


def test_an_unknown_broker_is_named_and_the_known_ones_shortened() -> None:
    overlay = Overlay.from_links([("hub", f"edge{index:03}") for index in range(100)])
    with pytest.raises(OverlayError) as error:
        overlay.require("egde001")
    assert "'egde001'" in str(error.value)
    assert "edge000, edge001" in str(error.value)
    assert "(101 in all)" in str(error.value)
    assert len(str(error.value)) < 200


def test_many_pieces_are_shortened_too() -> None:
    with pytest.raises(OverlayError) as error:
        Overlay.from_links([(f"a{index}", f"b{index}") for index in range(50)])
    assert "in 50 pieces" in str(error.value)
    assert "42 more" in str(error.value)
