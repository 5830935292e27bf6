"""What a module exports exists, once, in the order that ruff keeps: constants, classes, the rest."""

import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if path.name != "__main__.py"
)


def rank(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize("name", MODULES)
def test_exports_exist_and_are_sorted(name: str) -> None:
    module = importlib.import_module(name)
    exported: list[str] = getattr(module, "__all__", [])
    assert exported == sorted(set(exported), key=rank)
    assert [member for member in exported if not hasattr(module, member)] == []


def test_the_public_interface_says_what_it_exports() -> None:
    assert importlib.import_module("catchment").__all__
