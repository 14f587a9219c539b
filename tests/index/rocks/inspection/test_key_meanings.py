"""Keys as ledgers and entries, by `docs/formats/rocksdb.md`."""

from __future__ import annotations

import pytest

from bkstore import LedgerId
from bkstore.index.rocks.inspection.key_meanings import decode_key, describe_key

SCOPED = LedgerId.parse("550e8400-e29b-41d4-a716-446655440000")
HALVES = "550e8400e29b41d4 a716446655440000"


@pytest.mark.parametrize(
    ("database", "key", "meaning", "text"),
    [
        ("locations", "0000000000001234 0000000000000003", (LedgerId(0, 4660), 3), "4660/3"),
        (
            "locations",
            "7fffffffffffffff 0000000000000000",
            (LedgerId(0, 2**63 - 1), 0),
            f"{2**63 - 1}/0",
        ),
        ("locations", "0000000000000000 7fffffffffffffff", (LedgerId(0, 0), 2**63 - 1), "0/end"),
        (
            "locations",
            "0000000000000000 7ffffffffffffffe",
            (LedgerId(0, 0), 2**63 - 2),
            f"0/{2**63 - 2}",
        ),
        ("locations-128", f"{HALVES} 0000000000000003", (SCOPED, 3), f"{SCOPED}/3"),
        ("ledgers", "0000000000001234", (LedgerId(0, 4660), None), "4660"),
        ("ledgers", "0000000000001234 0000000000000000", (LedgerId(0, 4660), None), "4660"),
        ("ledgers-128", HALVES, (SCOPED, None), str(SCOPED)),
        ("ledgers", "ffffffffffff1103", (None, None), "flags"),
        # No ledgers: another width, negative ids, scope 0 in the other database.
        ("ledgers", "fffffffffffffffe", (None, None), "0xfffffffffffffffe"),
        (
            "ledgers",
            "0000000000000001 0000000000000001",
            (None, None),
            "0x" + "0" * 15 + "1" + "0" * 15 + "1",
        ),
        (
            "locations",
            "8000000000000000 0000000000000003",
            (None, None),
            "0x8000000000000000" + "0" * 15 + "3",
        ),
        ("locations", "00", (None, None), "0x00"),
        ("locations-128", "00" * 24, (None, None), "0x" + "00" * 24),
        ("ledgers-128", "00" * 16, (None, None), "0x" + "00" * 16),
        ("other", "00" * 16, (None, None), "0x" + "00" * 16),
        ("locations", "", (None, None), "0x"),
    ],
)
def test_keys(database: str, key: str, meaning: object, text: str) -> None:
    """The width and the database decide what a key is; what is no ledger's is shown in hex."""
    data = bytes.fromhex(key)

    assert meaning == decode_key(database, data)
    assert text == describe_key(database, data)
