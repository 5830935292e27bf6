"""Imported once by the process that forks brokers: what is compiled here, no broker has to compile again."""

from catchment.transport.rehearsed import rehearse
from tests.transport import processes

__all__ = ["processes", "rehearse"]
