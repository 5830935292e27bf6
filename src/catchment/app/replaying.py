"""`catchment replay`: every answer over a bounded source."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import catchment
from catchment.app.asking import DrawnSubscriptions, read_subscriptions
from catchment.app.config import Configuration, SinkOptions, attributes_of
from catchment.app.outputs import refuse_to_overwrite, require_local_folder, require_spark_folder
from catchment.app.printing import print_facts, print_rows
from catchment.lab.progress import Steps
from catchment.lab.verifying import Verification, verify
from catchment.lab.warming import start_workers
from catchment.model.errors import ConfigurationError
from catchment.model.subscription import Subscription
from catchment.overlay import Overlay
from catchment.pipeline.generated import WORKLOADS, Generated
from catchment.pipeline.publications import Catalog
from catchment.pipeline.sources import Files, FromColumn, Recorded, open_batch
from catchment.pipeline.topics import AbsentTopicWarning, absent_topics
from catchment.workloads import debs14_links

__all__ = ["Replayed", "from_options", "from_workload", "replay_job", "show_replayed"]

_RECORDED = {"traffic": "aarhus", "stock": "yahoo"}
_WINDOWS = {"traffic": ("1 hour", "10 minutes"), "stock": ("20 days", "5 days")}
"""That fit the real data: a reading every five minutes, a quote a day."""
_GENERATED_WINDOW = ("20 seconds", "2 seconds")
_SHOWN_NOTIFICATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay came to."""

    facts: dict[str, Any]
    traffic: list[dict[str, Any]]
    sample: list[dict[str, Any]]
    verification: Verification | None
    warnings: list[str]


def from_options(
    *,
    source: str,
    subscriptions: Path,
    topic: str | None,
    attributes: str | None,
    broker: str | None,
    file_format: str | None,
) -> Configuration:
    """A job from options alone: files of one topic, at one place."""
    kind = file_format or _format_of(source)
    schema = attributes_of(attributes) if attributes is not None else None
    if kind != "parquet" and (schema is None or topic is None):
        raise ConfigurationError(
            f"{kind} files do not say the types of their columns; "
            "accepted is --topic NAME --attributes 'speed=float, highway=string', or a TOML file"
        )
    topics = {topic: schema} if schema is not None and topic is not None else {}
    return Configuration(
        file=str(subscriptions),
        topics=topics,
        subscriptions=tuple(read_subscriptions(subscriptions)),
        subscriptions_file=subscriptions,
        source=Files(
            format=kind,  # type: ignore[arg-type]
            path=source,
            topics=topics or None,
            topic=FromColumn("topic", topic),
            broker=FromColumn("broker", broker or "b0"),
        ),
    ).check()


def _format_of(source: str) -> str:
    endings = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json", ".ndjson": "json"}
    name = source.removesuffix(".gz")
    for ending, kind in endings.items():
        if name.endswith(ending):
            return kind
    found = next((one for one in Path(source).glob("*") if one.name[0] not in "._"), None) if source else None
    if found is not None and found.is_file():
        return _format_of(found.name)
    raise ConfigurationError(f"the format of {source} is unknown; accepted is --format parquet, csv or json")


def from_workload(
    *, workload: str, data: Path | None, events: int, count: int, seed: int, window: str | None, regular_share: float
) -> Configuration:
    """The paper's experiment: its overlay, its data or made-up ones, and subscriptions drawn from them."""
    if workload not in WORKLOADS:
        raise ConfigurationError(f"workload is {workload!r}; accepted are {', '.join(WORKLOADS)}")
    paper = debs14_links()
    chosen = _WINDOWS[workload] if data is not None else _GENERATED_WINDOW
    if window is not None:
        size, _, shift = window.partition("/")
        chosen = (size.strip(), (shift or size).strip())
    return Configuration(
        file=f"--workload {workload}",
        topics={workload: WORKLOADS[workload]},
        overlay=Overlay.from_links(paper.links),
        source=(
            Generated(workload=workload, events=events, rate=500, brokers=paper.publishers, seed=seed)  # type: ignore[arg-type]
            if data is None
            else Recorded(name=_RECORDED[workload], folder=str(data), brokers=paper.publishers)
        ),
        drawn=DrawnSubscriptions(
            workload=workload,
            count=count,
            seed=seed,
            window=chosen,
            regular_share=regular_share,
            brokers=paper.subscribers,
        ),
    )


