"""The printable form of ledger metadata, as bookie shell shows it."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from bkstore.ledger_metadata.fields import MetadataFields


def safe_string(metadata: MetadataFields) -> str:
    """Return the printable form without the password (`LedgerMetadataImpl.toSafeString`)."""
    shown: list[tuple[str, object]] = [
        ("formatVersion", metadata.version),
        ("ensembleSize", metadata.ensemble_size),
        ("writeQuorumSize", metadata.write_quorum_size),
        ("ackQuorumSize", metadata.ack_quorum_size),
        ("state", metadata.state),
    ]
    if metadata.closed:
        shown += [("length", metadata.length), ("lastEntryId", metadata.last_entry_id)]
    if metadata.password is not None:
        name = "MAC" if metadata.digest_type == "HMAC" else metadata.digest_type
        shown += [("digestType", name), ("password", "OMITTED")]
    parts = (f"{part.first_entry}=[{', '.join(part.ensemble)}]" for part in metadata.segments)
    custom = (
        f"{key}=base64:{base64.b64encode(metadata.custom_metadata[key]).decode('ascii')}"
        for key in _java_order(metadata.custom_metadata)
    )
    shown += [("ensembles", f"{{{', '.join(parts)}}}")]
    shown += [("customMetadata", f"{{{', '.join(custom)}}}")]
    return f"LedgerMetadata{{{', '.join(f'{name}={value}' for name, value in shown)}}}"


def _java_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the order in which a Java HashMap filled with them is walked."""
    given = list(keys)
    buckets = 16
    while len(given) > buckets * 3 // 4:
        buckets *= 2
    return sorted(given, key=lambda key: _spread_hash(key) % buckets)


def _spread_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return value ^ value >> 16
