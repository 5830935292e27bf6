"""The overlay: brokers, and the links between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from catchment.model.errors import OverlayError

__all__ = ["Overlay"]

_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Overlay:
    """A connected graph of brokers. Two overlays of the same brokers and links are equal, however they were listed."""

    brokers: tuple[str, ...]
    """Ascending by code point; a broker's position here is its index in every array and mask."""
    links: tuple[tuple[str, str], ...]
    """Each undirected link once, as (smaller id, larger id), ascending."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)
    _neighbours: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        brokers = tuple(sorted({_checked(broker) for broker in self.brokers}))
        if not brokers:
            raise OverlayError(
                "the overlay is empty; accepted are one broker (Overlay.single) or links between brokers"
            )
        index = {broker: position for position, broker in enumerate(brokers)}
        links = tuple(sorted({_ordered(link) for link in self.links}))
        neighbours: list[list[int]] = [[] for _ in brokers]
        for link in links:
            ends = [_position(index, brokers, end, f"link {link!r} names") for end in link]
            neighbours[ends[0]].append(ends[1])
            neighbours[ends[1]].append(ends[0])
        object.__setattr__(self, "brokers", brokers)
        object.__setattr__(self, "links", links)
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "_neighbours", tuple(tuple(sorted(of)) for of in neighbours))
        pieces = self._pieces()
        if len(pieces) > 1:
            named = " and ".join(_shortened(piece) for piece in pieces[:_SHOWN_MAX])
            more = f" and {len(pieces) - _SHOWN_MAX} more" if len(pieces) > _SHOWN_MAX else ""
            raise OverlayError(f"the overlay is in {len(pieces)} pieces: {named}{more}; all brokers must be connected")

    @classmethod
    def from_links(cls, links: Iterable[Sequence[str]]) -> Overlay:
        """The overlay of these undirected links and their ends; a link listed twice, either way round, is one link."""
        ordered = [_ordered(link) for link in links]
        return cls(tuple(end for link in ordered for end in link), tuple(ordered))

    @classmethod
    def single(cls, broker: str) -> Overlay:
        """The overlay of one broker and no link."""
        return cls((broker,), ())

    def require(self, broker: str) -> int:
        """The index of a broker; an error names the known ones if it is not in the overlay."""
        return _position(self._index, self.brokers, broker, "there is no broker")

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """The brokers one link away, ascending."""
        return tuple(self.brokers[index] for index in self._neighbours[self.require(broker)])

    def neighbour_indices(self, index: int) -> tuple[int, ...]:
        """As `neighbours`, by index."""
        return self._neighbours[index]

    def __contains__(self, broker: object) -> bool:
        return broker in self._index

    def __len__(self) -> int:
        return len(self.brokers)

    def __reduce__(self) -> tuple[object, ...]:
        return (Overlay, (self.brokers, self.links))

    def _pieces(self) -> list[list[str]]:
        unseen = dict.fromkeys(range(len(self.brokers)))
        pieces: list[list[str]] = []
        while unseen:
            reached = [next(iter(unseen))]
            del unseen[reached[0]]
            for index in reached:
                for neighbour in self._neighbours[index]:
                    if neighbour in unseen:
                        del unseen[neighbour]
                        reached.append(neighbour)
            pieces.append([self.brokers[index] for index in sorted(reached)])
        return pieces


def _checked(broker: object) -> str:
    if not isinstance(broker, str) or not broker:
        raise OverlayError(f"{broker!r} is no broker id; accepted is a string that is not empty")
    return broker


def _ordered(link: Sequence[str]) -> tuple[str, str]:
    # A string is a sequence too: "ab" would pass as the link a-b.
    if isinstance(link, str) or len(link) != 2:
        raise OverlayError(f"{link!r} is no link; accepted is a pair of broker ids")
    one, other = _checked(link[0]), _checked(link[1])
    if one == other:
        raise OverlayError(f"the link {one!r}-{other!r} joins a broker to itself; a link needs two different brokers")
    return (one, other) if one < other else (other, one)


def _position(index: dict[str, int], brokers: tuple[str, ...], broker: str, saying: str) -> int:
    found = index.get(broker)
    if found is None:
        raise OverlayError(f"{saying} {broker!r}; known are {_shortened(brokers)}")
    return found


def _shortened(brokers: Sequence[str]) -> str:
    shown = ", ".join(brokers[:_SHOWN_MAX])
    return f"{shown}, … ({len(brokers)} in all)" if len(brokers) > _SHOWN_MAX else shown
