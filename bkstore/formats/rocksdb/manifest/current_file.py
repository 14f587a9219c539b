"""CURRENT, which names the manifest that counts, and IDENTITY: files of one line.

    CURRENT     MANIFEST-<decimal number>, a line feed
    IDENTITY    the database's identity, often a UUID; a line feed may follow

Source: `file/filename.cc` of RocksDB, `SetCurrentFile`.
"""

from __future__ import annotations

from bkstore.errors import CorruptionError

_PREFIX = "MANIFEST-"


def decode_current(content: bytes) -> str:
    """Return the name of the manifest (the list of live table files) in the bytes of the file
    CURRENT. Raises `CorruptionError` if these are not such a name and a line end.

    >>> decode_current(b"MANIFEST-000005\\n")
    'MANIFEST-000005'
    """
    manifest_name = content.decode("ascii", "replace").removesuffix("\n")
    digits = manifest_name.removeprefix(_PREFIX)
    if not (content.endswith(b"\n") and digits != manifest_name and digits.isdecimal()):
        raise CorruptionError(None, 0, f"does not name a manifest: {manifest_name[:40]!r}")
    return manifest_name


def encode_current(manifest_number: int) -> bytes:
    """Return the bytes of CURRENT.

    >>> encode_current(5)
    b'MANIFEST-000005\\n'
    """
    return f"{_PREFIX}{manifest_number:06d}\n".encode()


def decode_identity(content: bytes) -> str:
    """Return the database's identity.

    >>> decode_identity(b"97558db4-19f7-4c4a-8dcf-09057f5c9437")
    '97558db4-19f7-4c4a-8dcf-09057f5c9437'
    """
    return content.decode("utf-8", "replace").rstrip("\n")
