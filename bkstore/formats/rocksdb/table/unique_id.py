"""The unique id of a table file, by which a MANIFEST knows it: made of the database and session
that wrote the file and of the number it had then. Source: `GetSstInternalUniqueId` of
`table/unique_id.cc`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import xxhash

from bkstore.formats.rocksdb.coding import read_varint

_DATABASE = "rocksdb.creating.db.identity"
_SESSION = "rocksdb.creating.session.identity"
_NUMBER = "rocksdb.original.file.number"
_WELL_FORMED = re.compile(rb"[0-9A-Za-z]{13,24}")
_LOW_DIGITS = 12
_MASK = (1 << 64) - 1
_LOW_BITS = 62


def make_unique_id(properties: Mapping[str, bytes]) -> bytes:
    """Return the unique id of the table file with these properties, as the manifest has it: two
    u64, little-endian, made of the session that wrote the file, the database, and the file's
    number. Properties that are missing count as empty, or as 0.

    >>> session = {"rocksdb.creating.session.identity": b"0" * 19 + b"7"}
    >>> make_unique_id(session)[:8].hex()
    '0700000000000000'
    """
    upper, lower = _split_session(properties.get(_SESSION, b""))
    database = properties.get(_DATABASE, b"")
    number = read_varint(properties[_NUMBER], 0)[0] if _NUMBER in properties else 0
    hashed = xxhash.xxh3_128_intdigest(database, seed=upper) >> 64
    return lower.to_bytes(8, "little") + (hashed ^ number).to_bytes(8, "little")


def _split_session(session: bytes) -> tuple[int, int]:
    """Return (upper, lower): the bits above the lower 64, and these 64, of the number that the name
    of a session encodes in base 36. A name that is not of that form is hashed instead."""
    if not _WELL_FORMED.fullmatch(session):
        digest = xxhash.xxh3_128_intdigest(session)
        upper, lower = digest >> 64, digest & _MASK
        return upper, lower or upper | 1
    # The last 12 digits are the low 62 bits; the digits before them are the bits above those.
    high = int(session[:-_LOW_DIGITS], 36) & _MASK
    low = int(session[-_LOW_DIGITS:], 36)
    return high >> 2, low & (1 << _LOW_BITS) - 1 | high << _LOW_BITS & _MASK
