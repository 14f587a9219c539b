"""Attempts to write an index that fail leave no file open, though their error is kept."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bkstore import InvalidArgument, LedgerId
from bkstore.files.disk_changes import OS_FILES
from bkstore.index.api import IndexBatch
from bkstore.index.rocks.tables import TableFileWriter
from bkstore.offline.dump import dump
from bkstore.offline.load import LoadProgress, load
from bkstore.offline.rewrite.index_writer import write_index
from bkstore.spark.load_tasks import WritePieces
from tests.worlds.dumps import fill, idx

pytest.importorskip("pyarrow")

if not Path("/proc/self/fd").is_dir():
    pytest.skip("the system does not list open files", allow_module_level=True)

ENTRIES = np.arange(10)


def _failing_rows() -> Iterator[IndexBatch]:
    """Yield rows of two ledgers, then raise."""
    for ledger in (6, 7):
        yield IndexBatch.of_ledger(LedgerId.of(ledger), ENTRIES, ENTRIES + 1)
    raise InvalidArgument("refused after two ledgers")


def _open_files(top: Path) -> list[str]:
    """Return the files below a folder that this process holds open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.islink(link)]
    return [target for target in targets if target.startswith(f"{top}{os.sep}")]


def _write_index(top: Path) -> None:
    index_dirs = [top / "out0", top / "out1"]
    write_index(
        "rocksdb", index_dirs, _failing_rows(), {}, None, top / "work", OS_FILES, lambda _: None
    )


def _load(top: Path) -> None:
    fill(idx(top / "bookie"))
    dump([top / "bookie"], top / "dump", jobs=1)

    def refuse(progress: LoadProgress) -> None:
        raise InvalidArgument("refused after the first batch")

    load(top / "dump", top / "out", "rocksdb", refuse)


def _spark_task(top: Path) -> None:
    rows: Any = lambda _: ((0, batch) for batch in _failing_rows())  # noqa: E731
    list(WritePieces("rocksdb", str(top / "out"), rows)(iter(())))


@pytest.mark.parametrize("attempt", [_write_index, _load, _spark_task])
def test_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: Callable[[Path], None]
) -> None:
    """The error's frames keep the writer, but its table file is closed."""
    if attempt is _spark_task:
        pyspark = pytest.importorskip("pyspark")
        task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 1)
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: task)
    with pytest.raises(InvalidArgument) as error:
        attempt(tmp_path)

    assert [] == _open_files(tmp_path)
    assert error.value.__traceback__ is not None


def test_writer_that_nobody_closed(tmp_path: Path) -> None:
    """The file of a writer is closed when the writer is collected."""
    writer = TableFileWriter(tmp_path / "rows.sst", 2)
    writer.add([ENTRIES, ENTRIES], ENTRIES + 1)

    assert [str(tmp_path / "rows.sst")] == _open_files(tmp_path)

    del writer
    gc.collect()

    assert [] == _open_files(tmp_path)
