"""Ledger metadata as JSON, with the members that upstream's answers have, in their order.

Upstream lets Jackson print its `LedgerMetadataImpl`, the password among the rest. Here a password
is left out, unless the answers are to be upstream's.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from bkstore.formats.metadata import serialized
from bkstore.ledger_metadata import LedgerMetadata


def decoded(metadata: LedgerMetadata, *, secrets: bool = False) -> dict[str, Any]:
    """Return the members of `LedgerMetadataImpl`; `password` is null without `secrets`.

    `ledgerScopeId`, which upstream does not have, is there for scopes other than 0.
    """
    digest = "MAC" if metadata.digest_type == "HMAC" else metadata.digest_type
    custom = {key: _base64(value) for key, value in metadata.custom_metadata.items()}
    ensembles = {
        str(part.first_entry): [{"id": bookie} for bookie in part.ensemble]
        for part in metadata.segments
    }
    scope = {"ledgerScopeId": metadata.scope_id} if metadata.scope_id else {}
    return {
        "ledgerId": metadata.ledger_id,
        **scope,
        "metadataFormatVersion": metadata.version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum_size,
        "ackQuorumSize": metadata.ack_quorum_size,
        "state": metadata.state,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "ctime": metadata.ctime,
        "digestType": digest,
        "password": _base64(metadata.password or b"") if secrets else None,
        "customMetadata": custom,
        "allEnsembles": ensembles,
        "closed": metadata.closed,
        "ctoken": metadata.c_token,
    }


def as_text(metadata: LedgerMetadata, *, secrets: bool = False) -> str:
    """Return the serialized metadata read as UTF-8, as upstream lists it undecoded.

    Bytes of version 3 are no text: what is none is U+FFFD. The password is empty without
    `secrets`.
    """
    if metadata.password is not None and not secrets:
        metadata = replace(metadata, password=b"")
    return serialized.encode(metadata).decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
