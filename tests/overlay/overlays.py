"""Random connected overlays."""

from __future__ import annotations

from hypothesis import strategies as st

from catchment.overlay import Overlay


@st.composite
def overlays(draw: st.DrawFn, *, brokers_max: int = 12) -> Overlay:
    """A random tree and some links across it, under ids that are not in order of their making."""
    count = draw(st.integers(1, brokers_max))
    names = [f"b{index}" for index in draw(st.permutations(range(count)))]
    if count == 1:
        return Overlay.single(names[0])
    links = [(names[index], names[draw(st.integers(0, index - 1))]) for index in range(1, count)]
    crossing = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda link: link[0] != link[1])
    return Overlay.from_links(links + draw(st.lists(crossing, max_size=count)))
