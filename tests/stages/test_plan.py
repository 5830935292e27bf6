"""What questions and states are named by: partials in checkpoints are found again by these names."""

from catchment import Subscription
from catchment.model.schema import Schema, Type
from catchment.stages import Active, Plan, compile_plan
from catchment.stages.plan import Part

NAMES = ("a", "b", "a\x1fb", "*", "DISTINCT n", "a`b", 'a", "b', "n")
SCHEMA = Schema(dict.fromkeys(NAMES, Type.INT))


def planned(*asked: str) -> Plan:
    subscriptions = [Subscription(f"s{at}", sql=sql) for at, sql in enumerate(asked)]
    return compile_plan([Active(one) for one in subscriptions], {"t": SCHEMA}, None)


def test_a_column_named_star_has_states_of_its_own() -> None:
    assert Part("tally", None, Type.INT).id != Part("tally", "*", Type.INT).id
    (question,) = planned(
        "SELECT count(*) FROM t GROUP BY window(ts, '1 hour')", "SELECT count(`*`) FROM t GROUP BY window(ts, '1 hour')"
    ).questions.values()
    assert len({part.id for part in question.parts}) == 2


def test_no_name_of_a_key_makes_two_questions_one() -> None:
    keys = ["a, b", "`a\x1fb`", '`a", "b`', "a", "b", "b, a", "`a``b`"]
    plan = planned(*(f"SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), {key}" for key in keys))
    assert len(plan.questions) == len(keys)
