"""What journals say of ledgers, before the last mark and behind it.

A bookie moves its mark when its storage has all before it: docs/formats/journal.md.
"""

from __future__ import annotations

from bkstore.formats.journal import JournalRecord, RecordKind
from bkstore.ids import LedgerId
from bkstore.offline.check.journals import JournalFacts

LEDGER = LedgerId(5, 7)


def _facts(*records: tuple[RecordKind, bytes, bool]) -> JournalFacts:
    facts = JournalFacts()
    for kind, body, before in records:
        facts.add(JournalRecord(kind, LEDGER, -1, body), before)
    return facts


def test_explicit_lacs() -> None:
    """The index has the last explicit LAC before the mark, or one behind it; where there is none
    before the mark it need not have any."""
    a, b = ("explicit_lac", b"a", True), ("explicit_lac", b"b", True)
    c, d = ("explicit_lac", b"c", False), ("explicit_lac", b"d", False)
    cases: list[tuple[list[tuple[RecordKind, bytes, bool]], list[bytes]]] = [
        ([a], [b"a"]),
        ([a, b], [b"b"]),
        ([a, b, c, d], [b"b", b"c", b"d"]),
        ([c, d], []),
        ([("fence", b"", True)], []),
    ]  # type: ignore[list-item]
    for records, expected in cases:
        assert expected == _facts(*records).expected_lacs(LEDGER)


def test_fences_and_keys() -> None:
    """A fence or a key behind the mark need not be in the index; those before it must be, the
    last key of several."""
    told = _facts(("fence", b"", False), ("master_key", b"k", False)).ledgers[LEDGER]

    assert (None, False) == (told.master_key, told.fenced)
    told = _facts(
        ("master_key", b"k", True), ("fence", b"", True), ("master_key", b"l", True)
    ).ledgers[LEDGER]

    assert (b"l", True) == (told.master_key, told.fenced)


def test_entries_on_both_sides_of_the_mark() -> None:
    """Entries before the mark must be here; those behind it a replay brings, as ranges."""
    facts = JournalFacts()
    for entry, before in ((3, True), (1, True), (4, False), (9, False), (5, False), (4, False)):
        facts.add(JournalRecord("add", LEDGER, entry, b""), before)
    facts.add(JournalRecord("add", LedgerId.of(8), 0, b""), True)
    facts.add(JournalRecord("unknown", LedgerId.of(8), -77, b""), False)

    assert [1, 3] == facts.ledgers[LEDGER].flushed.all().entries().tolist()
    assert [LEDGER] == list(facts.replayed_ranges())
    assert [[4, 5], [9, 9]] == facts.replayed_ranges()[LEDGER].tolist()
