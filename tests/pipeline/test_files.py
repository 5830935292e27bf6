"""The small files of a job."""

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catchment.pipeline.files import Folder


@pytest.mark.parametrize("by_hadoop", [False, True])
def test_what_a_crash_left_half_written_is_not_there(spark: SparkSession, tmp_path: Path, by_hadoop: bool) -> None:
    folder = Folder(spark, str(tmp_path))
    if by_hadoop:
        folder._local = None
    folder.write("ledger/0000000001", b"whole")
    (tmp_path / "ledger" / "0000000002.writing").write_bytes(b"ha")
    assert folder.names("ledger") == ["0000000001"]
    folder.write("ledger/0000000002", b"whole")
    assert folder.names("ledger") == ["0000000001", "0000000002"]
    assert folder.read("ledger/0000000002") == b"whole"


@pytest.mark.parametrize("by_hadoop", [False, True])
def test_lengths_and_checksums_of_what_spark_would_read(spark: SparkSession, tmp_path: Path, by_hadoop: bool) -> None:
    folder = Folder(spark, str(tmp_path))
    if by_hadoop:
        folder._local = None
    for name in ("part-1", "_SUCCESS", ".part-1.crc", "part-2.writing"):
        (tmp_path / name).write_bytes(b"some bytes")
    (tmp_path / "folder").mkdir()
    assert folder.sizes("") == {"part-1": 10}
    assert folder.sizes("nowhere") == {}
    assert folder.digest("part-1") == hashlib.sha256(b"some bytes").hexdigest()
