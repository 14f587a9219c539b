"""Journals of the real BookKeeper scan to the records, ends and marks that its classes gave."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from bkstore import CorruptionError
from bkstore.storage.journal import (
    JournalScan,
    JournalWriter,
    LogMark,
    journal_index_of,
    list_journal_files,
    read_last_mark,
    scan_journal,
)
from tests.models.journal_scan import assert_as_a_plain_loop

Golden = tuple[Path, dict[str, Any]]

GROUPED = {"no_last_mark", "last_mark_zero", "marked_file_missing", "journal_empty"}
"""Variants that edit marks or remove files, not one file's bytes."""


def _index(name: str) -> int | None:
    _, _, number = name.partition(".")
    return int(number) if number else None


def _directory(root: Path, mark_name: str) -> Path:
    return root / f"journal{_index(mark_name) if '.' in mark_name else ''}" / "current"


def _rows(scan: JournalScan) -> list[list[Any]]:
    raw = dict(scan)
    return [
        [
            offset,
            record.kind,
            record.ledger.ledger,
            record.entry_id,
            len(raw[offset]),
            zlib.crc32(raw[offset]),
        ]
        for offset, record in scan.records()
    ]


def test_every_file_scans_to_its_records(journal: Golden) -> None:
    """Offsets, kinds, ids, lengths and CRCs; version, size and end; and nothing odd is found."""
    root, document = journal
    for answer in document["journal_files"]:
        path = root / answer["dir"] / "current" / answer["file"]
        scan = scan_journal(path)
        assert_as_a_plain_loop(scan)

        assert answer["records"] == _rows(scan)
        assert answer["scan_end"] == scan.stop
        assert answer["version_in_header"] == scan.version
        assert answer["size"] == path.stat().st_size
        assert [] == scan.findings


def test_a_scan_from_any_record(journal: Golden) -> None:
    """A scan that starts at a record's offset gives that record and those behind it."""
    root, document = journal
    answer = document["journal_files"][-1]
    path = root / answer["dir"] / "current" / answer["file"]
    for number in range(0, len(answer["records"]), 7):
        scan = scan_journal(path, answer["records"][number][0])

        assert answer["records"][number:] == _rows(scan)
        assert answer["scan_end"] == scan.stop


def test_files_are_listed_by_id(journal: Golden) -> None:
    """Each journal directory's files are listed with the ids that the bookie knew."""
    root, document = journal
    for name in {answer["dir"] for answer in document["journal_files"]}:
        current = root / name / "current"
        expected = sorted(
            (answer["id"], current / answer["file"])
            for answer in document["journal_files"]
            if answer["dir"] == name
        )

        assert expected == list_journal_files(current)


def test_records_lie_in_their_ledgers_journal(journal: Golden) -> None:
    """With several directories, every record is in the one that its ledger belongs to."""
    count = journal[1]["journal_dirs"]
    for answer in journal[1]["journal_files"]:
        number = int(answer["dir"].removeprefix("journal") or 0)

        assert {number} == {journal_index_of(row[2], count) for row in answer["records"]}


def test_last_marks(journal: Golden) -> None:
    """lastMark files give the marks that the bookie had written."""
    root, document = journal
    for name, mark in document["last_mark"].items():
        assert LogMark(*mark) == read_last_mark([root / "ledgers" / "current"], _index(name))


def _edit(path: Path, variant: dict[str, Any]) -> None:
    start, end = variant["from"], variant["to"]
    data = bytearray(path.read_bytes())
    if variant["edit"] == "truncate":
        del data[start:]
    else:
        value = {"zero": 0, "write_ff_at": 0xFF, "write_01_at": 1}[variant["edit"]]
        data[start:end] = bytes([value]) * (end - start)
    path.write_bytes(data)


def _replayed_mark(root: Path, mark_name: str, skip_invalid: bool) -> LogMark:
    """Return the mark behind all that a replay from the mark in force reads."""
    mark = read_last_mark([root / "ledgers" / "current"], _index(mark_name))
    reached = mark
    for number, path in list_journal_files(_directory(root, mark_name)):
        if number >= mark.journal_id:
            start = mark.position if number == mark.journal_id else 0
            scan = scan_journal(path, start, skip_invalid=skip_invalid)
            for _ in scan.records():
                pass
            reached = LogMark(number, scan.stop)
    return reached


