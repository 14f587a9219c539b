"""Records of entries beyond the ids that an index has a place for: left out, and told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import open_index
from bkstore.ids import LedgerId
from bkstore.offline.rewrite import rebuild_index
from bkstore.storage.directories.layout import Layout
from tests.worlds.dumps import write_log

LAST = 2**30 - 1
"""The last entry of index files: those of 8 GiB have a page for it."""


def _rebuilt(
    top: Path, entries: list[int], to: Layout
) -> tuple[list[int], list[tuple[str, int | None]]]:
    """Return the entries of an index that was made of a log, and the damage that was told."""
    log = top / "b" / "ledgers" / "current" / "3.log"
    write_log(log, iter([(LedgerId.of(7), entry, 100) for entry in entries]))
    result = rebuild_index(top / "b", top / "made", to)
    with open_index(top / "made") as index:
        found = index.entries(7).tolist()
    told = [(each.detail, each.offset) for each in result.findings if each.severity == "damage"]
    return found, told


def _position(number: int) -> int:
    return 1024 + 104 * number + 4


@pytest.mark.parametrize(
    ("beyond", "said"), [(1, "1 record of an entry"), (3, "3 records of entries")]
)
def test_entries_that_index_files_have_no_place_for(tmp_path: Path, beyond: int, said: str) -> None:
    """The last entry of index files is kept; each one behind it is left out, and the first of
    them in the log is named by its place, wherever they stand among the others."""
    entries = [5, LAST, *range(LAST + 1, LAST + 1 + beyond), 3, LAST - 1]
    found, told = _rebuilt(tmp_path, entries, "idx")
    detail = f"{said} above id {LAST}, the highest that the index can store: left out"

    assert [3, 5, LAST - 1, LAST] == found
    assert [(detail, _position(2))] == told


def test_databases_have_a_place_for_all(tmp_path: Path) -> None:
    """RocksDB keeps any entry."""
    entries = [5, LAST, LAST + 1, 2**62, 3]

    assert (sorted(entries), []) == _rebuilt(tmp_path, entries, "rocksdb")
