"""The source distribution holds all that its own tests and its README need."""

import re
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[1]
NOT_OURS = {".."}
"""Of what tests look for beside them: data sets, which nobody needs to have."""


def packed() -> set[str]:
    """The files of the source distribution, by their path below the root; the build adds those that it must have."""
    builder = SdistBuilder(str(ROOT))
    always = {"pyproject.toml", builder.metadata.core.readme_path, *builder.metadata.core.license_files}
    return always | {file.distribution_path for file in builder.recurse_included_files()}


def names_that_tests_read() -> set[str]:
    """First names of paths below the root, as tests write them: `Path(__file__).parents[2] / "docs" / …`."""
    found: set[str] = set()
    for file in (ROOT / "tests").rglob("*.py"):
        depth = len(file.relative_to(ROOT).parts) - 1
        found.update(re.findall(rf'__file__\)\.parents\[{depth}\] / "([^"]+)"', file.read_text()))
    return found - NOT_OURS


def test_what_tests_read_is_packed() -> None:
    tops = {name.split("/")[0] for name in packed()}
    needed = names_that_tests_read()
    assert {"docs", "examples", "README.md", "src"} <= needed
    assert needed | {"tests", "Makefile", "requirements.lock", "LICENSE", "CHANGELOG.md"} <= tops


def test_what_the_readme_links_to_is_packed() -> None:
    links = re.findall(r"\]\(([^):#]+)\)", (ROOT / "README.md").read_text())
    assert set(links) <= packed()


def test_the_installed_command_is_packed_beside_the_package() -> None:
    assert {"src/catchment_command.py", "src/catchment/__init__.py", "src/catchment/py.typed"} <= packed()
