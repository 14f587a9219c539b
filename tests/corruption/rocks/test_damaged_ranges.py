"""Damage has a place: a block or a table file makes a range of keys unknown, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bkstore import BkstoreError, BookieDir, CorruptionError, LedgerId
from bkstore.index.api import Finding, IndexBatch, LedgerState
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.tables.table_reader import TableReader
from bkstore.offline.check import Check
from bkstore.offline.rewrite.recovered_ledger_states import read_source_ledgers
from tests.corruption.rocks.databases import Answers, changed, flip, only_file

Row = tuple[int, int]


def scan(index: RocksIndex, findings: list[Finding] | None) -> list[Row]:
    """Return the (ledger, entry) of all rows."""
    return [
        row
        for batch in index.scan(findings=findings)
        for row in zip(batch.ledger_id.tolist(), batch.entry_id.tolist())
    ]


def key(row: Row) -> bytes:
    """Return the key of a row."""
    return row[0].to_bytes(8, "big") + row[1].to_bytes(8, "big")


@pytest.fixture
def damaged_block(flushed: tuple[Path, Answers]) -> Iterator[tuple[Path, Path, int, set[Row]]]:
    """Yield a bookie with a damaged block of `locations`, the file, the block's offset, and the
    rows of the block, which lies inside two ledgers."""
    top, expected = flushed
    file = only_file(top / "current" / "locations", "*.sst")
    with TableReader(file) as table:
        separators, offsets = table.index.separators, table.index.offsets.tolist()
    block = next(
        number
        for number in range(1, len(separators))
        if separators[number - 1][:8] != separators[number][:8]
    )
    low, high = separators[block - 1], separators[block]
    lost = {row for row in expected["scan"] if low < key(row) <= high}
    with changed(file, flip(file.read_bytes(), offsets[block] + 100)):
        yield top, file, offsets[block], lost


def test_only_the_rows_of_the_block_are_missing(
    damaged_block: tuple[Path, Path, int, set[Row]], flushed: tuple[Path, Answers]
) -> None:
    """A scan names file, offset and keys, and gives all other rows; a listing of what is here
    reports the same."""
    top, file, offset, lost = damaged_block
    findings: list[Finding] = []
    with RocksIndex(top) as index:
        rows = scan(index, findings)
        (finding,) = findings
        with pytest.raises(CorruptionError, match="are unknown"):
            scan(index, None)

        assert [row for row in flushed[1]["scan"] if row not in lost] == rows
        assert [finding] == index.findings()
    assert ("damage", str(file), offset) == (finding.severity, finding.file, finding.offset)
    assert "rows from key" in finding.detail


def test_ledgers_beside_the_block_are_answered(
    damaged_block: tuple[Path, Path, int, set[Row]], flushed: tuple[Path, Answers]
) -> None:
    """Those with rows in the block are refused with its place, alone and among others."""
    top, file, offset, lost = damaged_block
    touched = sorted({ledger for ledger, _ in lost})
    everything = flushed[1]["scan"]
    assert len(touched) == 2
    with RocksIndex(top) as index:
        for ledger in range(1, 6):
            if ledger in touched:
                with pytest.raises(CorruptionError, match="are unknown") as caught:
                    index.availability(ledger)
                assert (str(file), offset) == (caught.value.file, caught.value.offset)
                continue
            assert [e for n, e in everything if n == ledger] == index.entries(ledger).tolist()
        errors: dict[LedgerId, BkstoreError] = {}
        listed = {each.ledger: len(found) for each, found in index.availability_many(errors=errors)}

    assert touched == [each.ledger for each in errors]
    assert {n: 4000 for n in range(1, 6) if n not in touched} == listed


def test_a_table_file_that_cannot_be_opened(flushed: tuple[Path, Answers], tmp_path: Path) -> None:
    """Its keys are unknown; ledgers of other files, the list of ledgers and states are there."""
    shutil.copytree(flushed[0], tmp_path, dirs_exist_ok=True)
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(9, range(100), range(1, 101))
    old, new = sorted((tmp_path / "current" / "locations").glob("*.sst"))
    data = old.read_bytes()
    old.write_bytes(data[:-3] + b"???")
    findings: list[Finding] = []
    with RocksIndex(tmp_path) as index:
        assert [1, 2, 3, 4, 5, 9] == [each.ledger for each in index.ledgers()]
        assert index.state(2).fenced
        assert list(range(100)) == index.entries(9).tolist()
        assert index.last_entry(9) == 99
        for read in (index.entries, index.availability, index.items, index.last_entry):
            with pytest.raises(CorruptionError, match="not a table file") as caught:
                read(3)
            assert str(old) == caught.value.file
        assert [(9, entry) for entry in range(100)] == scan(index, findings)
        assert [str(old)] == [finding.file for finding in findings]
        assert [str(old)] == [finding.file for finding in index.findings()]
    assert new != old


def test_check_counts_what_it_could_not_read(
    damaged_block: tuple[Path, Path, int, set[Row]], tmp_path: Path
) -> None:
    """A check compares the sound rows, and says in how many places it could not read."""
    top, file, offset, lost = damaged_block
    shutil.copytree(top, tmp_path, dirs_exist_ok=True)
    with BookieDir(tmp_path) as bookie:
        check = Check(bookie)
        findings = [each for each in check if each.offset == offset]

    assert [file.name] == [Path(each.file or "").name for each in findings]
    assert 20_000 - len(lost) == check.coverage.rows
    assert any("in 1 place: see" in part for part in check.coverage.not_checked)


def test_states_beside_a_damaged_block_of_ledgers(tmp_path: Path) -> None:
    """States of sound blocks are read; those of the damaged one are refused, not called absent."""
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger in range(400):
            index.set_state(ledger, LedgerState(b"k" * 20, ledger % 2 == 0))
    file = only_file(tmp_path / "current" / "ledgers", "*.sst")
    with TableReader(file) as table:
        offsets, separators = table.index.offsets.tolist(), table.index.separators
    assert len(offsets) > 2
    file.write_bytes(flip(file.read_bytes(), offsets[1] + 9))
    first, end = (int.from_bytes(separators[n].ljust(8, b"\0"), "big") for n in (0, 1))
    sound = [n for n in range(400) if not first < n <= end]
    hidden = f"rows of ledgers {first + 1} to {end} are unknown"
    with RocksIndex(tmp_path) as index:
        assert [n % 2 == 0 for n in sound] == [index.state(n).fenced for n in sound]
        for read in (index.state, index.has_ledger):
            for ledger in (first + 1, end):
                with pytest.raises(CorruptionError, match=hidden) as caught:
                    read(ledger)
                assert (str(file), offsets[1]) == (caught.value.file, caught.value.offset)
        with pytest.raises(CorruptionError, match=hidden):
            index.ledgers()
        assert [] == index.ledgers(5)
        listing = index.list_readable_ledgers()
        assert sound == [each.ledger for each in listing.ledgers]
        assert [(first + 1, end)] == [
            (each.first.ledger, each.last.ledger) for each in listing.unknown
        ]
        assert index.findings() == listing.findings
        assert [True, False] == [index.has_ledger(n) for n in (first, 400)]
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        source = read_source_ledgers(bookie, findings)

    assert sound == [each.ledger for each in source.indexed]
    assert source.has_listing
    assert [True, True, False] == [LedgerId(0, n) in source for n in (first, end, 400)]
    assert [offsets[1]] == [finding.offset for finding in findings if finding.severity == "damage"]


def test_a_row_of_other_widths_is_one_unknown_key(tmp_path: Path) -> None:
    """Rows in the block beside a key of another width are read, before and after it."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, range(1000), range(1, 1001))
        odd = key((7, 500)) + b"\1"
        index._writable_database("locations", is_scoped=False).put(odd, bytes(8))
    findings: list[Finding] = []
    with RocksIndex(tmp_path) as index:
        assert np.arange(500).tolist() == index.entries(7, 0, 499).tolist()
        assert np.arange(501, 1000).tolist() == index.entries(7, 501).tolist()
        with pytest.raises(CorruptionError, match=odd.hex()):
            index.entries(7)
        assert [(7, entry) for entry in range(1000)] == scan(index, findings)

    (finding,) = findings
    assert f"a key of 17 and a value of 8 bytes: {odd.hex()}" in finding.detail
    assert LedgerId(0, 7) == finding.ledger


def test_each_range_is_reported_once(tmp_path: Path) -> None:
    """A listing of ledgers begins anew after each long one, but names every damage once."""
    ledger_ids, entries = np.repeat(np.arange(1, 6), 12_000), np.tile(np.arange(12_000), 5)
    zeros = np.zeros(entries.size, np.int64)
    rows = IndexBatch(zeros, zeros, ledger_ids, entries, entries + 1)
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger in range(1, 6):
            index.set_state(ledger, LedgerState(b""))
        for _ in range(2):
            index.bulk_load([rows])
    file = min((tmp_path / "current/locations").glob("*.sst"))
    data = file.read_bytes()
    with changed(file, data[:-50]), RocksIndex(tmp_path) as index:
        assert [str(file)] == [finding.file for finding in index.findings()]
    with changed(file, flip(data, 50)), RocksIndex(tmp_path) as index:
        assert [0] == [finding.offset for finding in index.findings()]
