"""What a broker's process reports to those who run it: an event in words, a level, and fields, one line each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Protocol

__all__ = ["FORMATS", "Level", "LineFormat", "Report", "ReportLines", "keep_silent"]

Level = Literal["info", "warning", "error"]
LineFormat = Literal["json", "text"]
FORMATS: tuple[LineFormat, ...] = ("json", "text")


class Report(Protocol):
    """Hears what an operator should know: `report("drops a client", "warning", client="c1")`."""

    def __call__(self, event: str, level: Level = "info", /, **fields: object) -> None: ...


def keep_silent(event: str, level: Level = "info", /, **fields: object) -> None:
    """Report nothing."""


class ReportLines:
    """Reports about one broker, or about a process as a whole, as lines of one format."""

    def __init__(
        self,
        write: Callable[[str], None],
        line_format: LineFormat,
        broker: str = "",
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._write, self.line_format, self._broker, self._clock_s = write, line_format, broker, clock_s

    def about(self, broker: str) -> ReportLines:
        """Reports of the same kind about a broker."""
        return ReportLines(self._write, self.line_format, broker, self._clock_s)

    def __call__(self, event: str, level: Level = "info", /, **fields: object) -> None:
        self._write(self._as_json(event, level, fields) if self.line_format == "json" else self._as_text(event, fields))

    def _as_json(self, event: str, level: Level, fields: dict[str, object]) -> str:
        at = datetime.fromtimestamp(self._clock_s(), UTC).isoformat(timespec="milliseconds")
        about = {"broker": self._broker} if self._broker else {}
        return json.dumps({"time": at, "level": level, **about, "event": event, **fields}, ensure_ascii=False)

    def _as_text(self, event: str, fields: dict[str, object]) -> str:
        words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())
        line = f"broker {self._broker} {event}" if self._broker else event
        return (f"{line}: {words}" if words else line).replace("\n", " ")
