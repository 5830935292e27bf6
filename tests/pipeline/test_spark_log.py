"""Which files of Spark's own checkpoint a pin knows."""

import pytest

from catchment.model.errors import CheckpointError
from catchment.pipeline.ledger import Pin
from catchment.pipeline.spark_log import check_read, source_logs
from tests.pipeline.test_journal import MemoryFolder

LOG = "spark/sources/0"


def folder_of(*names: str) -> MemoryFolder:
    folder = MemoryFolder()
    for name in names:
        folder.write(f"{LOG}/{name}", name.encode())
    return folder


def test_a_source_starts_from_the_last_file_that_sums_up_all_before_it() -> None:
    folder = folder_of("7", "8", "9.compact", "10", "11")
    assert [file.name for file in source_logs(folder)] == ["0/9.compact", "0/10", "0/11"]
    assert [file.name for file in source_logs(folder_of("0", "1"))] == ["0/0", "0/1"]


def test_files_that_were_summed_up_since_may_go_and_others_may_not() -> None:
    folder = folder_of("7", "8")
    pin = Pin(1, 0, 0, sources=source_logs(folder))
    check_read(folder, 0, pin)
    folder.write(f"{LOG}/9.compact", b"all")
    folder.delete(f"{LOG}/7")
    check_read(folder, 0, pin)
    folder.write(f"{LOG}/8", b"something else")
    with pytest.raises(CheckpointError, match="sources/0/8 is not what it was"):
        check_read(folder, 0, pin)
    folder = folder_of("8")
    with pytest.raises(CheckpointError, match="sources/0/7 is missing"):
        check_read(folder, 0, pin)
