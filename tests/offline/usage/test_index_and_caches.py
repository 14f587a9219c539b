"""What an index takes beside its rows, and what caches need to hold it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkstore import BookieDir, InvalidArgument, LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.usage import IndexPart, Usage, cache_needs
from tests.worlds.dumps import CONTENT, LAYOUTS, WIDE, fill

ROWS = sum(map(len, CONTENT.values()))
WIDE_ROWS = sum(len(CONTENT[ledger]) for ledger in WIDE)


def _parts(top: Path) -> list[IndexPart]:
    with BookieDir(top) as bookie:
        return Usage(bookie).index()


def test_index_files(tmp_path: Path) -> None:
    """Index files: as long as they are, 8 bytes a row, whole pages."""
    fill(LAYOUTS["idx"](tmp_path))
    (part,) = _parts(tmp_path)
    files = [path.stat() for path in tmp_path.rglob("*.idx")]

    assert ("idx", len(CONTENT)) == (part.part, part.files) == ("idx", len(files))
    assert sum(file.st_size for file in files) == part.file_bytes
    assert sum(file.st_blocks * 512 for file in files) == part.disk_bytes
    assert (ROWS, 8 * ROWS) == (part.rows, part.row_bytes)
    assert part.file_bytes == 1024 * len(files) + 8192 * (part.pages or 0)


@pytest.mark.parametrize(
    ("rows", "size", "pages"), [(1, 8, 1), (1024, 8192, 1), (1025, 8200, 2), (2000, 12_000, 2)]
)
def test_pages_of_a_file_that_ends_inside_one(
    tmp_path: Path, rows: int, size: int, pages: int
) -> None:
    """A page that a file has a part of is a page: it takes one in the cache."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(rows), range(1028, 1028 + rows))
    (path,) = tmp_path.rglob("7.idx")
    os.truncate(path, 1024 + size)
    (part,) = _parts(tmp_path)

    assert (1, 1024 + size, pages) == (part.files, part.file_bytes, part.pages)


def test_index_files_of_several_directories(tmp_path: Path) -> None:
    """A file counts where it lies."""
    for number, ledgers in enumerate([(1, 2, 3), (4,)]):
        with HierarchicalIndex(tmp_path / f"ledgers{number}", writable=True) as index:
            for ledger in ledgers:
                index.put_many(ledger, range(10), range(1028, 1038))
    parts = _parts(tmp_path)

    assert [(0, 3, 30), (1, 1, 10)] == [(p.dir_index, p.files, p.rows) for p in parts]


@pytest.mark.parametrize(("layout", "count"), [("rocks", 1), ("rocks3", 3)])
def test_databases(tmp_path: Path, layout: str, count: int) -> None:
    """RocksDB: rows of the ledgers that are known, 24 bytes each, 32 in other scopes than 0."""
    fill(LAYOUTS[layout](tmp_path))
    parts = _parts(tmp_path)
    names = ["locations", "ledgers", "locations-128", "ledgers-128"]
    rows = {name: [part.rows or 0 for part in parts if part.part == name] for name in names}
    size = {name: sum(p.row_bytes or 0 for p in parts if p.part == name) for name in names}

    assert set(range(count)) == {part.dir_index for part in parts}
    assert [ROWS - WIDE_ROWS, WIDE_ROWS] == [sum(rows[n]) for n in ("locations", "locations-128")]
    assert [len(CONTENT) - len(WIDE), len(WIDE)] == [
        sum(rows[n]) for n in ("ledgers", "ledgers-128")
    ]
    assert 24 * (ROWS - WIDE_ROWS) == size["locations"]
    assert 32 * WIDE_ROWS == size["locations-128"]
    for part in parts:
        files = [os.stat(Path(part.path) / name) for name in os.listdir(part.path)]

        assert (len(files), sum(f.st_size for f in files)) == (part.files, part.file_bytes)


def test_dead_rows_below_tombstones(tmp_path: Path) -> None:
    """A deleted ledger's rows stay in the tables, below one tombstone; compaction ends that."""
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger in range(20):
            index.put_many(ledger, range(1000), range(1028, 2028))
        index.flush()
    tables = max((tmp_path / "current" / "locations").glob("*.sst"), default=None)
    with RocksIndex(tmp_path, writable=True) as index:
        index.delete_many(range(5))
        index.flush()
    part = _parts(tmp_path)[0]
    sizes = part.sizes

    assert tables is not None
    assert sizes is not None
    assert (15_000, 24 * 15_000) == (part.rows, part.row_bytes)
    assert 5 == sizes.range_tombstones == sizes.tombstones
    assert 5000 == part.dead_rows
    assert 20_005 == sizes.table_entries + sizes.unflushed_entries
    assert sizes.table_bytes == sum(p.stat().st_size for p in tables.parent.glob("*.sst"))
    assert 32 * 20_000 <= sizes.row_bytes