def test_replay_ends_where_the_real_one_did(journal: Golden) -> None:
    """Scanning from the mark to the end of the last file reaches the real replay's mark."""
    root, document = journal

    assert document["replay"]["started"]
    for name, mark in document["replay"]["last_mark_after"].items():
        assert LogMark(*mark) == _replayed_mark(root, name, False)


def test_damaged_files(journal: Golden, tmp_path: Path) -> None:
    """Each damaged variant ends at the real scanner's place, or raises where no bookie started."""
    root, document = journal
    tried = 0
    for variant in document["variants"]:
        if "file" not in variant:
            continue
        tried += 1
        copy = tmp_path / variant["name"]
        shutil.copytree(root, copy)
        _edit(copy / variant["file"], variant)
        for invalid in (False, True):
            assert_as_a_plain_loop(scan_journal(copy / variant["file"], skip_invalid=invalid))
        skip = variant["skip_replay_journal_invalid_record"]
        if variant["started"]:
            for name, mark in variant["last_mark_after"].items():
                assert LogMark(*mark) == _replayed_mark(copy, name, skip), variant["name"]
        else:
            with pytest.raises(CorruptionError, match=Path(variant["file"]).name):
                [_replayed_mark(copy, name, skip) for name in document["last_mark"]]

    assert 10 <= tried


def test_damage_is_found(journal: Golden, tmp_path: Path) -> None:
    """What the real scanner passes by in silence (cuts, wrong lengths) is among the findings."""
    root, document = journal
    told = {"last_record_cut", "last_length_cut", "negative_length_skip_invalid"}
    told |= {"length_beyond_file", "bad_magic"}
    edits = [variant for variant in document["variants"] if variant["name"] in told]

    assert 5 == len(edits)
    for variant in edits:
        path = tmp_path / variant["name"] / Path(variant["file"]).name
        path.parent.mkdir()
        shutil.copy(root / variant["file"], path)
        _edit(path, variant)
        scan = scan_journal(path, skip_invalid=True)
        for _ in scan:
            pass

        assert [str(path)] == [finding.file for finding in scan.findings], variant["name"]
        assert {"damage"} == {finding.severity for finding in scan.findings}


def test_marks_that_are_gone(journal: Golden, tmp_path: Path) -> None:
    """Without marks, or with zero ones, a replay from the beginning reaches the same place."""
    root, document = journal
    variants = {v["name"]: v for v in document["variants"] if v["name"] in GROUPED}

    assert set(variants) == GROUPED
    for name in ("no_last_mark", "last_mark_zero", "journal_empty"):
        copy = tmp_path / name
        shutil.copytree(root, copy)
        for path in (copy / "ledgers" / "current").glob("lastMark*"):
            path.unlink() if name != "last_mark_zero" else path.write_bytes(bytes(16))
        if name == "journal_empty":
            for path in copy.glob("journal*/current/*.txn"):
                path.unlink()
        for mark_name, mark in variants[name]["last_mark_after"].items():
            assert LogMark(*mark) == _replayed_mark(copy, mark_name, False), name


def test_marked_file_missing(journal: Golden, tmp_path: Path) -> None:
    """Where no bookie started, the mark's file is not listed while later ones may be."""
    root, document = journal
    (variant,) = [v for v in document["variants"] if v["name"] == "marked_file_missing"]

    assert not variant["started"]
    for name, (marked, _) in document["last_mark"].items():
        copy = tmp_path / name
        shutil.copytree(_directory(root, name), copy)
        before = dict(list_journal_files(copy))
        before.pop(marked).unlink()

        assert before == dict(list_journal_files(copy))
        assert marked == read_last_mark([root / "ledgers" / "current"], _index(name)).journal_id


def test_the_writer_writes_the_real_bytes(journal: Golden, tmp_path: Path) -> None:
    """Given a file's records, flushed where the real bookie flushed, its bytes come out."""
    root, document = journal
    for number, answer in enumerate(document["journal_files"]):
        path = root / answer["dir"] / "current" / answer["file"]
        here = tmp_path / str(number)
        here.mkdir()
        with JournalWriter(
            here,
            version=answer["version_in_header"],
            preallocate=1 << 20,
            first_id=answer["id"],
        ) as writer:
            end = None
            for offset, data in scan_journal(path):
                if end not in (None, offset):  # padding, so a flush
                    writer.flush(sync=False)
                end = writer.append(data).position

                assert offset + 4 + len(data) == end

        assert [(answer["id"], here / answer["file"])] == list_journal_files(here)
        assert path.read_bytes() == (here / answer["file"]).read_bytes()
