"""Digests of entries and explicit LACs: CRC32, HMAC, CRC32C and DUMMY. Each covers the fixed header
and the payload. Numbers are those of ledger metadata (`DigestType`). Source:
`proto/checksum/DigestManager` and subclasses. Worked examples: `docs/formats/entry.md`."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable
from typing import Literal, NamedTuple

from bkstore.arguments import describe_value, password as check_password
from bkstore.errors import InvalidArgument

DigestType = Literal["CRC32", "HMAC", "MAC", "CRC32C", "DUMMY"]
"""Names as in ledger metadata; the client's API calls HMAC "MAC"."""

DIGEST_NUMBERS = {"CRC32": 1, "HMAC": 2, "CRC32C": 3, "DUMMY": 4}
DIGEST_SIZES = {"CRC32": 8, "HMAC": 20, "CRC32C": 4, "DUMMY": 0}
MASTER_KEY_SIZE = 20

_NAME_OF_NUMBER = {number: name for name, number in DIGEST_NUMBERS.items()}


class Digest(NamedTuple):
    """A digest type: name, number, size; `compute(header, payload)` returns the stored bytes."""

    name: str
    number: int
    size: int
    compute: Callable[[bytes, bytes], bytes]


def master_key(password: bytes | str) -> bytes:
    """Return the 20-byte master key of a password, the same for every digest type.

    >>> master_key("").hex()
    '850bf1071c5e3d8c24235676f8816ae0cbe2f14f'
    """
    key = b"ledger" + check_password("password", password)
    return hashlib.sha1(key, usedforsecurity=False).digest()


def digest_name(digest: str | int) -> str:
    """Return the metadata name of a digest type, given by name (or "MAC") or by number."""
    is_number = isinstance(digest, int) and not isinstance(digest, bool)
    name = _NAME_OF_NUMBER.get(digest) if is_number else str(digest).upper()  # type: ignore[arg-type]
    name = "HMAC" if name == "MAC" else name
    if name not in DIGEST_NUMBERS:
        known_names = ", ".join(DIGEST_NUMBERS)
        raise InvalidArgument(f"digest type {describe_value(digest)} is not one of {known_names}")
    return name


def new_digest(digest: str | int, password: bytes | str | None = None) -> Digest:
    """Return a digest by name or number; HMAC needs the password (`InvalidArgument`).

    >>> new_digest("CRC32C").compute(b"1234", b"56789").hex()
    'e3069283'
    """
    name = digest_name(digest)
    key = None if password is None else check_password("password", password)
    if name == "HMAC":
        if key is None:
            raise InvalidArgument("an HMAC digest needs the ledger's password")
        digest_function = _hmac(key)
    else:
        digest_function = {"CRC32": _crc32, "CRC32C": _crc32c(), "DUMMY": lambda *_: b""}[name]
    return Digest(name, DIGEST_NUMBERS[name], DIGEST_SIZES[name], digest_function)


def _crc32(header: bytes, payload: bytes) -> bytes:
    return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8, "big")


def _crc32c() -> Callable[[bytes, bytes], bytes]:
    """Return the function that computes a CRC32C digest; loads the library."""
    from google_crc32c import extend  # `import bkstore` loads nothing but numpy

    def compute(header: bytes, payload: bytes) -> bytes:
        crc: int = extend(extend(0, header), payload)
        return crc.to_bytes(4, "big")

    return compute


def _hmac(password: bytes) -> Callable[[bytes, bytes], bytes]:
    key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()

    return lambda header, payload: hmac.digest(key, header + payload, "sha1")
