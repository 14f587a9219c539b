"""The LAC of a ledger: the highest that was ever said, and no record's damage keeps others out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import CorruptionError
from bkstore.formats.entry import encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.last_add_confirmed import LacTracker
from bkstore.testing.suites.storage.base import KEY, record

KINDS: tuple[Any, ...] = ("sorted", "interleaved", "db")
SEVEN = LedgerId(0, 7)


def _zero_last_record(path: Path) -> None:
    """Put zeros over the end of the newest log that holds records."""
    log = max((p for p in path.rglob("*.log") if p.stat().st_size > 1024), key=lambda p: p.name)
    with log.open("r+b") as file:
        file.seek(1024)
        file.write(bytes(log.stat().st_size - 1024))


@pytest.mark.parametrize("kind", KINDS)
def test_adds_go_on_over_a_damaged_last_entry(tmp_path: Path, kind: Any) -> None:
    """The last entry cannot be read, so nothing is known to be confirmed; the next is taken."""
    with LedgerStorage.open(tmp_path, kind) as storage:
        storage.set_master_key(SEVEN, KEY)
        storage.add_entry(record(SEVEN, 0, b"first"))
        storage.add_entry(record(SEVEN, 1, b"second"))
    _zero_last_record(tmp_path)
    with LedgerStorage.open(tmp_path, kind) as storage:
        with pytest.raises(CorruptionError):
            storage.read_entry(SEVEN, 1)

        assert 2 == storage.add_entry(record(SEVEN, 2, b"third", lac=1))
        assert 1 == storage.last_add_confirmed(SEVEN)
        assert record(SEVEN, 2, b"third", lac=1) == storage.read_entry(SEVEN, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_explicit_lac_counts_beside_a_damaged_last_entry(tmp_path: Path, kind: Any) -> None:
    """The explicit LAC is stored in the index: no damage of the last record hides it from adds."""
    with LedgerStorage.open(tmp_path, kind) as storage:
        storage.set_master_key(SEVEN, KEY)
        storage.add_entry(record(SEVEN, 0, b"first"))
        storage.set_explicit_lac(SEVEN, encode_explicit_lac(SEVEN, 4, "CRC32C", "pw"))
    _zero_last_record(tmp_path)
    with LedgerStorage.open(tmp_path, kind) as storage:
        with pytest.raises(CorruptionError):
            storage.last_add_confirmed(SEVEN)

        storage.add_entry(record(SEVEN, 1, b"second", lac=0))
        assert 4 == storage.last_add_confirmed(SEVEN)


def _raise_damage(ledger_id: LedgerId) -> int:
    raise CorruptionError("0.idx", 0, f"ledger {ledger_id}: the explicit LAC is damaged")


def test_last_entry_counts_beside_a_damaged_explicit_lac() -> None:
    """The reverse: what the last entry confirms is known, whatever the explicit LAC has."""
    tracker = LacTracker(lambda _: 6, _raise_damage)

    tracker.load_before_add(SEVEN)
    tracker.note_added(SEVEN, 5)

    assert 6 == tracker.get(SEVEN)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [((None, None), -1), ((4, None), 4), ((None, 5), 5), ((4, 9), 9), ((9, 4), 9), ((-1, 3), 3)],
)
def test_the_highest_counts(stored: tuple[int | None, int | None], expected: int) -> None:
    """Of the last entry's LAC and the explicit one, the higher; -1 where neither is there."""
    of_last_entry, explicit = stored

    assert expected == LacTracker(lambda _: of_last_entry, lambda _: explicit).get(SEVEN)


def test_a_ledger_made_again_begins_anew() -> None:
    """What was known of a deleted ledger is not said of the next one of its id."""
    stored: dict[LedgerId, int | None] = {SEVEN: 4}
    confirmed = LacTracker(stored.get, lambda _: None)

    assert 4 == confirmed.get(SEVEN)
    stored[SEVEN] = None
    confirmed.forget(SEVEN)
    assert -1 == confirmed.get(SEVEN)
