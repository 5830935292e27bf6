"""Virtual time: what is to happen, in order."""

from catchment.simulation.timeline import Timeline


def test_things_of_the_same_time_happen_in_the_order_in_which_they_were_asked_for() -> None:
    timeline = Timeline()
    seen: list[str] = []
    timeline.at(5, lambda: seen.append("second"))
    timeline.at(3, lambda: timeline.at(1, lambda: seen.append(f"first, at {timeline.now_us}")))
    timeline.at(5, lambda: seen.append("third"))
    timeline.at(9, lambda: seen.append("fourth"))
    timeline.run(8)
    assert (seen, timeline.now_us) == (["first, at 3", "second", "third"], 8)
    timeline.run()
    assert (seen[3:], timeline.now_us) == (["fourth"], 9)
