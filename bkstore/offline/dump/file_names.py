"""The names of a dump's files: a bookie id as a name that every system and reader accepts."""

from __future__ import annotations

import hashlib

_MAX_NAME_BYTES = 128
"""Most bytes of a bookie id in a file name, which has some 40 more; systems allow 255."""


def file_name(bookie_id: str) -> str:
    """Return the bookie id as used in file names. Readers skip names that begin with ``_`` or
    ``.``, so ``b`` is put first, and systems refuse long ones, so a digest replaces a long end.

    >>> file_name("host:3181"), file_name("_x"), file_name("x" * 300)[-20:]
    ('host_3181', 'b_x', 'xxx-0d4e2ca9e9cbced7')
    """
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in bookie_id)
    name = name if name[:1].isalnum() else f"b{name}"
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    # The digest and the hyphen before it take 17 bytes.
    digest = hashlib.sha256(bookie_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name.encode()[: _MAX_NAME_BYTES - 17].decode(errors='ignore')}-{digest}"


def dump_file_path(table: str, bookie_id: str, number: int) -> str:
    """Return the path of a table's file below the dump."""
    return f"{table}/{file_name(bookie_id)}-{number:05d}.parquet"
