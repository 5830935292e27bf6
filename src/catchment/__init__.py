"""Catchment: content-based publish/subscribe that aggregates events on their way."""

from catchment.matching import Matcher
from catchment.model.errors import CatchmentError
from catchment.model.filter import Filter, least_upper_bound
from catchment.model.schema import Schema
from catchment.model.subscription import Subscription
from catchment.oracle import oracle
from catchment.overlay import Overlay
from catchment.pipeline.overlay_source import OverlaySource
from catchment.pipeline.replay import Run, replay
from catchment.pipeline.session import spark_session
from catchment.pipeline.sinks import ConsoleSink, ParquetSink
from catchment.pipeline.stream import Job, stream
from catchment.simulation.simulate import Simulated, simulate
from catchment.transport.connecting import connect

__all__ = [
    "CatchmentError",
    "ConsoleSink",
    "Filter",
    "Job",
    "Matcher",
    "Overlay",
    "OverlaySource",
    "ParquetSink",
    "Run",
    "Schema",
    "Simulated",
    "Subscription",
    "connect",
    "least_upper_bound",
    "oracle",
    "replay",
    "simulate",
    "spark_session",
    "stream",
]
