"""Reading a TOML file key by key, so that every mistake in it names the file, the key, and what is accepted."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from catchment.model.errors import CatchmentError, ConfigurationError

__all__ = ["Section", "read_toml"]

_KINDS = {str: "a string", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}


def read_toml(file: Path) -> Section:
    try:
        with file.open("rb") as opened:
            return Section(str(file), "", tomllib.load(opened))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}; accepted is a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is no TOML: {error}") from None


class Section:
    """One table of the file; `done` refuses the keys that nobody asked for."""

    def __init__(self, file: str, path: str, content: dict[str, Any]) -> None:
        self.file = file
        self._path = path
        self._content = content
        self._asked: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._content

    @property
    def keys(self) -> list[str]:
        return list(self._content)

    def name_of(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def refuse(self, key: str, accepted: str) -> NoReturn:
        """Say that the value of a key is not accepted."""
        raise ConfigurationError(
            f"{self.file}: {self.name_of(key)} is {_shown(self._content.get(key))}; accepted is {accepted}"
        )

    def raw(self, key: str) -> Any:
        """Whatever the key holds; None if it is not there."""
        if key not in self._asked:
            self._asked.append(key)
        return self._content.get(key)

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self._typed(key, str)
        if value == "":
            self.refuse(key, "a string that is not empty")
        return default if value is None else str(value)

    def required_text(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise ConfigurationError(f"{self.file}: {self.name_of(key)} is missing; accepted is a string")
        return value

    def choice(self, key: str, accepted: Sequence[str], default: str) -> str:
        value = self.text(key, default)
        if value not in accepted:
            self.refuse(key, " or ".join(f'"{one}"' for one in accepted))
        return str(value)

    def checked(self, key: str, read: Callable[[], object]) -> None:
        """Refuse the value of a key that does not read, with what is said about it."""
        try:
            read()
        except CatchmentError as error:
            raise ConfigurationError(f"{self.file}: {self.name_of(key)}: {error}") from None

    def number(self, key: str, default: int | None = None, *, least: int = 0) -> int | None:
        value = self._typed(key, int)
        if value is not None and value < least:
            self.refuse(key, f"a whole number from {least} on")
        return default if value is None else int(value)

    def weight(self, key: str, default: float) -> float:
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            self.refuse(key, "a number from 0 on")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._typed(key, bool)
        return default if value is None else bool(value)

    def table(self, key: str) -> Section | None:
        value = self._typed(key, dict)
        return None if value is None else Section(self.file, self.name_of(key), value)

    def done(self) -> None:
        """Called once all known keys were asked for."""
        for key in self._content:
            if key not in self._asked:
                raise ConfigurationError(
                    f"{self.file}: {self.name_of(key)} is unknown; accepted are {', '.join(self._asked) or 'no keys'}"
                )

    def _typed(self, key: str, kind: type) -> Any:
        value = self.raw(key)
        # To Python true is a number; to the author of the file it is not.
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            self.refuse(key, _KINDS[kind])
        return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
