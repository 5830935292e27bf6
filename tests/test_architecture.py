"""The cut into packages is kept: every import under `src/catchment` is read and held against this table."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "catchment"

MAY_IMPORT = {
    "model": "",
    "matching": "model",
    "overlay": "model",
    "oracle": "model",
    "workloads": "model",
    "stages": "model matching overlay",
    "broker": "model matching overlay stages",
    "simulation": "model overlay stages broker oracle workloads",
    "transport": "model overlay broker",
    "pipeline": "model matching overlay stages transport workloads",
    "lab": "model matching overlay oracle workloads stages broker simulation transport pipeline catchment",
    "app": "model matching overlay oracle workloads stages broker simulation transport pipeline lab catchment",
}
"""Importing `catchment` itself, the public interface, is importing everything."""

CORE = {"model", "matching", "overlay", "stages", "broker", "oracle"}
"""Pure: time and randomness are arguments, input and output are values."""

# fmt: off
NOT_IN_CORE = {
    "asyncio", "concurrent", "glob", "http", "multiprocessing", "numpy.random", "os", "pathlib", "pyspark",
    "random", "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time",
}
# fmt: on

ENTRY_POINTS = {"__init__.py", "__main__.py"}
"""The only modules outside a package; they may import everything."""


def violations(source: Path) -> Iterator[str]:
    """What breaks the rules, one line each, in the order of the files; `source` is a folder named `catchment`."""
    for path in sorted(source.rglob("*.py")):
        where = path.relative_to(source)
        if len(where.parts) == 1:
            if where.name not in ENTRY_POINTS:
                yield f"{where}: belongs into a package"
            continue
        package = where.parts[0]
        if package not in MAY_IMPORT:
            yield f"{where}: package {package} is not in the table"
            continue
        for line, module in imported_modules(path, source):
            if reason := forbidden(package, module):
                yield f"{where}:{line}: {package} imports {module}, {reason}"


def forbidden(package: str, module: str) -> str | None:
    """Why a package may not import a module; None if it may."""
    root, *rest = module.split(".")
    if root == "catchment":
        target = rest[0] if rest else "catchment"
        allowed = {package, *MAY_IMPORT[package].split()}
        return None if target in allowed else f"but may import {MAY_IMPORT[package] or 'no other package'}"
    if package in CORE and any(f"{module}.".startswith(f"{name}.") for name in NOT_IN_CORE):
        return "but the core is free of input, output, clocks and chance"
    return None


def imported_modules(path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of each import, also those inside functions and under TYPE_CHECKING."""
    here = ["catchment", *path.relative_to(source).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = here[: len(here) - node.level + 1] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            for alias in node.names:
                # `from catchment.model import states` names a module, `from catchment.model import Filter` does not.
                place = source.joinpath(*base.split(".")[1:], alias.name)
                is_module = base.split(".")[0] == "catchment" and (place.is_dir() or place.with_suffix(".py").is_file())
                is_submodule = f"{base}.{alias.name}" in NOT_IN_CORE
                yield node.lineno, f"{base}.{alias.name}" if is_module or is_submodule else base


KEPT_FROM_BROKERS = {"catchment.model.states", "catchment.stages.kernels", "catchment.stages.cell_kernels"}
"""Brokers make, merge and finish partials by the functions of `stages`, and know nothing of how these do it."""


def kept_from_brokers(source: Path) -> list[str]:
    return [
        f"{path.name}:{line}: {module}"
        for path in sorted((source / "broker").rglob("*.py"))
        for line, module in imported_modules(path, source)
        if any(f"{module}.".startswith(f"{one}.") for one in KEPT_FROM_BROKERS)
    ]


def test_brokers_leave_states_to_the_stages() -> None:
    assert kept_from_brokers(SOURCE) == []


@pytest.mark.parametrize(
    "code",
    [
        "from catchment.model.states import STATES",
        "from catchment.model import states",
        "from catchment.stages import kernels",
        "from ..stages import cell_kernels",
        "import catchment.stages.kernels",
    ],
)
def test_a_broker_that_reaches_for_states_is_found(code: str, tmp_path: Path) -> None:
    modules = dict.fromkeys(("model/states.py", "stages/kernels.py", "stages/cell_kernels.py"), "")
    assert len(kept_from_brokers(tree(tmp_path, {**modules, "broker/state.py": code}))) == 1


def test_simulations_read_no_private_name() -> None:
    """Neither of brokers nor of anything else that is not their own."""
    found = [
        f"{path.name}:{node.lineno}: {node.attr}"
        for path in sorted((SOURCE / "simulation").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    assert found == []


def test_every_import_keeps_to_the_table() -> None:
    assert list(violations(SOURCE)) == []


def test_the_table_has_no_circle() -> None:
    seen = {"catchment"}
    for package, imports in MAY_IMPORT.items():
        assert set(imports.split()) <= seen, f"{package} is listed before what it imports"
        seen.add(package)


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        (
            "model/window.py",
            "import catchment.broker",
            "model imports catchment.broker, but may import no other package",
        ),
        ("stages/match.py", "from catchment.broker.state import Broker", "stages imports catchment.broker.state"),
        ("stages/match.py", "from catchment import broker", "stages imports catchment.broker"),
        ("stages/match.py", "from ..broker import state", "stages imports catchment.broker"),
        ("stages/match.py", "from .. import broker", "stages imports catchment.broker"),
        ("stages/match.py", "from catchment import Filter", "stages imports catchment, but"),
        ("stages/deep/match.py", "from ...broker import state", "stages imports catchment.broker"),
        ("oracle/central.py", "def f():\n    import catchment.stages", "central.py:2: oracle imports catchment.stages"),
        ("pipeline/replay.py", "import catchment.app", "pipeline imports catchment.app"),
        ("broker/state.py", "import time", "broker imports time, but the core is free of"),
        ("broker/state.py", "import os.path", "broker imports os.path"),
        ("broker/state.py", "from asyncio import Queue", "broker imports asyncio"),
        ("matching/index.py", "import pyspark.sql", "matching imports pyspark.sql"),
        ("overlay/graph.py", "from numpy import random", "overlay imports numpy.random"),
        ("extra/new.py", "", "extra/new.py: package extra is not in the table"),
        ("helpers.py", "", "helpers.py: belongs into a package"),
    ],
)
def test_a_bad_import_is_found(file: str, code: str, complaint: str, tmp_path: Path) -> None:
    source = tree(tmp_path, {"broker/__init__.py": "", file: code})
    found = list(violations(source))
    assert len(found) == 1
    assert complaint in found[0]


def test_good_imports_are_let_through(tmp_path: Path) -> None:
    source = tree(
        tmp_path,
        {
            "__init__.py": "from catchment.pipeline.replay import replay",
            "model/window.py": "import dataclasses\nfrom catchment.model import errors\nfrom . import errors",
            "broker/state.py": "from catchment import stages\nimport timeit_like\nimport numpy as np",
            "stages/__init__.py": "",
            "simulation/run.py": "import random, time\nfrom catchment.broker import state",
            "pipeline/replay.py": "import pyspark.sql\nfrom catchment.workloads import traffic",
            "app/main.py": "import catchment\nfrom catchment import Filter\nfrom catchment.lab import bench",
        },
    )
    assert list(violations(source)) == []


def tree(folder: Path, files: dict[str, str]) -> Path:
    source = folder / "catchment"
    for name, code in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(code)
    return source
