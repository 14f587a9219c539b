"""Contradictions in the state of a ledger that can otherwise be read. An index file's header, a row
of `ledgers` and special records of a journal store the same fields: the master key, and the
explicit LAC as a client sent it. A bookie does not check them. Sources:
`proto/checksum/DigestManager`, `proto/checksum/MacDigestManager`."""

from __future__ import annotations

from collections.abc import Iterator

from bkstore.errors import CorruptionError
from bkstore.formats.entry import NO_ENTRY, decode_explicit_lac, is_v2
from bkstore.formats.entry.digest import DIGEST_SIZES, MASTER_KEY_SIZE
from bkstore.ids import MAX_ENTRY_ID, LedgerId

_LAC_V1_BYTES, _LAC_V2_BYTES = 16, 25


def state_oddities(ledger: LedgerId, key: bytes, explicit_lac: bytes | None) -> Iterator[str]:
    """Yield a description of each oddity in a ledger's master key and explicit LAC.

    >>> list(state_oddities(LedgerId.of(7), bytes(20), bytes(7) + b"\\x08" + bytes(8)))
    ['the explicit LAC is of ledger 8, not of ledger 7']
    """
    if oddity := master_key_oddity(key):
        yield oddity
    if explicit_lac is not None and (oddity := explicit_lac_oddity(ledger, explicit_lac)):
        yield oddity


def master_key_oddity(key: bytes) -> str | None:
    """Return what is odd about a master key, or None; only one of more than 20 bytes (SHA-1) is."""
    if len(key) <= MASTER_KEY_SIZE:
        return None
    return f"master key of {len(key)} bytes: clients use {MASTER_KEY_SIZE}"


def explicit_lac_oddity(ledger: LedgerId, body: bytes) -> str | None:
    """Return what is odd about a ledger's explicit LAC (a last add confirmed sent without an
    entry), None if nothing is. The digest is not verified, as that takes the ledger's password."""
    try:
        lac_ledger, lac = decode_explicit_lac(body)
    except CorruptionError as error:
        return f"the explicit LAC cannot be read: {error.reason}"
    if lac_ledger != ledger:
        return f"the explicit LAC is of ledger {lac_ledger}, not of ledger {ledger}"
    if not NO_ENTRY <= lac <= MAX_ENTRY_ID:
        return f"the explicit LAC is {lac}, outside -1..{MAX_ENTRY_ID}"
    digest_size = len(body) - (_LAC_V2_BYTES if is_v2(body) else _LAC_V1_BYTES)
    if digest_size not in DIGEST_SIZES.values():
        return f"the explicit LAC has {digest_size} bytes of digest, which fits no digest type"
    return None
