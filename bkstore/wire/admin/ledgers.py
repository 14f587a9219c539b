"""`ledger/list` and `ledger/metadata`: from a metadata store, else from what the bookie holds.

Upstream: `ListLedgerService`, `GetLedgerMetaService`. Which of the two has answered stands in the
header `X-Bkstore-Source`. Metadata have the members that upstream's answers have, in their order;
Jackson prints its `LedgerMetadataImpl`, the password among the rest. Here a password is left out,
unless the answers are to be upstream's.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import NoSuchLedger
from bkstore.formats.entry import explicit_lac_entry
from bkstore.formats.metadata import serialized
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin import parameters
from bkstore.wire.admin.messages import Answer, Request, json_answer, members

PAGE = 100
"""Ledgers of a page of metadata."""

SOURCE = "X-Bkstore-Source"


class LedgerEndpoints:
    """Lists ledgers and shows their metadata. Threads: as its bookie and store."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore | None, compat: bool) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._compat = compat
        self._headers = {SOURCE: "bookie" if metadata is None else "metadata-store"}

    def listed(self, request: Request) -> Answer:
        """Answer with id -> null, or id -> metadata with ``print_metadata=true``."""
        scope = parameters.scope(request)
        page = parameters.page(request)
        shows = request.parameters.get("print_metadata") == "true"
        decodes = request.parameters.get("decode_meta") == "true"
        known = self._bookie if self._metadata is None else self._metadata
        names = known.ledgers(scope)
        if shows:
            pairs = self._shown(self._of_page(names, page), decodes)
        else:
            pairs = ((str(name.ledger), None) for name in names)
        return Answer(200, members(pairs), headers=self._headers)

    def _of_page(self, names: list[LedgerId], page: int | None) -> list[LedgerId]:
        """Return the ledgers of a page.

        Upstream counts from 1 and compares with bounds that count from 0: the 1st page has 99.
        """
        if page is None:
            return names
        first = (page - 1) * PAGE
        if self._compat:
            return names[max(first - 1, 0) : first + PAGE - 1]
        return names[first : first + PAGE]

    def _shown(self, names: list[LedgerId], decodes: bool) -> Iterator[tuple[str, Any]]:
        """Yield each ledger's metadata; one that is deleted meanwhile is left out."""
        for name in names:
            try:
                yield str(name.ledger), self._show(name, decodes)
            except NoSuchLedger:
                continue

    def _show(self, name: LedgerId, decodes: bool) -> Any:
        if self._metadata is None:
            return self._held(name)
        show = _decoded if decodes else _as_text
        return show(self._metadata.read(name).metadata, secrets=self._compat)

    def metadata(self, request: Request) -> Answer:
        """Answer with one member, id -> metadata; 404 for an unknown ledger."""
        name = parameters.ledger(request)
        shown = json_answer({str(name.ledger): self._show(name, decodes=True)})
        return Answer(200, shown.body, headers=self._headers)

    def _held(self, name: LedgerId) -> dict[str, Any]:
        """Return what a bookie without metadata knows of a ledger."""
        state = self._bookie.state(name)
        here = self._bookie.availability(name)
        lac = None if state.explicit_lac is None else explicit_lac_entry(state.explicit_lac)
        return {
            "source": "bookie",
            "ledgerId": name.ledger,
            "ledgerScopeId": name.scope,
            "entries": len(here),
            "firstEntryId": here.first_entry,
            "lastEntryId": here.last_entry,
            "fenced": state.fenced,
            "limbo": state.limbo,
            "explicitLac": lac,
        }


def _decoded(metadata: LedgerMetadata, *, secrets: bool = False) -> dict[str, Any]:
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


def _as_text(metadata: LedgerMetadata, *, secrets: bool = False) -> str:
    """Return the serialized metadata read as UTF-8, as upstream lists it undecoded.

    Bytes of version 3 are no text: what is none is U+FFFD. The password is empty without
    `secrets`.
    """
    if metadata.password is not None and not secrets:
        metadata = replace(metadata, password=b"")
    return serialized.encode(metadata).decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
