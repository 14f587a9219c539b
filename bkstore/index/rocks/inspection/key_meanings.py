"""Keys of a bookie's databases as ledgers and entries: `docs/formats/rocksdb.md`."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.formats.ledgerdata import FLAGS_KEY
from bkstore.ids import MAX_ENTRY_ID, LedgerId

_LOCATIONS, _LEDGERS = "locations", "ledgers"
_WIDTHS = {_LOCATIONS: (16,), "locations-128": (24,), _LEDGERS: (8, 16), "ledgers-128": (16,)}


class KeyMeaning(NamedTuple):
    """The ledger of a key, and the entry in a `locations` database; None for what it has not."""

    ledger: LedgerId | None = None
    entry_id: int | None = None


def decode_key(database_name: str, key: bytes) -> KeyMeaning:
    """Return the ledger and the entry that a key stands for in the database of that name. Both are
    None for a key of another width, for the key of the storage flags, and in a database that is not
    a bookie's; in `ledgers` the entry is always None.

    >>> decode_key("locations", bytes.fromhex("0000000000001234 0000000000000003"))
    KeyMeaning(ledger=LedgerId(scope=0, ledger=4660), entry_id=3)
    """
    if len(key) not in _WIDTHS.get(database_name, ()):
        return KeyMeaning()
    first, second = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:16], "big")
    # In scope 0 ids are signed: a negative one (its highest bit is set) is no ledger's.
    if database_name == _LEDGERS:
        # The tool that rebuilds this database appends eight zeros to the ledger.
        is_ledger = first >> 63 == 0 and second == 0
        return KeyMeaning(LedgerId(0, first)) if is_ledger else KeyMeaning()
    if database_name == "ledgers-128":
        return KeyMeaning(LedgerId(first, second)) if first else KeyMeaning()
    entry_id = int.from_bytes(key[-8:], "big", signed=True)
    if database_name == _LOCATIONS:
        return KeyMeaning(LedgerId(0, first), entry_id) if first >> 63 == 0 else KeyMeaning()
    return KeyMeaning(LedgerId(first, second), entry_id) if first else KeyMeaning()


def describe_key(database_name: str, key: bytes) -> str:
    """Return a key as text: ``ledger``, ``ledger/entry``, "flags", or its bytes in hex. The entry
    after the last possible one, at which deletes of ledgers end, is "end".

    >>> describe_key("locations", bytes.fromhex("0000000000001234 0000000000000003"))
    '4660/3'
    >>> describe_key("locations", bytes.fromhex("0000000000001234 7fffffffffffffff"))
    '4660/end'
    >>> describe_key("ledgers", FLAGS_KEY), describe_key("ledgers", b"ab")
    ('flags', '0x6162')
    """
    ledger_id, entry_id = decode_key(database_name, key)
    if ledger_id is not None:
        entry = "" if entry_id is None else f"/{'end' if entry_id > MAX_ENTRY_ID else entry_id}"
        return f"{ledger_id}{entry}"
    if database_name == _LEDGERS and key == FLAGS_KEY:
        return "flags"
    return f"0x{key.hex()}"
