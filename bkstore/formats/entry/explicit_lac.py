"""The body of an explicit LAC: ledger, LAC, digest; in version 2, for scopes, the scope too.
Persisted format: `docs/formats/entry.md`. Source: `proto/checksum/DigestManager`."""

from __future__ import annotations

import struct

from bkstore.arguments import bytes_like
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.digest import new_digest
from bkstore.formats.entry.header import FLAGS_V2, NO_ENTRY, digest_number, is_v2, scoped_id
from bkstore.ids import MAX_ENTRY_ID, LedgerId, check_integer

MIN_EXPLICIT_LAC_BYTES = 16  # DigestManager.LAC_METADATA_LENGTH: ledger and LAC, before the digest
_STRUCT_V1 = struct.Struct(">qq")
_STRUCT_V2 = struct.Struct(">Bqqq")


def encode_explicit_lac(
    ledger: int | LedgerId, lac: int, digest_type: str | int, password: bytes | str | None = None
) -> bytes:
    """Return the body of an explicit LAC, a last add confirmed that is sent without an entry:
    ledger, LAC and a digest of both. In a scope other than 0, flags and scope are before them.

    >>> encode_explicit_lac(1, 4, "DUMMY").hex()
    '00000000000000010000000000000004'
    """
    ledger_id, digest = LedgerId.of(ledger), new_digest(digest_type, password)
    lac = check_integer(lac, "explicit LAC")
    if not NO_ENTRY <= lac <= MAX_ENTRY_ID:
        raise InvalidArgument(f"explicit LAC {lac} is outside -1..{MAX_ENTRY_ID}")
    if ledger_id.scope == 0:
        header = _STRUCT_V1.pack(ledger_id.ledger, lac)
    else:
        header = _STRUCT_V2.pack(FLAGS_V2 | digest.number, *ledger_id.signed, lac)
    return header + digest.compute(header, b"")


def decode_explicit_lac(
    body: bytes, digest_type: str | int | None = None, password: bytes | str | None = None
) -> tuple[LedgerId, int]:
    """Return (ledger, LAC) of the body of an explicit LAC, a last add confirmed that is sent
    without an entry. Its digest is verified if a digest type is given. Raises `CorruptionError` if
    it is too short or does not verify."""
    body = bytes_like("explicit LAC", body)
    version_2 = is_v2(body)
    layout = _STRUCT_V2 if version_2 else _STRUCT_V1
    if len(body) < layout.size:
        raise CorruptionError(None, 0, f"explicit LAC of {len(body)} bytes, {layout.size} needed")
    if version_2:
        flags, scope, ledger, lac = layout.unpack_from(body)
        ledger_id = scoped_id(scope, ledger)
        digest_number(flags)  # raises if the flags have none
    else:
        ledger, lac = layout.unpack_from(body)
        ledger_id = LedgerId.of(ledger)
    if digest_type is not None:
        digest, header = new_digest(digest_type, password), body[: layout.size]
        if digest.compute(header, b"") != body[layout.size :]:
            reason = f"{digest.name} digest of the explicit LAC does not match"
            raise CorruptionError(None, layout.size, reason)
    return ledger_id, int(lac)


def explicit_lac_or_none(body: bytes) -> int | None:
    """Return the LAC in an explicit LAC body, None if the body is invalid. The digest is not
    verified. -1 means that no entry is confirmed.

    >>> explicit_lac_or_none(encode_explicit_lac(1, 4, "DUMMY")), explicit_lac_or_none(b"short")
    (4, None)
    """
    body = bytes_like("explicit LAC", body)
    try:
        return decode_explicit_lac(body)[1]
    except (CorruptionError, InvalidArgument):
        return None
