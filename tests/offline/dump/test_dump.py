"""The dump: what is in the Parquet files is what is in the index, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bkstore import BookieDir, InvalidArgument, LedgerId
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.options import location_options
from bkstore.offline.dump import dump
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.tables import ENTRIES, GROUPS, LEDGERS, Table

pq = pytest.importorskip("pyarrow.parquet")

WIDE = [LedgerId(2**63 + 5, 1), LedgerId(3, 2**64 - 1), LedgerId(3, 4)]
CONTENT = {
    LedgerId.of(1): np.arange(3000),
    LedgerId.of(2): np.array([i for i in range(9000) if i % 3 != 1]),
    LedgerId.of(9): np.array([0, 1, 2, 70_000, 70_001]),
    LedgerId.of(300): np.array([], np.int64),
    **{ledger: np.arange(5) * 7 for ledger in WIDE},
}
KEY = b"k" * 20
NAMES = ("entries", "groups", "ledgers", "entry_logs", "log_ledgers", "findings")


def _idx(top: Path) -> HierarchicalIndex:
    return HierarchicalIndex(top / "ledgers", writable=True)


def _rocks(top: Path) -> RocksIndex:
    return RocksIndex(top / "ledgers", writable=True)


def _three(top: Path) -> PartitionedIndex:
    return PartitionedIndex([RocksIndex(top / f"ledgers{n}", writable=True) for n in range(3)])


@pytest.fixture(params=[_idx, _rocks, _three], ids=["idx", "rocksdb", "rocksdb-three-dirs"])
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a bookie directory with CONTENT."""
    with request.param(tmp_path / "b1") as index:
        for ledger, entries in CONTENT.items():
            index.set_state(ledger, LedgerState(KEY, fenced=ledger.ledger == 9))
            index.put_many(ledger, entries, entries * 100 + (7 << 32) + 1028)
    return tmp_path / "b1"


