"""Links that lose, repeat and delay, and in the end deliver everything in order: else no simulation proves anything."""

from random import Random
from typing import Any

from catchment.simulation.network import Network
from catchment.simulation.options import Options
from catchment.simulation.timeline import Timeline


class Link:
    """A link from `a` to `b`, and what has arrived when."""

    def __init__(self, **options: Any) -> None:
        self.timeline = Timeline()
        self.arrived: list[tuple[int, bytes]] = []
        self.deaf_until_us = 0
        self.rooms: list[tuple[str, str]] = []
        made_room = lambda source, target: self.rooms.append((source, target))  # noqa: E731
        self.network = Network(self.timeline, Random(7), Options(**options), self._deliver, made_room)

    def _deliver(self, source: str, target: str, data: bytes) -> int | None:
        if self.timeline.now_us < self.deaf_until_us:
            return self.deaf_until_us
        self.arrived.append((self.timeline.now_us, data))
        return None

    def send(self, count: int) -> list[bytes]:
        sent = [bytes([number]) for number in range(count)]
        for data in sent:
            self.network.send("a", "b", data)
        return sent

    @property
    def frames(self) -> list[bytes]:
        return [data for _, data in self.arrived]


def test_frames_arrive_in_the_order_in_which_they_were_sent() -> None:
    link = Link(delay_us_min=1, delay_us_max=1_000, drops=0.5, retransmit_us=300)
    sent = link.send(100)
    link.timeline.run()
    assert link.frames == sent
    times = [time_us for time_us, _ in link.arrived]
    assert times == sorted(times)
    assert times[-1] > 1_000  # some were lost, and sent again
    assert link.network.is_empty


def test_some_frames_come_twice_side_by_side() -> None:
    link = Link(duplicates=0.5)
    sent = link.send(100)
    link.timeline.run()
    assert sorted(set(link.frames)) == sent
    assert 120 < len(link.frames) < 180
    assert link.frames == sorted(link.frames)


def test_a_link_that_is_cut_carries_nothing_until_it_is_whole_again() -> None:
    link = Link(delay_us_min=10, delay_us_max=10)
    link.network.cut("b", "a", 500)
    link.send(2)
    link.timeline.run(499)
    assert link.arrived == []
    assert not link.network.is_empty
    link.timeline.run()
    assert [time_us for time_us, _ in link.arrived] == [500, 500]


def test_what_the_receiver_does_not_read_is_tried_again() -> None:
    link = Link(delay_us_min=10, delay_us_max=10)
    link.deaf_until_us = 300
    sent = link.send(3)
    link.timeline.run()
    assert link.arrived == [(300, data) for data in sent]


def test_a_link_takes_only_so_many_frames_and_says_when_it_has_room_again() -> None:
    link = Link(delay_us_min=10, delay_us_max=10, in_flight_max=2)
    assert link.network.has_room("a", "b")
    link.send(2)
    assert not link.network.has_room("a", "b")
    assert link.network.has_room("b", "a")
    link.timeline.run()
    assert link.network.has_room("a", "b")
    assert link.rooms == [("a", "b")] * 2


def test_long_frames_take_longer_and_wait_for_each_other() -> None:
    link = Link(delay_us_min=10, delay_us_max=10, bytes_per_s=1_000_000)
    for size in (100, 50):
        link.network.send("a", "b", bytes(size))
    link.timeline.run()
    assert [time_us for time_us, _ in link.arrived] == [110, 160]
