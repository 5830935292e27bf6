"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_facts", "print_json", "print_rows", "print_warnings"]


def print_json(content: Any) -> None:
    """The one thing on standard output, where a command was asked for JSON."""
    json.dump(content, sys.stdout, ensure_ascii=False, indent=2, default=_plain)
    sys.stdout.write("\n")


def print_facts(title: str, facts: Mapping[str, Any], console: Console | None = None) -> None:
    """Names and values, one pair a line; what is None is left out."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            table.add_row(name, _shown(value))
    (console or Console(highlight=False)).print(table)


def print_rows(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], console: Console | None = None
) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for at, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[at], (int, float)) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_shown(value) for value in row))
    (console or Console(highlight=False)).print(table)


def print_warnings(lines: Sequence[str], console: Console | None = None) -> None:
    """On standard error, one line each."""
    for line in lines:
        text = Text.assemble(("warning: ", "bold yellow"), line)
        (console or Console(stderr=True, highlight=False)).print(text, soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(one) for one in value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else str(value).replace("[", "\\[")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