def test_caches_of_databases(tmp_path: Path) -> None:
    """The block cache holds index and filter blocks at least, and all rows beside them at most."""
    fill(LAYOUTS["rocks3"](tmp_path))
    parts = _parts(tmp_path)
    least, whole, ahead = cache_needs(parts, 96.0, 3, readers=2, read_ahead=10)
    beside = dict.fromkeys(range(3), 0)
    rows = dict.fromkeys(range(3), 0)
    for part in parts:
        assert part.sizes is not None
        if part.part.startswith("locations"):
            beside[part.dir_index] += part.sizes.index_block_bytes + part.sizes.filter_block_bytes
            rows[part.dir_index] += part.sizes.row_bytes

    assert max(beside.values()) == least.value > 0
    assert max(beside[at] + rows[at] for at in range(3)) == whole.value
    assert (1, "MiB") == (ahead.value, ahead.unit)  # of 15,360 bytes
    assert "dbStorage_readAheadCacheMaxSizeMb" == ahead.setting
    assert None is cache_needs(parts, None)[-1].value
    lines = [  # of 64 bytes a record, of which 4 are the size before it: 2 x 2^13 readers are 1 MiB
        cache_needs(parts, mean, readers=1 << 13, read_ahead=1)[-1].value
        for mean in (4.5, 68.0, 68.1, 132.0, 133.0)
    ]
    assert [1, 1, 2, 2, 3] == lines


@pytest.mark.parametrize(
    ("readers", "mib"),
    [(1, 1), (4096 // 3, 100), (4096, 300), (4097, 301)],
)
def test_a_setting_of_megabytes_counts_in_mib(tmp_path: Path, readers: int, mib: int) -> None:
    """Settings that end in Mb are whole MiB, rounded up: 2 halves, directories, readers, entries
    of 128 bytes (92 take two lines of 64).
    """
    fill(LAYOUTS["rocks3"](tmp_path))
    *others, ahead = cache_needs(_parts(tmp_path), 96.0, 3, readers=readers, read_ahead=100)
    need = 2 * 3 * readers * 100 * 128

    assert (mib - 1) * 2**20 < need <= mib * 2**20
    assert (mib, "MiB") == (ahead.value, ahead.unit)
    assert ahead.setting.endswith("Mb")
    assert {"bytes"} == {each.unit for each in others if not each.setting.endswith("Mb")}


def test_caches_of_index_files(tmp_path: Path) -> None:
    """Page cache: all pages, or one a ledger; one open file a ledger."""
    fill(LAYOUTS["idx"](tmp_path))
    (part,) = _parts(tmp_path)
    needs = cache_needs([part], 100.0)

    assert [("pages", part.pages), ("pages", len(CONTENT)), ("files", len(CONTENT))] == [
        (need.unit, need.value) for need in needs
    ]


def test_the_mean_record_is_that_of_the_logs(tmp_path: Path) -> None:
    """`Usage.caches` takes the mean from what `logs` counted; before, it is not known."""
    fill(LAYOUTS["rocks"](tmp_path))
    with BookieDir(tmp_path) as bookie:
        usage = Usage(bookie)

        assert None is usage.cache_needs()[-1].value
        usage._ledgers[LedgerId.of(1)].bytes = 3000 * 104
        need = 2 * 100_000 * 128

        assert -(-need // 2**20) == usage.cache_needs(read_ahead=100_000)[-1].value
        for word in ("readers", "read_ahead"):
            with pytest.raises(InvalidArgument, match=word):
                usage.cache_needs(**{word: 0})


def test_a_ledger_in_a_wrong_directory(tmp_path: Path) -> None:
    """No bookie reads its rows there: they count as dead ones."""
    names = [tmp_path / "l0", tmp_path / "l1"]
    for number, name in enumerate(names):
        with RocksIndex(name, writable=True) as index:
            index.put_many(number, range(10), range(1, 11))
    with RocksIndex(names[0], writable=True) as index:
        index.put_many(3, range(7), range(1, 8))
    conf = tmp_path / "bk_server.conf"
    conf.write_text(
        f"ledgerDirectories={names[0]},{names[1]}\njournalDirectory={tmp_path}/journal\n"
        "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\n"
    )
    (tmp_path / "journal" / "current").mkdir(parents=True)
    parts = {(part.dir_index, part.part): part for part in _parts(conf)}

    assert [(10, 7), (10, 0)] == [
        (part.rows, part.dead_rows) for part in (parts[0, "locations"], parts[1, "locations"])
    ]
