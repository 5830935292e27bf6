"""Where caches and temporary files go when a folder cannot be written in or executed from."""

import os
import stat
from pathlib import Path

import pytest

from catchment.model.errors import ConfigurationError
from catchment.pipeline import folders
from catchment.pipeline.folders import private_folder, temporary_folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}


@pytest.fixture
def noexec(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Folders to be taken for mounts without execution; a real mount would need root."""
    mounts: set[Path] = set()
    tried = folders._runs_programs

    def runs_programs(folder: Path) -> bool:
        return not any(folder.is_relative_to(mount) for mount in mounts) and tried(folder)

    monkeypatch.setattr(folders, "_runs_programs", runs_programs)
    return mounts


def test_the_cache_follows_xdg_then_home_then_the_temporary_folder(tmp_path: Path, environ: dict[str, str]) -> None:
    assert private_folder(environ) == tmp_path / "xdg" / "catchment"
    del environ["XDG_CACHE_HOME"]
    assert private_folder(environ) == tmp_path / "home" / ".cache" / "catchment"
    del environ["HOME"]
    assert private_folder(environ) == tmp_path / "tmp" / f"catchment-{os.getuid()}"


def test_others_cannot_write_in_it(environ: dict[str, str]) -> None:
    assert stat.S_IMODE(private_folder(environ).stat().st_mode) == 0o700


def test_a_relative_xdg_cache_home_is_ignored_as_its_specification_says(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    assert private_folder(environ | {"XDG_CACHE_HOME": "cache"}) == tmp_path / "home" / ".cache" / "catchment"


def test_a_folder_that_cannot_be_made_is_passed_over(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "xdg").touch()
    assert private_folder(environ) == tmp_path / "home" / ".cache" / "catchment"


@pytest.mark.parametrize("trap", ["writable by all", "link"])
def test_a_folder_that_another_user_may_have_prepared_is_passed_over(
    trap: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "xdg").mkdir()
    prepared = tmp_path / "xdg" / "catchment"
    if trap == "link":
        prepared.symlink_to(tmp_path / "tmp")
    else:
        prepared.mkdir()
        prepared.chmod(0o777)
    assert private_folder(environ) == tmp_path / "home" / ".cache" / "catchment"


def test_a_folder_without_execution_is_passed_over(tmp_path: Path, environ: dict[str, str], noexec: set[Path]) -> None:
    noexec.add(tmp_path / "xdg")
    assert private_folder(environ) == tmp_path / "home" / ".cache" / "catchment"


def test_nowhere_to_execute_is_an_error_that_names_the_folders(
    tmp_path: Path, environ: dict[str, str], noexec: set[Path]
) -> None:
    noexec.add(tmp_path)
    with pytest.raises(ConfigurationError, match=r"xdg/catchment.*home/\.cache/catchment.*XDG_CACHE_HOME"):
        private_folder(environ)


def test_temporary_files_leave_a_tmpdir_without_execution(
    tmp_path: Path, environ: dict[str, str], noexec: set[Path]
) -> None:
    assert temporary_folder(environ) == tmp_path / "tmp"
    noexec.add(tmp_path / "tmp")
    assert temporary_folder(environ) == tmp_path / "xdg" / "catchment" / "tmp"