def replay_job(
    configuration: Configuration,
    *,
    output: str | None,
    overwrite: bool = False,
    check_with_oracle: bool = False,
    steps: Steps,
    spark: SparkSession | None = None,
) -> Replayed:
    """Run a job over all that its source holds, write the results, and say what they came to."""
    source = configuration.source
    if source is None:
        raise ConfigurationError(f"{configuration.file}: source is missing; replay needs to know where events are")
    if output is not None:
        configuration = replace(configuration, sink=SinkOptions(path=output))
    results = configuration.sink.path
    require_local_folder(results, "the results", configuration.options.master)
    begun = time.monotonic()
    if spark is None:
        with steps.step("Spark started"):
            spark = catchment.spark_session("catchment replay", master=configuration.options.master)
    started_seconds = time.monotonic() - begun
    steps.spark = spark
    require_spark_folder(spark, results, "the results")
    if not overwrite:
        refuse_to_overwrite(spark, results)
    with steps.step("source opened"):
        # Text is parsed, and made-up events are made, once for all that is asked of them.
        opened = open_batch(spark, source, asked=None if check_with_oracle else _attributes(configuration)).persist()
        publications = opened.publications
    subscriptions = _asked(configuration, publications, steps)
    options = configuration.options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbsentTopicWarning)  # which is shown below, from what the events say
        run = catchment.replay(
            spark,
            publications,
            subscriptions=subscriptions,
            overlay=configuration.overlay,
            placement=options.placement,  # type: ignore[arg-type]
            schema=configuration.topics or None,
            lateness=options.lateness,
            delivery=options.delivery,  # type: ignore[arg-type]
            deduplicate=options.deduplicate,
            sampling_period=options.sampling_period,
            cost=options.cost,
        )
    with steps.step("events read"):
        counts_by_topic = {row["topic"]: row["count"] for row in publications.groupBy("topic").count().collect()}
        events = sum(counts_by_topic.values())
        quarantined = 0 if opened.quarantined is None else opened.quarantined.count()
    if run.choice.engine == "shared" or configuration.overlay is not None or run.plan.regular_names:
        run = run.persist()
    else:
        run = run.persist_answers()
    if run.choice.engine == "shared":
        starting = time.monotonic()
        with steps.step("Python workers started"):
            start_workers(spark, publications, subscriptions, configuration.topics or None)
        started_seconds += time.monotonic() - starting
    answering = time.monotonic()
    with steps.step("subscriptions answered"):
        kept = {
            "notifications": run.notifications,
            "overflows": run.overflows,
            "deliveries": run.deliveries,
            "rejected": run.rejected,
            "traffic": run.traffic,
        }
        if opened.quarantined is not None:
            kept["quarantined"] = opened.quarantined
        kept = _written(kept, configuration.sink, spark)
        counts = {name: frame.count() for name, frame in kept.items() if name != "quarantined"}
    seconds = time.monotonic() - answering
    verification = None
    if check_with_oracle:
        with steps.step(f"{len(subscriptions)} subscriptions compared with the oracle"):
            verification = verify(
                spark,
                publications.toArrow(),
                subscriptions,
                notifications=kept["notifications"].toArrow(),
                deliveries=kept["deliveries"].toArrow(),
                overflows=kept["overflows"].toArrow(),
                schema=configuration.topics or None,
                overlay=configuration.overlay,
                deduplicate=options.deduplicate,
            )
    traffic = [row.asDict() for row in kept["traffic"].orderBy("source", "target", "kind").collect()]
    # In order: a plain limit would leave the Python workers in the middle of a sentence.
    first = kept["notifications"].orderBy("subscription", "window_start", "output").limit(_SHOWN_NOTIFICATIONS)
    sample = [row.asDict() for row in first.collect()]
    facts = {
        "events": events,
        "quarantined rows": quarantined,
        "rejected events": counts["rejected"],
        "subscriptions": len(subscriptions),
        "questions": len(run.plan.questions),
        "answered by": str(run.choice).removeprefix("answered by "),
        "notifications": counts["notifications"],
        "values beyond their type": counts["overflows"] or None,
        "deliveries": counts["deliveries"],
        "placement": options.placement if configuration.overlay is not None else None,
        "seconds starting": round(started_seconds, 2),
        "seconds answering": round(seconds, 2),
        "events a second": round(events / seconds),
        "seconds in all": round(time.monotonic() - begun, 2),
        "results": configuration.sink.path,
    }
    run.unpersist()
    opened.unpersist()
    absent = absent_topics(subscriptions, {topic for topic in counts_by_topic if topic is not None})
    return Replayed(facts=facts, traffic=traffic, sample=sample, verification=verification, warnings=absent)


