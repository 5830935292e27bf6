"""`replay`: every answer over a bounded table of publications, from one Spark job each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from catchment.model.errors import ConfigurationError, require_type
from catchment.model.subscription import Subscription, listed
from catchment.model.times import duration_us
from catchment.overlay import LINK_TRAFFIC_SCHEMA, Overlay, topic_tree, word_count
from catchment.overlay.placement import MESSAGES, Chosen, Cost, Strategy
from catchment.pipeline import shared_pass
from catchment.pipeline.acceptance import OUTSIDE, REASON, accepted, judged
from catchment.pipeline.columns import any_of_sql, attribute_of, column_of, is_attribute, spark_literal
from catchment.pipeline.deduplication import deduplicated, with_content
from catchment.pipeline.plain_sql import plain_answers
from catchment.pipeline.planner import Choice, choose
from catchment.pipeline.plans import SentPlan
from catchment.pipeline.publications import Catalog, Preparation
from catchment.pipeline.statistics import Known, known_columns
from catchment.pipeline.topics import warn_of_absent_topics
from catchment.pipeline.traffic import Sent, carried_by_lots, needs_lots, publications_of, traffic_of
from catchment.pipeline.workers import prepare_workers
from catchment.stages import LOT_KINDS, PACKED_SCHEMA, Active, Plan, Selection, Wanted, compile_plan

__all__ = ["Delivery", "Engine", "Run", "replay"]

Delivery = Literal["final", "revisions"]
Engine = Literal["auto", "shared", "sql"]


@dataclass(frozen=True)
class Run:
    """The results of a replay, each a DataFrame that computes when it is used.

    `persist` keeps what one pass over the publications yields, so that several results cost one pass.
    """

    spark: SparkSession
    plan: Plan
    overlay: Overlay | None
    strategy: Strategy
    choice: Choice
    _preparation: Preparation
    _deduplicate: bool
    _sent_plan: SentPlan
    _rows: DataFrame | None = None
    _keeps_answers: bool = False

    def persist(self) -> Run:
        """The same run with everything that one pass yields kept in memory or on disk."""
        wanted = Wanted(**{"crossings": False, "origins": False, **self._for_traffic})
        rows = self._matched(wanted).persist()
        shared = Choice("shared", "one pass is kept for all results")
        return replace(self, choice=shared, _rows=rows, _keeps_answers=True)

    def persist_answers(self) -> Run:
        """The same run, which computes `notifications` and `overflows` together and keeps both."""
        return replace(self, _keeps_answers=True)

    @property
    def placement(self) -> str:
        return self.strategy.name

    def under(self, placement: Chosen) -> Run:
        """The same run, whose `traffic` is that of another placement."""
        other = replace(self, strategy=replace(self.strategy, placement=placement))
        # What one pass yielded may not tell enough for it.
        return other if other._for_traffic == self._for_traffic else replace(other, _rows=None)

    def unpersist(self) -> None:
        if self._rows is not None:
            self._rows.unpersist()
        if self._keeps_answers and "_answers" in self.__dict__:
            self._answers.unpersist()

    @property
    def _for_traffic(self) -> dict[str, Any]:
        """What the pass is asked for if somebody wants to know the traffic."""
        if self.overlay is None or len(self.overlay) == 1:
            return {}
        if needs_lots(self.plan, self.strategy):
            return {"lots": True, "period_us": self.strategy.period_us}
        return {"crossings": True, "origins": True}

    def _pass(self, **asked: Any) -> DataFrame:
        if self._rows is not None:
            return self._rows
        nothing = {"partials": False, "deliveries": False, "crossings": False, "origins": False}
        wanted = Wanted(**{**nothing, **asked})
        return self._matched(wanted)

    def _matched(self, wanted: Wanted) -> DataFrame:
        return shared_pass.match(self._publications, self.plan, self._sent_plan, wanted, known=self._known)

    @cached_property
    def _known(self) -> Known:
        return known_columns(self._preparation.source)

    @cached_property
    def _publications(self) -> DataFrame:
        """Prepared publications, with the attributes that somebody asks about or whose size counts."""
        return self._prepared(None if self.overlay is not None else self.plan.attributes)

    def _prepared(self, attributes: Collection[str] | None) -> DataFrame:
        if not self._deduplicate:
            return self._preparation.frame(attributes, self._known.finite)
        events = with_content(self._preparation.frame(None, self._known.finite))
        brokers = self.plan.brokers if self.plan.has_overlay else None
        events = judged(events, self.plan.schemas, brokers, self._known, measured=False)
        asked = [
            name
            for name in events.columns
            if attributes is None or not is_attribute(name) or attribute_of(name) in attributes
        ]
        return deduplicated(events.select(*asked))

    @cached_property
    def partials(self) -> DataFrame:
        """What the shared pass makes of the publications: states by question and slice, not yet merged."""
        if self._rows is not None:
            return self._rows.where("kind = 'partial'").select(*PACKED_SCHEMA.names)
        return shared_pass.partials(self._publications, self.plan, self._sent_plan, self._known)

    @cached_property
    def notifications(self) -> DataFrame:
        """subscription, window_start, window_end, group, output, value, exact, publications, revision."""
        return shared_pass.notifications_of(self._answers)

    @cached_property
    def overflows(self) -> DataFrame:
        """subscription, window_start, window_end, group, output, problem: values beyond their type, not told."""
        return shared_pass.overflows_of(self._answers)

    @cached_property
    def _answers(self) -> DataFrame:
        if self.choice.engine == "sql":
            answers = plain_answers(self._publications, self.plan, self._known)
        else:
            partials = shared_pass.partials_by_question(self.partials)
            answers = shared_pass.finish(partials, self._sent_plan, Selection())
        return answers.persist() if self._keeps_answers else answers

    @cached_property
    def deliveries(self) -> DataFrame:
        """subscription, event_id: what regular subscriptions receive."""
        rows = self._pass(deliveries=True).where("kind = 'delivery'")
        return rows.select(F.col("name").alias("subscription"), F.explode("ids").alias("event_id"))

    @cached_property
    def rejected(self) -> DataFrame:
        """event_id, reason: events that no subscription sees, and why."""
        rows = self._pass().where("kind = 'refused'")
        return rows.select(F.explode("ids").alias("event_id"), F.col("name").alias("reason"))

    @cached_property
    def _carried(self) -> tuple[Sent, DataFrame]:
        """What links carry between brokers, and what else is sent."""
        assert self.overlay is not None
        tree = topic_tree(self.overlay)
        rows = self._pass(partials=True, **self._for_traffic)
        by_lots = needs_lots(self.plan, self.strategy)
        words = 0 if by_lots or len(self.overlay) == 1 else word_count(len(self.overlay))
        sent = shared_pass.messages(shared_pass.partials_by_question(rows), self._sent_plan, Selection(), words)
        if by_lots:
            lots = rows.where(F.col("kind").isin(*LOT_KINDS)).select("kind", "name", "numbers").collect()
            return carried_by_lots(tree, self.plan, self.strategy, lots), sent
        crossings = rows.where("kind = 'crossing'").select("numbers").collect()
        numbers = (number for row in crossings for number in row.numbers)
        return Sent(publications_of(tree, self.strategy, numbers), None), sent

    @cached_property
    def traffic(self) -> DataFrame:
        """source, target, kind, messages, bytes: what each directed link carries under the placement."""
        if self.overlay is None:
            return self.spark.createDataFrame([], _spark_schema())
        table = traffic_of(topic_tree(self.overlay), self.strategy, *self._carried)
        return self.spark.createDataFrame(table.to_pandas(), _spark_schema())

    @property
    def transitions(self) -> int:
        """How often brokers change their mind under the placement."""
        return 0 if self.overlay is None else self._carried[0].transitions

    def delivered(self, subscription: str) -> DataFrame:
        """The events that a regular subscription receives, with the columns it asked for."""
        query = self.plan.regular.get(subscription)
        if query is None:
            known = ", ".join(self.plan.regular_names) or "none"
            raise ConfigurationError(f"no regular subscription is named {subscription!r}; there are {known}")
        asked = None if query.columns is None else {*query.columns, *query.where.attributes}
        # What it asks comes first, as Spark takes no condition to the files past the one about what is accepted.
        matching = any_of_sql([query.where], self.plan.schemas[query.topic])
        of_topic = self._prepared(asked).where(f"topic = {spark_literal(query.topic)}").where(matching)
        events = accepted(of_topic, self.plan, self._known).drop(REASON, OUTSIDE)
        there = set(events.columns)
        names = (
            map(attribute_of, events.columns) if query.columns is None else dict.fromkeys(("event_id", *query.columns))
        )
        columns = {name: F.col(column_of(name)) if column_of(name) in there else F.lit(None) for name in names}
        return events.select(*(column.alias(name) for name, column in columns.items()))

    def explain(self) -> str:
        """How the questions are answered, and why so."""
        return f"{self.choice}\n{self.plan.summary()}"


def replay(
    spark: SparkSession,
    publications: DataFrame,
    *,
    subscriptions: Iterable[Subscription],
    overlay: Overlay | None = None,
    placement: Chosen = "early",
    schema: Any = None,
    lateness: str = "0 seconds",
    delivery: Delivery = "final",
    deduplicate: bool = False,
    engine: Engine = "auto",
    sampling_period: str = "2 seconds",
    cost: Cost = MESSAGES,
) -> Run:
    """Answer all subscriptions over a bounded DataFrame of publications.

    `schema` is a mapping of topic to schema, one schema for all topics, or None: then the columns say it. A bounded
    input is complete, so nothing in it is late and every value is final: `lateness` and `delivery` only say how the
    same job would stream. `placement` is a name, or a class of `catchment.overlay.placement.Placement`. An adaptive one
    thinks again every `sampling_period`, and weighs messages by `cost`. Called on the driver; nothing runs until a
    result is used.
    """
    strategy = Strategy(placement, sampling_period_us(sampling_period), cost)
    check_arguments(publications, overlay)
    check_options(delivery=delivery, lateness=lateness)
    catalog = Catalog.of(schema, publications)
    asked = listed(subscriptions)
    plan = compile_plan((Active(one) for one in asked), catalog.schemas, overlay, open_topics=catalog.is_open)
    preparation = Preparation(publications, catalog)
    warn_of_absent_topics(asked, publications)
    choice = choose(plan, engine)
    prepare_workers(spark.sparkContext)
    sent_plan = SentPlan.of(spark.sparkContext, plan)
    return Run(spark, plan, overlay, strategy, choice, preparation, deduplicate, sent_plan)


def check_arguments(publications: DataFrame, overlay: Overlay | None) -> None:
    require_type("publications", publications, DataFrame)
    if overlay is not None:
        require_type("overlay", overlay, Overlay)


def check_options(*, delivery: str, lateness: str) -> int:
    """Refuse what no job can do; the lateness in microseconds."""
    if delivery not in ("final", "revisions"):
        raise ConfigurationError(f"delivery is {delivery!r}; accepted are 'final' and 'revisions'")
    lateness_us = duration_us(lateness)
    if lateness_us < 0:
        raise ConfigurationError(f"lateness is {lateness!r}; accepted is a duration of zero or more")
    return lateness_us


def sampling_period_us(given: str) -> int:
    period_us = duration_us(given)
    if period_us <= 0:
        raise ConfigurationError(f"sampling_period is {given!r}; accepted is a duration of more than zero")
    return period_us


def _spark_schema() -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(LINK_TRAFFIC_SCHEMA)
