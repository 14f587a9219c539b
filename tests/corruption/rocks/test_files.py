"""Damaged files of RocksDB indexes: table files, CURRENT and MANIFEST.

Rule of the family: every path gives the answer of the undamaged database or one error of ours
that names the original directory, never the scratch one; never fewer rows, never "not found".
Where RocksDB itself is silent (iterators, a manifest or log that lost its end) or hangs (a
flipped record type), bkstore must speak.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bkstore import (
    CorruptionError,
    UnsupportedLayout,
    open_index,
)
from bkstore.index.api import Finding
from bkstore.index.rocks import RocksIndex
from tests.corruption.rocks.databases import (
    DAMAGE,
    Answers,
    answers_of,
    changed,
    check,
    flip,
    only_file,
)

# -- table files


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_table_damaged(
    flushed: tuple[Path, Answers], database: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """Damage in any block, the index, the properties or the footer of a table is noticed.

    It is noticed by each path that needs the damaged block; iterators stop there in silence.
    """
    top, expected = flushed
    file = only_file(top / "current" / database, "*.sst")
    data = file.read_bytes()
    places = {*np.linspace(0, len(data) - 1, 24).astype(int).tolist()}
    places |= {*range(len(data) - 60, len(data), 9)}
    seen = set()
    for at in sorted(places):
        with changed(file, damage(data, at)):
            seen.add(check(top, expected))

    assert seen & {"refused", "partly"}


def test_damaged_block_stops_only_what_needs_it(flushed: tuple[Path, Answers]) -> None:
    """One bad block in the middle: others are answered, and the error names table and offset."""
    top, expected = flushed
    file = only_file(top / "current" / "locations", "*.sst")
    data = file.read_bytes()
    with changed(file, flip(data, len(data) // 2)), RocksIndex(top) as index:
        found = answers_of(index)
        refused = [name for name, answer in found.items() if isinstance(answer, CorruptionError)]

        assert {"entries 3", "items 3", "scan"} <= set(refused)
        assert expected["entries 1"] == found["entries 1"]
        error = found["entries 3"]
        assert str(file) == error.file
        assert error.offset is not None
        assert error.offset <= len(data) // 2


def test_scan_goes_on_behind_a_damaged_block(flushed: tuple[Path, Answers]) -> None:
    """A bulk read yields all rows before the damage, and again from the next ledger on."""
    top, expected = flushed
    file = only_file(top / "current" / "locations", "*.sst")
    data = file.read_bytes()
    findings: list[Finding] = []
    with changed(file, flip(data, len(data) // 2)), RocksIndex(top) as index:
        rows = [
            row
            for part in index.scan(100_000, findings)
            for row in zip(part.ledger_id.tolist(), part.entry_id.tolist())
        ]

    assert sorted(set(rows)) == rows
    assert set(rows) < set(expected["scan"])
    assert [e for n, e in expected["scan"] if n == 5] == [e for n, e in rows if n == 5]
    assert [e for n, e in rows if n == 2] == [e for n, e in expected["scan"] if n == 2]
    assert "damage" in {finding.severity for finding in findings}
    assert any("up to" in finding.detail for finding in findings)


@pytest.mark.parametrize("name", ["*.sst", "CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_file_missing(flushed: tuple[Path, Answers], database: str, name: str) -> None:
    """A database without one of its files is refused, with the name of that file."""
    top, _ = flushed
    file = only_file(top / "current" / database, name)
    data = file.read_bytes()
    file.unlink()
    try:
        with pytest.raises(CorruptionError, match="missing") as caught:
            RocksIndex(top)
    finally:
        file.write_bytes(data)

    assert str(file) == caught.value.file


@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_half_an_index(flushed: tuple[Path, Answers], tmp_path: Path, database: str) -> None:
    """One of the two databases alone (a conversion cut short) is refused by name."""
    shutil.copytree(flushed[0], tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "current" / database)

    with pytest.raises(UnsupportedLayout, match=database):
        open_index(tmp_path)


# -- CURRENT and MANIFEST


@pytest.mark.parametrize("damage", DAMAGE)
def test_current_damaged(
    flushed: tuple[Path, Answers], damage: Callable[[bytes, int], bytes]
) -> None:
    """Any changed byte of CURRENT is refused, at that file or at the manifest it then names."""
    top, expected = flushed
    file = top / "current" / "locations" / "CURRENT"
    data = file.read_bytes()
    for at in range(len(data)):
        with changed(file, damage(data, at)):
            assert "refused" == check(top, expected)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_manifest_damaged(
    flushed: tuple[Path, Answers], database: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """No damage to a manifest makes tables vanish: RocksDB takes a lost end for the end."""
    top, expected = flushed
    file = only_file(top / "current" / database, "MANIFEST-*")
    data = file.read_bytes()
    seen = set()
    for at in range(0, len(data), 3):
        with changed(file, damage(data, at)):
            seen.add(check(top, expected))

    assert "refused" in seen


def test_manifest_refusal_says_where(flushed: tuple[Path, Answers]) -> None:
    """A manifest cut off before the record of a table names itself, the offset and the table."""
    top, _ = flushed
    file = only_file(top / "current" / "locations", "MANIFEST-*")
    with (
        changed(file, file.read_bytes()[:130]),
        pytest.raises(CorruptionError, match=r"\d+\.sst is here, but no record lists it") as caught,
    ):
        RocksIndex(top)

    assert str(file) == caught.value.file
    assert 0 <= (caught.value.offset or 0) <= 130


def test_leftover_of_a_crash_is_a_finding(flushed: tuple[Path, Answers], tmp_path: Path) -> None:
    """A table that a crash left unfinished does not stop the reading; it is named."""
    shutil.copytree(flushed[0], tmp_path, dirs_exist_ok=True)
    leftover = tmp_path / "current" / "locations" / "000999.sst"
    leftover.write_bytes(b"half a table")

    assert "right" == check(tmp_path, flushed[1])
    with RocksIndex(tmp_path) as index:
        assert [str(leftover)] == [finding.file for finding in index.findings()]
