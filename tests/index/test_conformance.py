"""Every index backend passes the conformance suite that ships with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.errors import InvalidArgument
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import DEFAULT_MAX_PAGES, HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.testing import EntryIndexSuite

PAGES = 1 << 15  # 256 MiB of mostly holes


class TestMemtable(EntryIndexSuite):
    """The index in memory; the first of equals wins, nothing is kept."""

    def make_index(self, path: Path) -> EntryIndex:
        """Return an empty memtable."""
        return MemtableIndex()


class TestIdx(EntryIndexSuite):
    """Index files in one directory."""

    highest_entry = PAGES * 1024 - 1

    def make_index(self, path: Path) -> EntryIndex:
        """Return index files below `path`."""
        return HierarchicalIndex(path, writable=True, max_pages=PAGES)

    def reopen(self, path: Path) -> EntryIndex:
        """Return the same files for reading."""
        return HierarchicalIndex(path)


class TestIdxSmallPages(TestIdx):
    """Index files with pages of 64 entries: the page size is the writer's business only."""

    highest_entry = PAGES * 64 - 1

    def make_index(self, path: Path) -> EntryIndex:
        """Return index files below `path`, with small pages."""
        return HierarchicalIndex(path, writable=True, max_pages=PAGES, page_size=512)


class TestIdxTwoDirectories(TestIdx):
    """Index files spread over two directories."""

    def make_index(self, path: Path) -> EntryIndex:
        """Return index files below two directories."""
        return HierarchicalIndex([path / "a", path / "b"], writable=True, max_pages=PAGES)

    def reopen(self, path: Path) -> EntryIndex:
        """Return them in the other order: each ledger is looked up in both."""
        return HierarchicalIndex([path / "b", path / "a"])


class TestRocks(EntryIndexSuite):
    """The RocksDB databases of one directory."""

    def make_index(self, path: Path) -> EntryIndex:
        """Return databases below `path`."""
        return RocksIndex(path, writable=True)

    def reopen(self, path: Path) -> EntryIndex:
        """Return the same databases for reading."""
        return RocksIndex(path)


class TestRocksPartitioned(EntryIndexSuite):
    """The RocksDB databases of three directories; ledger L in number L mod 3."""

    def make_index(self, path: Path) -> EntryIndex:
        """Return databases below three directories."""
        return PartitionedIndex([RocksIndex(path / str(n), writable=True) for n in range(3)])

    def reopen(self, path: Path) -> EntryIndex:
        """Return the same databases, in the same order, for reading."""
        return PartitionedIndex([RocksIndex(path / str(n)) for n in range(3)])


class TestIdxLimits:
    """What only index files have: a place for every entry, so a limit on the highest."""

    @pytest.mark.parametrize("entry", [DEFAULT_MAX_PAGES * 1024, 2**50, 2**60, 2**63 - 2])
    def test_sparse_file_is_refused(self, tmp_path: Path, entry: int) -> None:
        """An entry that would need more than 2^20 pages is refused before a file is made."""
        with HierarchicalIndex(tmp_path, writable=True) as index:
            with pytest.raises(InvalidArgument):
                index.put_many(7, [0, entry], [5, 6])
            with pytest.raises(InvalidArgument):
                index.put(7, entry, 5)

            assert [] == index.ledgers()

    @pytest.mark.parametrize("entry", [2**50, 2**60 - 130, 2**60 - 128, 2**61, 2**63 - 2])
    def test_far_entries_are_absent(self, tmp_path: Path, entry: int) -> None:
        """Asking for an entry whose slot no file could have is answered with absent."""
        with HierarchicalIndex(tmp_path, writable=True) as index:
            index.put(7, 0, 5)

            assert index.get(7, entry) is None
            assert [5, 0] == index.get_many(7, [0, entry]).tolist()
            assert [] == index.entries(7, entry).tolist()
            assert [] == index.entries(7, entry, entry).tolist()

    @pytest.mark.parametrize("page_size", [0, -8, 7, 12])
    def test_page_size(self, tmp_path: Path, page_size: int) -> None:
        """A page is a positive number of 8-byte slots."""
        with pytest.raises(InvalidArgument):
            HierarchicalIndex(tmp_path, page_size=page_size)
