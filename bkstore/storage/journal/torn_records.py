"""Torn journal records: which of those with a blank sector are not to be replayed.

A journal has no checksums. Where a power loss took the last sectors of a record that was not
synced yet, they read as zeros (`blank_sectors`), and the record looks whole: upstream replays it,
under whatever ids are left of it, over an entry that was acknowledged long ago. Entries with a CRC
can be checked without a password, though; where that does not help, what is there already stays.
"""

from __future__ import annotations

from collections.abc import Callable

from bkstore.errors import BkstoreError, CorruptionError, SystemRefused
from bkstore.formats.entry import decode, decode_explicit_lac
from bkstore.formats.journal import JournalRecord
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage

_KEYLESS = ("CRC32C", "CRC32")
_FEWEST = 4  # zero bytes at the end of a key: 2^-32 for a whole one


def why_torn(record: JournalRecord, storage: LedgerStorage) -> str | None:
    """Return why a record with an unwritten sector is not to be replayed, None if it is.

    An entry whose CRC fits is whole. One whose does not is torn if its ledger's last entry has
    a CRC; else (HMAC, no digest) it must not replace what is there.
    """
    if record.kind == "master_key":
        key = record.body
        return "key" if key and not any(key[-_FEWEST:]) else None
    if record.kind not in ("add", "explicit_lac") or has_crc(record):
        return None
    if _ledger_has_crcs(storage, record.ledger):
        return "digest"
    if record.kind == "add" and _is_there(storage, record):
        return "entry that is there"
    return None


def has_crc(record: JournalRecord) -> bool:
    """Return whether an entry or explicit LAC has a CRC that fits: it is whole then."""
    if record.kind == "add":
        return any(_fits(decode, record.body, digest) for digest in _KEYLESS)
    return any(_fits(decode_explicit_lac, record.body, digest) for digest in _KEYLESS)


def _fits(check: Callable[[bytes, str, str], object], body: bytes, digest: str) -> bool:
    try:
        check(body, digest, "")
    except CorruptionError:
        return False
    return True


def _ledger_has_crcs(storage: LedgerStorage, ledger: LedgerId) -> bool:
    try:
        last = storage.read_entry(ledger)
    except SystemRefused:
        raise
    except BkstoreError:  # unknown, empty, unreadable: it says nothing
        return False
    return any(_fits(decode, last, digest) for digest in _KEYLESS)


def _is_there(storage: LedgerStorage, record: JournalRecord) -> bool:
    return bool(storage.entries(record.ledger, record.entry_id, record.entry_id).size)
