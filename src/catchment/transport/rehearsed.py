"""Imported by a process that forks brokers, so that each begins with all of `rehearse` behind it."""

from catchment.transport.rehearsal import rehearse

__all__ = ["rehearse"]

rehearse()