def _asked(configuration: Configuration, publications: DataFrame, steps: Steps) -> Sequence[Subscription]:
    if configuration.drawn is None:
        if not configuration.subscriptions:
            raise ConfigurationError(f"{configuration.file}: there are no subscriptions; accepted is at least one")
        return configuration.subscriptions
    drawn = configuration.drawn
    with steps.step(f"{drawn.count} subscriptions drawn"):
        sample: pa.Table | None = None
        if isinstance(configuration.source, Recorded):
            sample = publications.toArrow()
        return drawn.draw(sample)


def _attributes(configuration: Configuration) -> set[str] | None:
    """The attributes that answers depend on; None is all of them."""
    # On links events have sizes, and which of two repeats counts depends on all that they say.
    if configuration.overlay is not None or configuration.options.deduplicate or configuration.drawn is not None:
        return None
    catalog = Catalog(configuration.topics)
    if any(one.query.topic not in catalog.schemas for one in configuration.subscriptions):
        return None  # which is reported when the job is compiled
    return {name for one in configuration.subscriptions for name in catalog.attributes_of(one)}


def _written(results: dict[str, DataFrame], sink: SinkOptions, spark: SparkSession) -> dict[str, DataFrame]:
    """The results as read back from where they were written; as they are, if they go nowhere."""
    if sink.path is None:
        return results
    for name, frame in results.items():
        frame.write.mode("overwrite").parquet(f"{sink.path}/{name}")
    return {name: spark.read.schema(frame.schema).parquet(f"{sink.path}/{name}") for name, frame in results.items()}


def show_replayed(replayed: Replayed) -> None:
    """The tables of `catchment replay`."""
    print_facts("Replay", replayed.facts)
    if replayed.traffic:
        rows = [[row["source"], row["target"], row["kind"], row["messages"], row["bytes"]] for row in replayed.traffic]
        print_rows("Messages on each link", ["from", "to", "kind", "messages", "bytes"], rows)
    if replayed.sample:
        shown = ("subscription", "window_start", "window_end", "group", "output", "exact")
        rows = [[_group(row[name]) if name == "group" else row[name] for name in shown] for row in replayed.sample]
        print_rows("Some notifications", ["subscription", "window from", "to", "group", "output", "value"], rows)
    if replayed.verification is not None:
        verification = replayed.verification
        print_facts(
            "Oracle",
            {
                "subscriptions": verification.subscriptions,
                "values compared": verification.values,
                "deliveries compared": verification.deliveries,
                "differences": len(verification.differences),
            },
        )


def _group(group: dict[str, str | None]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(group.items()))
