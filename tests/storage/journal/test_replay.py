"""Replay: what a journal says is done again, and what cannot be is told with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import CorruptionError
from bkstore.formats.journal import LogMark, encode_special
from bkstore.ids import LedgerId
from bkstore.storage.journal import JournalWriter, journal_name, write_last_mark
from bkstore.storage.journal.replay import Replay
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageOptions
from bkstore.testing.suites.storage.base import KEY, OTHER_KEY, record

SEVEN = LedgerId(0, 7)
HEADER = 512
"""Bytes before the first record of a journal file of version 6; a length of 4 bytes follows."""


class Place:
    """A journal directory, and the storage that it is replayed into."""

    def __init__(self, top: Path, **options: Any) -> None:
        self.journal, self.ledgers = top / "journal", top / "ledgers"
        self.journal.mkdir()
        self.storage = LedgerStorage.open(self.ledgers, "sorted", options=StorageOptions(**options))
        self.replay = Replay(self.storage)

    def write(self, number: int, *records: bytes) -> None:
        """Write one journal file."""
        with JournalWriter(self.journal, first_id=number, preallocate=0) as writer:
            writer.append_many(records)

    def run(self, mark: LogMark | None = None) -> LogMark:
        """Replay, from a mark if one is given."""
        currents = [self.ledgers / "current"]
        if mark is not None:
            write_last_mark(currents, mark)
        return self.replay.run(self.journal, currents, None)


def test_the_file_of_the_mark_must_be_there(tmp_path: Path) -> None:
    """Later files do not make up for it: what stood in it is not known."""
    place = Place(tmp_path)
    place.write(9, encode_special("master_key", 7, KEY))
    with place.storage, pytest.raises(CorruptionError, match="it is missing") as raised:
        place.run(LogMark(8, HEADER))

    assert str(place.journal / journal_name(8)) == raised.value.file


def test_every_kind_of_record_is_done_again(tmp_path: Path) -> None:
    """Key, entries, fence, and the entries of a recovery behind the fence."""
    place = Place(tmp_path)
    records = [record(7, entry) for entry in range(3)]
    place.write(
        9,
        encode_special("master_key", 7, KEY),
        *records[:2],
        encode_special("fence", 7),
        records[2],
    )
    with place.storage as storage:
        place.run()

        assert (5, 0, []) == (
            place.replay.record_count,
            place.replay.skipped_count,
            place.replay.findings,
        )
        assert records == [storage.read_entry(7, entry) for entry in range(3)]
        assert KEY == storage.state(7).master_key
        assert storage.state(7).fenced


def test_records_of_a_ledger_whose_key_lies_before_the_mark(tmp_path: Path) -> None:
    """A ledger that is not known was deleted since: its records are counted, and left out."""
    place = Place(tmp_path)
    place.write(9, record(7, 0), encode_special("fence", 7), encode_special("master_key", 8, KEY))
    with place.storage as storage:
        place.run()

        assert [LedgerId(0, 8)] == storage.ledgers()
        assert 2 == place.replay.skipped_count


def test_a_record_that_contradicts_the_storage(tmp_path: Path) -> None:
    """A second key of a ledger is damage, told with the place of the record behind its length."""
    place = Place(tmp_path)
    first = encode_special("master_key", 7, KEY)
    place.write(9, first, encode_special("master_key", 7, OTHER_KEY))
    with place.storage, pytest.raises(CorruptionError, match="cannot be replayed") as raised:
        place.run()

    assert HEADER + 4 + len(first) + 4 == raised.value.offset
    assert str(place.journal / journal_name(9)) == raised.value.file


def test_a_cache_that_may_not_flush_itself(tmp_path: Path) -> None:
    """Replay flushes it, and loses nothing of what did not fit."""
    place = Place(tmp_path, auto_flush=False, write_cache=1000)
    records = [record(7, entry, bytes(300)) for entry in range(20)]
    place.write(9, encode_special("master_key", 7, KEY), *records)
    with place.storage as storage:
        place.run()

        assert records == [storage.read_entry(7, entry) for entry in range(20)]


def test_the_end_that_a_kill_left(tmp_path: Path) -> None:
    """A record that is cut off is a finding of the replay; those before it are done."""
    place = Place(tmp_path)
    place.write(9, encode_special("master_key", 7, KEY), record(7, 0), record(7, 1, bytes(600)))
    path = place.journal / journal_name(9)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(record(7, 1, bytes(600))) + 300])
    with place.storage as storage:
        place.run()

        assert [0] == storage.entries(7).tolist()
        (found,) = place.replay.findings
        assert ("damage", str(path)) == (found.severity, found.file)
        assert "cut off" in found.detail
