"""`find_logs` over damaged logs, maps and headers: findings or errors, and no entry is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import BookieDir, LedgerId
from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.index.api import Finding
from tests.storage.read_only.written_logs import (
    fill_storage,
    finder_of,
    framed_record,
    ids_by_log,
    write_log,
)
from tests.worlds.entry_logs import HEADER

# -- damage


def _spoil(path: Path, at: int, data: bytes = b"\xff" * 12) -> None:
    found = bytearray(path.read_bytes())
    found[at : at + len(data)] = data
    path.write_bytes(found)


def test_damage_in_an_open_log(tmp_path: Path) -> None:
    """What can be read is found and the damage told, at every question, about any ledger: a log
    without a map might have had its entries in the bytes that are lost."""
    path = write_log(tmp_path, 0, {7: [0, 1, 2, 3]}, closed=False)
    _spoil(path, HEADER + len(framed_record(7, 0)))
    with BookieDir(tmp_path) as bookie:
        for ledger, expected in ((7, {0: [0, 2, 3]}), (7, {0: [0, 2, 3]}), (99, {}), (99, {})):
            findings: list[Finding] = []

            assert expected == ids_by_log(bookie.find_logs(ledger, findings=findings))
            assert ["damage"] == [found.severity for found in findings]
            assert [(str(path), HEADER + len(framed_record(7, 0)))] == [
                (found.file, found.offset) for found in findings
            ]
            with pytest.raises(CorruptionError, match=r"0\.log: offset 10\d\d: "):
                bookie.find_logs(ledger)


def test_damage_in_a_closed_log(tmp_path: Path) -> None:
    """Its map still says whose entries the lost bytes may have been, and whose not."""
    path = write_log(tmp_path, 0, {7: [0, 1, 2, 3], 8: [5]})
    _spoil(path, HEADER + len(framed_record(7, 0)))
    for _ in range(2):
        findings: list[Finding] = []
        with BookieDir(tmp_path) as bookie:
            assert {} == ids_by_log(bookie.find_logs(99, findings=findings))
            assert {} == ids_by_log(bookie.find_logs(99))
            assert [] == findings
            assert {0: [5]} == ids_by_log(bookie.find_logs(8, findings=findings))
            assert {0: [0, 2, 3]} == ids_by_log(bookie.find_logs(7, findings=findings))
            assert ["damage"] * 2 == [found.severity for found in findings]
            with pytest.raises(CorruptionError):
                bookie.find_logs(7)


def test_a_broken_map(tmp_path: Path) -> None:
    """The records are counted instead, and the map is an oddity."""
    path = write_log(tmp_path, 0, {7: [0, 1], 8: [5]})
    place = HEADER + len(framed_record(7, 0) + framed_record(7, 1) + framed_record(8, 5))
    _spoil(path, place + 20, (3).to_bytes(4, "big"))
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert {0: [0, 1]} == ids_by_log(bookie.find_logs(7, findings=findings))
        assert {0: [5]} == ids_by_log(bookie.find_logs(8))
        assert {} == ids_by_log(bookie.find_logs(9))

    assert ["oddity"] == [found.severity for found in findings]
    assert "ledgers map is invalid" in findings[0].detail


def test_a_map_that_is_not_there(tmp_path: Path) -> None:
    """A header that points behind the end: records may be missing, and that is said."""
    path = write_log(tmp_path, 0, {7: [0, 1]})
    whole = path.read_bytes()
    path.write_bytes(whole[: HEADER + len(framed_record(7, 0))])
    for ledger, expected in ((7, {0: [0]}), (8, {})):
        findings: list[Finding] = []
        with BookieDir(tmp_path) as bookie:
            assert expected == ids_by_log(bookie.find_logs(ledger, findings=findings))

        assert "damage" in [found.severity for found in findings]


@pytest.mark.parametrize(
    ("header", "error"),
    [(b"WHAT", CorruptionError), (b"BKLO\0\0\0\x09", UnsupportedLayout)],
)
def test_a_broken_header(tmp_path: Path, header: bytes, error: type[BkstoreError]) -> None:
    """The map cannot be found then; the records are, and the header is told of."""
    path = write_log(tmp_path, 0, {7: [0, 1]})
    _spoil(path, 0, header)
    with BookieDir(tmp_path) as bookie:
        findings: list[Finding] = []

        assert {0: [0, 1]} == ids_by_log(bookie.find_logs(7, findings=findings))
        assert ["damage"] == [found.severity for found in findings]
        for ledger in (7, 8):
            with pytest.raises(error, match=r"0\.log"):
                bookie.find_logs(ledger)


def test_an_entry_beyond_the_last_id(tmp_path: Path) -> None:
    """Entry id 2^63-1 is none: it is told of, and the others are found."""
    path = write_log(tmp_path, 0, {7: [0, 1, 2]}, closed=False)
    place = HEADER + len(framed_record(7, 0))
    _spoil(path, place + 4 + 8, (2**63 - 1).to_bytes(8, "big"))
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert {0: [0, 2]} == ids_by_log(bookie.find_logs(7, findings=findings))

    assert [(str(path), place + 4)] == [(found.file, found.offset) for found in findings]
    assert "beyond id 9223372036854775806" in findings[0].detail


def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    """It is no "not found": told or raised, and tried again at the next question."""
    path = write_log(tmp_path, 1, {7: [1]})
    write_log(tmp_path, 0, {7: [0]})
    data = path.read_bytes()
    finder = finder_of(tmp_path)
    path.unlink()
    findings: list[Finding] = []

    assert {0: [0]} == ids_by_log(finder.find(LedgerId.of(7), findings=findings))
    assert ["damage"] == [found.severity for found in findings]
    assert "1.log" in str(findings[0])
    with pytest.raises(BkstoreError, match=r"1\.log: cannot be read"):
        finder.find(LedgerId.of(7))

    path.write_bytes(data)

    assert {0: [0], 1: [1]} == ids_by_log(finder.find(LedgerId.of(7)))


def test_damage_elsewhere_is_no_matter(tmp_path: Path) -> None:
    """Logs that need not be looked at may be damaged."""
    path = write_log(tmp_path, 0, {7: [0, 1]}, closed=False)
    _spoil(path, HEADER)
    write_log(tmp_path, 1, {7: [0, 1]})
    with BookieDir(tmp_path) as bookie:
        assert {1: [0, 1]} == ids_by_log(bookie.find_logs(7, 0, 1))
        with pytest.raises(CorruptionError):
            bookie.find_logs(7)


def test_nothing_is_written(tmp_path: Path) -> None:
    """Looking leaves every file as it was."""
    fill_storage(tmp_path, "sorted")

    def files() -> dict[str, tuple[int, int]]:
        found = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}

    before = files()
    with BookieDir(tmp_path) as bookie:
        assert bookie.find_logs(7)
        bookie.check_unchanged()

    assert before == files()
