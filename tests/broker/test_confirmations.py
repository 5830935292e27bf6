"""Answers wait for the changes that were sent before them, and for nothing else."""

from random import Random

from catchment.broker.confirmations import Confirmations, WaitingAnswer
from catchment.broker.messages import Acknowledged, Confirmed


def numbers(due: list[WaitingAnswer] | None) -> list[int]:
    assert due is not None
    return [one.answer.request if isinstance(one.answer, Acknowledged) else -one.answer.change for one in due]


def test_an_answer_waits_for_changes_sent_before_it() -> None:
    here = Confirmations(["left", "right"])
    assert here.wait("c", Acknowledged(1), "") is not None
    changes = [here.next_change("left"), here.next_change("left"), here.next_change("right")]
    assert changes == [1, 2, 1]
    assert here.wait("c", Acknowledged(2), "s") is None
    here.next_change("left")
    assert numbers(here.confirm("left", 2)) == []
    assert numbers(here.confirm("right", 1)) == []
    assert (here.unconfirmed_count("left"), here.unconfirmed_count("right")) == (2, 0)
    assert numbers(here.confirm("left", 1)) == [2]
    assert not here


def test_a_neighbour_does_not_wait_for_itself() -> None:
    here = Confirmations(["left", "right"])
    here.next_change("left")
    assert here.wait("left", Confirmed(7), "") is not None
    assert here.wait("right", Confirmed(8), "") is None
    assert numbers(here.confirm("left", 1)) == [-8]


def test_what_nobody_asked_for_confirms_nothing() -> None:
    here = Confirmations(["left"])
    here.next_change("left")
    assert here.confirm("left", 2) is None
    assert here.confirm("left", 0) is None
    assert numbers(here.confirm("left", 1)) == []
    assert here.confirm("left", 1) is None


def test_clients_that_go_and_neighbours_that_start_anew_are_not_waited_for() -> None:
    here = Confirmations(["left", "right"])
    here.next_change("left")
    for request, client in ((1, "c"), (2, "d"), (3, "c")):
        here.wait(client, Acknowledged(request), "")
    here.wait("right", Confirmed(9), "")
    assert (here.waiting_count("c"), here.is_waiting("c", 3), here.is_waiting("d", 3)) == (2, True, False)
    here.forget_client("c")
    assert here.waiting_count("c") == 0
    here.next_change("right")
    here.wait("left", Confirmed(5), "")
    assert numbers(here.confirm_all("left")) == [2, -9]
    assert numbers(here.confirm_all("right")) == []
    assert not here
    assert here.next_change("left") == 2


def test_any_order_of_confirmations_gives_what_sets_would() -> None:
    """The queues are held to plain sets: an answer is due when the last change of its own set is confirmed."""
    for seed in range(200):
        random, names = Random(seed), ["b1", "b2", "b3"]
        here, open_changes = Confirmations(names), set[tuple[str, int]]()
        expected: list[tuple[str, int, set[tuple[str, int]]]] = []
        for request in range(40):
            if random.random() < 0.5:
                name = random.choice(names)
                open_changes.add((name, here.next_change(name)))
            elif random.random() < 0.5 and open_changes:
                name, change = random.choice(sorted(open_changes))
                open_changes.remove((name, change))
                for _, _, needs in expected:
                    needs.discard((name, change))
                due = {number for _, number, needs in expected if not needs}
                expected = [one for one in expected if one[2]]
                assert set(map(abs, numbers(here.confirm(name, change)))) == due, f"seed {seed}"
            else:
                peer = random.choice(["c", "d", *names])
                needs = {one for one in open_changes if one[0] != peer}
                answer = Confirmed(request) if peer in names else Acknowledged(request)
                assert (here.wait(peer, answer, "") is None) == bool(needs), f"seed {seed}"
                if needs:
                    expected.append((peer, request, needs))
            if random.random() < 0.1:
                back = Confirmations(names)
                back.restore(here.saved())
                here = back
        assert len(here) == len(expected)
