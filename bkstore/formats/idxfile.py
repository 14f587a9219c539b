"""Index files (.idx) of interleaved and sorted storage: `docs/formats/idxfile.md`.

    offset      type    field
    0           u8[4]   "BKLE"
    4           i32     header version: 0, or 1 (with explicit LAC)
    8           i32     length m of the master key, normally 20
    12          u8[m]   master key
    12+m        i32     state bits; bit 0 = fenced, others kept as read
    16+m        i32     length n of the explicit LAC body, 0 = none (version 1 only)
    20+m        u8[n]   explicit LAC body: ledger, LAC, digest (version 1 only)
    ...         u8      zero up to 1024
    1024+8*E    i64     location of entry E, 0 = absent

Big-endian throughout. Persisted format: do not renumber. Sources: `bookie/FileInfo`,
`bookie/IndexPersistenceMgr.getLedgerName`, `bookie/LedgerEntryPage`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from bkstore.arguments import check_compat, integer
from bkstore.availability import Compat
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.formats.entry.digest import MASTER_KEY_SIZE
from bkstore.formats.entry.explicit_lac import MIN_EXPLICIT_LAC_BYTES
from bkstore.formats.state_checks import explicit_lac_oddity, master_key_oddity
from bkstore.ids import LedgerId

HEADER_SIZE = 1024
HEADER_FIELD_BYTES = 20
"""Bytes of a version 1 header besides master key and explicit LAC."""

SLOT_SIZE = 8
DEFAULT_PAGE_SIZE = 8192
_SIGNATURE, _KEY_OFFSET = b"BKLE", 8  # the master key's length is before it
VERSION_0 = 0
VERSION_1 = 1
FENCED_BIT = 0x1

check_header_version = integer(VERSION_0, VERSION_1)
check_page_size = integer(SLOT_SIZE, 1 << 30, SLOT_SIZE)
"""A page has whole slots; BookKeeper's size is an int."""

_HEX = re.compile(r"0|[1-9a-f][0-9a-f]{0,15}")
_EIGHT_DIGITS = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class IdxHeader:
    """The header of one index file. `state_bits` keeps every bit as read; `fenced` is bit 0.
    `explicit_lac` is the whole body (ledger, LAC, digest), None when there is none."""

    master_key: bytes = field(default=b"", repr=False)
    state_bits: int = 0
    explicit_lac: bytes | None = None
    version: int = VERSION_1

    @property
    def fenced(self) -> bool:
        """Whether the ledger is fenced."""
        return bool(self.state_bits & FENCED_BIT)


def encode_header(header: IdxHeader) -> bytes:
    """Return the 1024-byte header block. Raises `UnsupportedLayout` for an explicit LAC in version
    0 (it has no field for one) and `InvalidArgument` if the fields do not fit.

    >>> decode_header(encode_header(IdxHeader(b"k" * 20, 1))).fenced
    True
    """
    lac = header.explicit_lac or b""
    if header.version not in (VERSION_0, VERSION_1):
        raise InvalidArgument(f"index header version {header.version}: 0 or 1")
    if lac and header.version == VERSION_0:
        raise UnsupportedLayout("index header version 0 has no field for an explicit LAC")
    if lac and len(lac) < MIN_EXPLICIT_LAC_BYTES:
        raise InvalidArgument(f"explicit LAC body of {len(lac)} bytes: at least 16 are needed")
    key = header.master_key
    data = _SIGNATURE + struct.pack(">ii", header.version, len(key)) + key
    data += struct.pack(">I", header.state_bits & 0xFFFFFFFF)
    if header.version == VERSION_1:
        data += struct.pack(">i", len(lac)) + lac
    if len(data) > HEADER_SIZE:
        needed = f"master key and explicit LAC need {len(data)} bytes"
        raise InvalidArgument(f"{needed}, the header has {HEADER_SIZE}")
    return data.ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes | memoryview, compat: Compat | None = None) -> IdxHeader:
    """Return the header in the first bytes of an index file. Raises `CorruptionError` with the
    offset of the field at fault: a version above 1, a length that is negative or too large; a
    negative version, which ``compat="bookkeeper"`` reads as 0."""
    if compat is not None:
        check_compat("compat", compat)
    view = memoryview(data)[:HEADER_SIZE]
    if len(view) < HEADER_SIZE:
        reason = f"index file header needs {HEADER_SIZE} bytes, {len(view)} are there"
        raise CorruptionError(None, len(view), reason)
    # Signature, version, then fields of any length, each where the one before it ends.
    if bytes(view[:4]) != _SIGNATURE:
        raise CorruptionError(None, 0, f"signature is {bytes(view[:4]).hex()}, not 'BKLE'")
    version = _int32(view, 4)
    if version > VERSION_1 or (version < 0 and compat is None):
        raise CorruptionError(None, 4, f"index header version {version} is not 0 or 1")
    key, bits_offset = _read_sized_field(view, _KEY_OFFSET, "master key")
    if bits_offset + 4 > HEADER_SIZE:
        raise CorruptionError(None, bits_offset, "state bits run past the header")
    bits = int.from_bytes(view[bits_offset : bits_offset + 4], "big")
    if version < VERSION_1:
        return IdxHeader(key, bits, None, VERSION_0)
    lac, _ = _read_sized_field(view, bits_offset + 4, "explicit LAC")
    if 0 < len(lac) < MIN_EXPLICIT_LAC_BYTES:
        reason = f"explicit LAC length {len(lac)} is less than {MIN_EXPLICIT_LAC_BYTES}"
        raise CorruptionError(None, bits_offset + 4, reason)
    return IdxHeader(key, bits, lac or None, VERSION_1)


