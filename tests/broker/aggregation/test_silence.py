"""Nothing stays open because somebody is silent."""

from catchment.broker.aggregation.clocks import Clock
from catchment.broker.aggregation.silence import Silence
from catchment.broker.peers import HERE
from tests.broker.aggregation.tools import Ear

IDLE_US = 100


class Waiting:
    """A broker between `left` and `right` whose publishers are silent for too long after 100 us."""

    def __init__(self, **open_ends: int) -> None:
        self.clock = Clock(lateness_us=0, idle_after_us=IDLE_US)
        self.open_ends = open_ends
        """By side, or `here`, the first end that something waits for."""
        self.silence = Silence("t", "t", self.clock, IDLE_US, self._ends)

    def _ends(self) -> dict[str, int]:
        return {HERE if side == "here" else side: end_us for side, end_us in self.open_ends.items()}


def test_what_is_open_is_looked_at_when_it_should_long_have_been_closed() -> None:
    one = Waiting(here=50, right=40)
    one.clock.see(30, 1_000)
    ear = Ear({"left"}, now_us=1_000)
    one.silence.watch(ear)
    assert ear.timers == {"watch": 1_000 + (40 - 30) + IDLE_US}
    later = Ear({"left"}, now_us=1_005)
    one.silence.watch(later)
    assert later.timers == {}  # it is watched already


def test_nobody_watches_where_nothing_is_open() -> None:
    ear = Ear({"left"})
    Waiting().silence.watch(ear)
    assert ear.timers == {}


def test_those_whose_time_is_behind_are_asked_once() -> None:
    one = Waiting(here=40)
    one.clock.see(30, 1_000)
    one.clock.heard["right"] = 40
    early, late, again = (Ear({"left", "right"}, now_us=now_us) for now_us in (1_109, 1_110, 1_500))
    one.silence.look(early)
    assert early.heard == []
    one.silence.look(late)
    assert late.heard == [("left", ["want", "t", 40, 1_110])]
    one.silence.look(again)
    assert again.heard == []
    one.silence.watch(again)
    assert again.timers == {}


def test_a_time_that_a_neighbour_waits_for_is_asked_of_all_others() -> None:
    one = Waiting()
    ear = Ear({"left", "right", "client"}, now_us=1_000)
    one.clock.accept(20, 990)
    one.silence.want(ear, 40, "right")
    assert ear.heard == [("left", ["want", "t", 40, 1_000])]
    assert ear.timers == {"idle": 990 + IDLE_US}


def test_a_broker_s_own_time_goes_on_when_its_publishers_were_silent_for_long_enough() -> None:
    one = Waiting()
    one.clock.accept(20, 990)
    one.silence.want(Ear({"client"}, now_us=1_000), 40, "right")
    early = Ear({"client"}, now_us=1_050)
    assert not one.silence.has_passed(early)
    assert early.timers == {"idle": 1_090}
    assert one.clock.own_us() == 20
    assert one.silence.has_passed(Ear({"client"}, now_us=1_090))
    assert one.clock.own_us() == 40
    assert not one.silence.has_passed(Ear({"client"}, now_us=1_200))  # nobody waits any more


def test_who_begins_to_publish_is_asked_for_what_others_wait_for() -> None:
    one = Waiting()
    one.silence.want(Ear({"left"}, now_us=1_000), 40, "right")
    one.clock.heard["left"] = 30
    ear = Ear({"left", "client"}, now_us=2_000)
    one.clock.arrived_us = 2_000
    one.silence.peers_changed(ear)
    assert ear.heard == [("left", ["want", "t", 40, 2_000])]
    assert ear.timers == {"idle": 2_000 + IDLE_US}
    # Once that time has come, it is forgotten.
    one.clock.heard["left"] = 40
    one.clock.accept(40, 2_010)
    one.silence.peers_changed(Ear({"left", "client"}, now_us=2_010))
    one.clock.heard["left"] = 35
    quiet = Ear({"left", "client"}, now_us=2_020)
    one.silence.peers_changed(quiet)
    assert quiet.heard == []