def _rows(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for file in sorted(folder.glob("*.parquet")):
        found.extend(pq.read_table(file).to_pylist())
    return found


def test_entries(bookie: Path, tmp_path: Path) -> None:
    """Every index row is in `entries` once, with its log and position."""
    with BookieDir(bookie) as opened:
        result = dump([opened], tmp_path / "out")
    rows = _rows(tmp_path / "out" / "entries")
    expected = {
        (*ledger.signed, int(entry), 7, int(entry) * 100 + 1028)
        for ledger, entries in CONTENT.items()
        for entry in entries
    }
    got = [
        tuple(row[name] for name in ("scope_id", "ledger_id", "entry_id", "log_id", "position"))
        for row in rows
    ]

    assert len(expected) == len(rows) == result.rows["entries"]
    assert expected == set(got)
    assert {"b1"} == {row["bookie"] for row in rows}
    assert [] == result.findings


def test_groups_say_the_same_entries(bookie: Path, tmp_path: Path) -> None:
    """`groups` expands to exactly the stored entries, one row for a stripe."""
    with BookieDir(bookie) as opened:
        dump([opened], tmp_path / "out")
    found: dict[LedgerId, set[int]] = {}
    stripes = 0
    for row in _rows(tmp_path / "out" / "groups"):
        _, scope, ledger, first, last, size, period = row.values()
        stripes += ledger == 2
        starts = range(first, last + 1, period or 1)  # type: ignore[arg-type, call-overload]
        ids = {start + n for start in starts for n in range(size)}  # type: ignore[call-overload]
        found.setdefault(LedgerId.from_signed(scope, ledger), set()).update(ids)  # type: ignore[arg-type]
    expected = {ledger: set(ids.tolist()) for ledger, ids in CONTENT.items() if ids.size}

    assert expected == found
    assert stripes <= 3


def test_ledgers(bookie: Path, tmp_path: Path) -> None:
    """`ledgers` has a row for every ledger, empty ones too."""
    with BookieDir(bookie) as opened:
        dump([opened], tmp_path / "out")
    rows = _rows(tmp_path / "out" / "ledgers")
    names = [row["qualified_name"] for row in rows]

    assert sorted(ledger.qualified_name for ledger in CONTENT) == sorted(map(str, names))
    for row in rows:
        entries = CONTENT[LedgerId.parse(str(row["qualified_name"]))]
        first = int(entries[0]) if entries.size else None
        last = int(entries[-1]) if entries.size else None
        assert (entries.size, first, last) == (
            row["entries"],
            row["first_entry"],
            row["last_entry"],
        )
        assert (KEY, row["ledger_id"] == 9) == (row["master_key"], row["fenced"])


def test_files_are_sorted_and_delta_encoded(bookie: Path, tmp_path: Path) -> None:
    """Each file is in unsigned order; integers are DELTA_BINARY_PACKED, zstd, no dictionary."""
    with BookieDir(bookie) as opened:
        dump([opened], tmp_path / "out")
    for schema in (ENTRIES, GROUPS, LEDGERS):
        for file in (tmp_path / "out" / schema.name).glob("*.parquet"):
            meta = pq.ParquetFile(file).metadata
            rows = pq.read_table(file).to_pylist()
            keys = [LedgerId.from_signed(row["scope_id"], row["ledger_id"]) for row in rows]

            assert sorted(keys) == keys
            assert schema.to_arrow().names == pq.read_schema(file).names
            for at in range(meta.num_columns if meta.num_row_groups else 0):
                column = meta.row_group(0).column(at)
                assert "ZSTD" == column.compression
                assert "RLE_DICTIONARY" not in column.encodings
                if column.physical_type in ("INT64", "INT32"):
                    assert "DELTA_BINARY_PACKED" in column.encodings


def test_several_bookies_and_names(bookie: Path, tmp_path: Path) -> None:
    """Bookies dump side by side under distinct ids; equal ids are refused."""
    with BookieDir(bookie, bookie_id="x:1") as one, BookieDir(bookie, bookie_id="y:1") as two:
        result = dump([one, two], tmp_path / "out")
        with pytest.raises(InvalidArgument, match="not distinct"):
            dump([one, one], tmp_path / "out2")

    assert {"x:1", "y:1"} == {row["bookie"] for row in _rows(tmp_path / "out" / "ledgers")}
    assert 2 * len(CONTENT) == result.rows["ledgers"]


def test_target_must_be_empty(bookie: Path, tmp_path: Path) -> None:
    """A dump does not mix with what is already there."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with BookieDir(bookie) as opened, pytest.raises(InvalidArgument, match="not an empty folder"):
        dump([opened], tmp_path / "out")


def test_bookie_without_entries(tmp_path: Path) -> None:
    """An empty bookie gives empty tables, so that readers find all of them."""
    (tmp_path / "b" / "current").mkdir(parents=True)
    with BookieDir(tmp_path / "b") as opened:
        result = dump([opened], tmp_path / "out")

    assert dict.fromkeys(NAMES, 0) == result.rows
    assert [[]] * 6 == [_rows(tmp_path / "out" / name) for name in NAMES]


def test_damage_is_a_finding(tmp_path: Path) -> None:
    """A damaged index file stops neither the dump nor the other ledgers, and is named."""
    with _idx(tmp_path / "b") as index:
        for ledger in (1, 2, 3):
            index.put_many(ledger, [0, 1], [1028, 2000])
        path = index.path(2)
    assert path is not None
    Path(path).write_bytes(b"XXXX" + Path(path).read_bytes()[4:])
    with BookieDir(tmp_path / "b") as opened:
        result = dump([opened], tmp_path / "out")
    entries = {row["ledger_id"]: row["entries"] for row in _rows(tmp_path / "out" / "ledgers")}

    assert {1: 2, 2: None, 3: 2} == entries
    assert [(path, 0, LedgerId.of(2))] == [(f.file, f.offset, f.ledger) for f in result.findings]
    assert {1, 3} == {row["ledger_id"] for row in _rows(tmp_path / "out" / "entries")}


def test_groups_across_batches(tmp_path: Path) -> None:
    """A ledger that a batch border cuts keeps one row for its stripe."""
    ids = np.array([i for i in range(900_000) if i % 3 != 2])
    with _rocks(tmp_path / "b") as index:
        index.put_many(5, ids, ids + 1028)
    with BookieDir(tmp_path / "b") as opened:
        dump([opened], tmp_path / "out")
    (row,) = _rows(tmp_path / "out" / "groups")

    assert [0, 899_997, 2, 3] == list(row.values())[3:]


@pytest.mark.long
def test_memory_is_bounded(tmp_path: Path) -> None:
    """Dumping 10 million entries stays under 600 MiB at its peak, the whole process counted."""
    script = f"""
import numpy as np
from pathlib import Path
from bkstore import BookieDir
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.offline.dump.parquet import ParquetTableWriter
top = Path({str(tmp_path)!r})
with HierarchicalIndex(top / "b", writable=True) as index:
    for ledger in range(100):
        ids = np.arange(100_000)
        index.put_many(ledger, ids, ids * 97 + (ledger << 32) + 1028)
with BookieDir(top / "b") as opened:
    print(dump([opened], top / "out").rows["entries"])
# Of this process alone: getrusage begins with what the one that started it had.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    rows, peak = map(int, done.stdout.split())

    assert 10_000_000 == rows
    assert peak < 600


def test_memtable_content_can_be_dumped_after_copying(tmp_path: Path) -> None:
    """A memtable reaches a dump through a written index, row for row."""
    with MemtableIndex() as memory, _rocks(tmp_path / "b") as index:
        for ledger, entries in CONTENT.items():
            memory.put_many(ledger, entries, entries + 1028)
        index.bulk_load(memory.scan(batch=1000))
    with BookieDir(tmp_path / "b") as opened:
        result = dump([opened], tmp_path / "out")

    assert sum(ids.size for ids in CONTENT.values()) == result.rows["entries"]


def test_damage_stays_with_its_bookie(tmp_path: Path) -> None:
    """Damage in one bookie blanks no row of another that has the same ledger."""
    for name in ("a", "b"):
        with _idx(tmp_path / name) as index:
            index.put_many(7, [0, 1], [1028, 2000])
            index.put_many(8, [], [])
            path = Path(index.path(7) or "")
        if name == "a":
            path.write_bytes(bytes(1024))
    with BookieDir(tmp_path / "a") as one, BookieDir(tmp_path / "b") as two:
        result = dump([one, two], tmp_path / "out")
    rows = _rows(tmp_path / "out" / "ledgers")

    assert {("a", 7): None, ("a", 8): 0, ("b", 7): 2, ("b", 8): 0} == {
        (row["bookie"], row["ledger_id"]): row["entries"] for row in rows
    }
    assert {LedgerId.of(7)} == {found.ledger for found in result.findings}


@pytest.mark.parametrize("ids", [("h:1", "h_1"), ("Host", "host")])
def test_names_that_would_share_a_file(tmp_path: Path, ids: tuple[str, str]) -> None:
    """Two ids that come to one file name are refused; nothing is overwritten."""
    with _idx(tmp_path / "a") as index:
        index.put_many(7, [0], [1028])
    first, second = (BookieDir(tmp_path / "a", bookie_id=name) for name in ids)
    with first, second, pytest.raises(InvalidArgument, match=r"file names: .*; pass NAME=DIR"):
        dump([first, second], tmp_path / "out")


def test_output_inside_a_bookie(bookie: Path) -> None:
    """A dump into a directory that is being read is refused: nothing is ever written there."""
    (current, *_) = sorted(bookie.glob("*/current"))
    with BookieDir(bookie) as opened, pytest.raises(InvalidArgument, match="which is only read"):
        dump([opened], current / "out" / "deep")

    assert not (current / "out").exists()


def test_batch_of_impossible_rows(tmp_path: Path) -> None:
    """Rows whose location is 0 become a finding, also where they are all there is."""
    with _rocks(tmp_path / "b") as index:
        index.set_state(7, LedgerState(KEY))
    database = Database(tmp_path / "b/ledgers/current/locations", location_options())
    database.put((7).to_bytes(8, "big") + bytes(8), bytes(8))
    database.close()
    with BookieDir(tmp_path / "b") as opened:
        result = dump([opened], tmp_path / "out")

    assert 0 == result.rows["entries"]
    assert ["damage"] == [found.severity for found in result.findings]


def test_strays_are_left_out(tmp_path: Path) -> None:
    """Rows of a ledger in a directory where no bookie looks count in no answer, dump included."""
    with _three(tmp_path / "b") as index:
        for ledger in range(6):
            index.put_many(ledger, [0, 1, 2], [1028, 2000, 3000])
        index.parts[1].put_many(3, [7, 8], [1028, 2000])
    names = "".join(f"\t/data/ledgers{n}" for n in range(3))
    text = f'5\nbookieHost: "b"\njournalDir: "/j"\nledgerDirs: "3{names}"\n'
    (tmp_path / "b/ledgers0/current/VERSION").write_text(text.replace("\t", "\\t"))
    with BookieDir(tmp_path / "b") as opened:
        listed = opened.index.entries(3).tolist()
        result = dump([opened], tmp_path / "out")
    entries = {row["ledger_id"]: row["entries"] for row in _rows(tmp_path / "out" / "ledgers")}

    assert [0, 1, 2] == listed
    assert dict.fromkeys(range(6), 3) == entries
    assert 18 == result.rows["entries"]
    assert ["is in directory 1" in str(found) for found in result.findings] == [True]


def test_row_groups_of_groups_are_small(tmp_path: Path) -> None:
    """Files of `groups` have row groups of 2^15 rows: readers of a range of ledgers skip others."""
    ids = np.arange(70_000)
    with ParquetTableWriter(tmp_path / "g.parquet", GROUPS) as file:
        columns = [["b"] * ids.size, ids * 0, ids, ids * 0, ids * 0, ids * 0 + 1, ids * 0]
        file.write(Table(GROUPS, dict(zip(GROUPS.names, columns))))
    footer = pq.ParquetFile(tmp_path / "g.parquet").metadata
    rows = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]

    assert [1 << 15, 1 << 15, 70_000 - (1 << 16)] == rows