def header_oddities(
    data: bytes | memoryview, header: IdxHeader, ledger: LedgerId
) -> Iterator[tuple[int, str]]:
    """Yield (offset, description) of each oddity of a header, which a bookie accepts silently:
    unknown state bits, bytes after the fields, a master key or an explicit LAC that cannot be this
    ledger's. `header` is the decoded form of `data`."""
    bits_offset = _KEY_OFFSET + 4 + len(header.master_key)
    fields_end = bits_offset + 4
    if header.version == VERSION_1:
        fields_end += 4 + len(header.explicit_lac or b"")
    key_oddity = master_key_oddity(header.master_key)
    if key_oddity is not None:
        yield _KEY_OFFSET, key_oddity
    # A key that is too short may have a wrong length field, which moves all fields behind it.
    hint = ""
    if 0 < len(header.master_key) < MASTER_KEY_SIZE:
        hint = f"; is the master key truncated, its length says {len(header.master_key)}?"
    if header.state_bits & ~FENCED_BIT:
        known = f"only {FENCED_BIT:#x} is defined{hint}"
        yield bits_offset, f"unknown state bits {header.state_bits:#x}: {known}"
    lac_oddity = header.explicit_lac and explicit_lac_oddity(ledger, header.explicit_lac)
    if lac_oddity:
        yield bits_offset + 8, lac_oddity  # behind the state bits and the length
    trailing = bytes(memoryview(data)[fields_end:HEADER_SIZE]).lstrip(b"\0")
    if trailing:
        yield HEADER_SIZE - len(trailing), f"nonzero bytes after {_last_field(header)}{hint}"


def _last_field(header: IdxHeader) -> str:
    if header.version == VERSION_0:
        return "the state bits, the last field of version 0"
    return "an explicit LAC of length zero" if header.explicit_lac is None else "the explicit LAC"


def _int32(view: memoryview, offset: int) -> int:
    return int.from_bytes(view[offset : offset + 4], "big", signed=True)


def _read_sized_field(view: memoryview, offset: int, field_name: str) -> tuple[bytes, int]:
    """Return a field of variable size, and the offset after it. At `offset` is its length, an i32;
    the bytes follow. Raises `CorruptionError` if it does not fit the header."""
    if offset + 4 > len(view):
        raise CorruptionError(None, offset, f"{field_name} length runs past the header")
    length = _int32(view, offset)
    if length < 0:
        raise CorruptionError(None, offset, f"{field_name} length {length} is negative")
    if offset + 4 + length > len(view):
        reason = f"{field_name} length {length} runs past the {HEADER_SIZE}-byte header"
        raise CorruptionError(None, offset, reason)
    return bytes(view[offset + 4 : offset + 4 + length]), offset + 4 + length


def index_path(ledger: LedgerId) -> str:
    """Return the path of a ledger's index file below ``current/``. In scope 0 it is BookKeeper's:
    bits 8-15 and 0-7 of the id, then the whole id, in hex without padding. Other scopes, which
    BookKeeper does not have, use four levels of 8 padded digits (`docs/formats/idxfile.md`).

    >>> index_path(LedgerId(ledger=0x1234)), index_path(LedgerId(1, 0x1234))
    ('12/34/1234.idx', '00000000/00000001/00000000/00001234.idx')
    """
    number = ledger.ledger
    if ledger.scope == 0:
        return f"{number >> 8 & 0xFF:x}/{number & 0xFF:x}/{number:x}.idx"
    hex_digits = ledger.qualified_name
    return f"{hex_digits[:8]}/{hex_digits[8:16]}/{hex_digits[16:24]}/{hex_digits[24:]}.idx"


def parse_index_path(parts: tuple[str, ...]) -> LedgerId | None:
    """Return the ledger whose index file is at the path `parts` below ``current/``. It may end in
    .idx, or in .idx.rloc as a copy that a bookie makes while it moves the file. None for other
    names, and for a file in another directory than the one in which a bookie looks for it."""
    # Scope 0: two folders and a file named by the id. Others: four parts of eight hex digits each,
    # the scope in the first two, the ledger in the last two.
    stem = parts[-1].removesuffix(".rloc").removesuffix(".idx")
    if len(parts) == 3 and _HEX.fullmatch(stem) and int(stem, 16) < 2**63:
        ledger = LedgerId(0, int(stem, 16))
    elif len(parts) == 4 and all(_EIGHT_DIGITS.fullmatch(part) for part in (*parts[:3], stem)):
        scope = int(parts[0] + parts[1], 16)
        if scope == 0:
            return None
        ledger = LedgerId(scope, int(parts[2] + stem, 16))
    else:
        return None
    is_canonical = index_path(ledger).split("/")[:-1] == list(parts[:-1])
    return ledger if is_canonical else None
