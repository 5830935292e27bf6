"""Every engine of Catchment answers as plain Spark SQL does, one query a subscription, over hostile data.

A failure prints the seed and the subscriptions. To replay it, on all engines:

    REFERENCE_SEED=42 pytest tests/reference/test_reference.py
"""

import os
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from tests.reference.comparing import differences
from tests.reference.drawing import Case, drawn_case
from tests.reference.engines import ENGINES, OVERFLOWS, accepted_by, published, raw_publications
from tests.reference.spark_sql import configured, reference_answer

# A topic without an event is drawn on purpose.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:no event has the topic")]

REPLAY = "replay: REFERENCE_SEED={seed} pytest tests/reference/test_reference.py"


def check(spark: SparkSession, seed: int, engines: Sequence[str]) -> None:
    case = drawn_case(seed, overflows=OVERFLOWS)
    found = found_in(spark, case, engines)
    assert not found, told(case, found)


def found_in(spark: SparkSession, case: Case, engines: Sequence[str]) -> list[str]:
    """All differences of all engines, and what was refused."""
    asked, refused = accepted_by(case)
    found = [f"refused {name}: {reason}" for name, reason in refused.items() if not _may_refuse(reason)]
    with published(case) as folder:
        answer = reference_answer(spark, lambda: raw_publications(spark, case, folder), case)
        with configured(spark, case.settings):
            for engine in engines:
                try:
                    for said in ENGINES[engine](spark, case, folder, asked):
                        found += differences(case, answer, said)
                except Exception as error:
                    found.append(f"{engine} : raised {type(error).__name__}: {str(error)[:700]}")
    return found


REFUSED_BY_NAME = (
    "disjuncts",
    "different forms",
    "accepted are integers from",
    "HAVING is never true",
    "more digits than a double",
    "of which Spark would",
)


def _may_refuse(reason: str) -> bool:
    """What is refused by name is no wrong answer; anything else that Spark reads has to be read."""
    return any(text in reason for text in REFUSED_BY_NAME)


def told(case: Case, found: list[str]) -> str:
    """What differs, the SQL of whom it concerns, and how to see it again."""
    concerned = {line.split(" ")[1].rstrip(":") for line in found}
    texts = [f"{one.name}: {one.sql[:1500]}" for one in case.subscriptions if one.name in concerned]
    settings = ", ".join(f"{name.removeprefix('spark.sql.')}={value}" for name, value in case.settings.items())
    columns = ", ".join(f"{column.name!r} {column.kind.spark}" for column in case.columns)
    return "\n".join([*found[:30], *texts[:10], columns, settings, REPLAY.format(seed=case.seed)])


SEEDS = [int(os.environ["REFERENCE_SEED"])] if "REFERENCE_SEED" in os.environ else [1, 2, 4]


def engines_of(seed: int) -> list[str]:
    """Every engine; a stream, which takes the longest, for one case in four."""
    return [engine for engine in ENGINES if engine != "stream" or seed % 4 == 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_engine_equals_plain_spark_sql_for_a_seed(spark: SparkSession, seed: int) -> None:
    check(spark, seed, [*ENGINES] if "REFERENCE_SEED" in os.environ else engines_of(seed))


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 20))
def test_every_engine_equals_plain_spark_sql_at_length(spark: SparkSession, first: int) -> None:
    """Go through all seeds, also after one that failed, so that one run finds all that differ."""
    cases = [drawn_case(seed, overflows=OVERFLOWS) for seed in range(first, first + 20)]
    differing = [(case, found) for case in cases if (found := found_in(spark, case, engines_of(case.seed)))]
    assert not differing, "\n\n".join(told(case, found) for case, found in differing)
