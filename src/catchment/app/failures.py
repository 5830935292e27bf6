"""One clean line out of whatever went wrong, also deep inside a Spark task."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console
from rich.text import Text

from catchment.model.errors import CatchmentError
from catchment_command import INTERRUPTED

__all__ = ["explanation", "reported"]

# The last line of a Python traceback, with or without a module before the name of the exception; Java's after a colon.
_RAISED = re.compile(r"^(?:: )?(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_OURS = re.compile(r"catchment\.model\.errors\.\w+: (.+)")

Function = TypeVar("Function", bound=Callable[..., Any])


def explanation(error: BaseException) -> str:
    """What a user can act on, in one line."""
    text = str(error)
    if isinstance(error, CatchmentError):
        return text
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    raised = _RAISED.findall(text)
    if raised:
        name, said = raised[-1]
        return f"{name}: {said.strip()}"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.strip()


def reported(command: Function) -> Function:
    """A command whose errors are one line on standard error and exit code 2; of Ctrl-C, 130."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except (CatchmentError, PySparkException, Py4JError) as error:
            line = Text.assemble(("error: ", "bold red"), explanation(error))
            Console(stderr=True, soft_wrap=True, highlight=False).print(line)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            Console(stderr=True).print("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return run  # type: ignore[return-value]
