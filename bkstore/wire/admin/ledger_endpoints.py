"""Endpoints `ledger/list`, `metadata` and `delete`: in a metadata store, or else in the bookie.

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0. In
BookKeeper: `ListLedgerService`, `GetLedgerMetaService`, `DeleteLedgerService`. The header
`X-Bkstore-Source` has the source of the answer. Metadata has the members of BookKeeper's answers in
their order, which Jackson prints from `LedgerMetadataImpl`; the password only if answers have to be
as BookKeeper's.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import NoSuchLedger
from bkstore.formats.entry import explicit_lac_or_none
from bkstore.formats.metadata import serialized
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin import query_parameters
from bkstore.wire.admin.messages import HttpRequest, HttpResponse, json_response, stream_json_object

PAGE_LEDGERS = 100
"""The number of ledgers of a page of metadata."""

SOURCE_HEADER = "X-Bkstore-Source"


class LedgerEndpoints:
    """Lists, shows and deletes ledgers. As thread-safe as its bookie and store."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore | None, compat: bool) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._compat = compat
        self._headers = {SOURCE_HEADER: "bookie" if metadata is None else "metadata-store"}

    def list_ledgers(self, request: HttpRequest) -> HttpResponse:
        """Answer with id -> null for all ledgers of a scope. With ``print_metadata=true`` the
        answer is id -> metadata, of one page if ``page`` is given: members with
        ``decode_meta=true``, else the serialized text."""
        scope = query_parameters.parse_scope(request)
        page = query_parameters.parse_page(request)
        with_metadata = request.parameters.get("print_metadata") == "true"
        decoded = request.parameters.get("decode_meta") == "true"
        source = self._bookie if self._metadata is None else self._metadata
        ledger_ids = source.ledgers(scope)
        if with_metadata:
            pairs = self._with_metadata(self._ledgers_of_page(ledger_ids, page), decoded)
        else:
            pairs = ((str(ledger_id.ledger), None) for ledger_id in ledger_ids)
        return HttpResponse(200, stream_json_object(pairs), headers=self._headers)

    def _ledgers_of_page(self, ledger_ids: list[LedgerId], page: int | None) -> list[LedgerId]:
        """Return the ledgers of a page. BookKeeper compares a count from 1 with bounds from 0, so
        its first page has 99 ledgers."""
        if page is None:
            return ledger_ids
        first = (page - 1) * PAGE_LEDGERS
        if self._compat:
            return ledger_ids[max(first - 1, 0) : first + PAGE_LEDGERS - 1]
        return ledger_ids[first : first + PAGE_LEDGERS]

    def _with_metadata(self, ids: list[LedgerId], decoded: bool) -> Iterator[tuple[str, Any]]:
        """Yield each ledger with its metadata, except ledgers deleted meanwhile."""
        for ledger_id in ids:
            with suppress(NoSuchLedger):
                yield str(ledger_id.ledger), self._ledger_value(ledger_id, decoded)

    def _ledger_value(self, ledger_id: LedgerId, decoded: bool) -> Any:
        """Return a ledger's metadata, or what the bookie knows of it without a metadata store."""
        if self._metadata is None:
            return self._bookie_state(ledger_id)
        convert = _metadata_as_json if decoded else _metadata_as_text
        return convert(self._metadata.read(ledger_id).metadata, secrets=self._compat)

    def show_metadata(self, request: HttpRequest) -> HttpResponse:
        """Answer with one member, id -> metadata; 404 for an unknown ledger."""
        ledger_id = query_parameters.parse_ledger_id(request)
        value = self._ledger_value(ledger_id, decoded=True)
        answer = json_response({str(ledger_id.ledger): value})
        return HttpResponse(200, answer.body, headers=self._headers)

    def delete_ledger(self, request: HttpRequest) -> HttpResponse:
        """Delete a ledger's metadata, or without a store its entries in the bookie, durably. An
        unknown ledger is not an error, as in BookKeeper."""
        ledger_id = query_parameters.parse_ledger_id(request)
        if self._metadata is not None:
            with suppress(NoSuchLedger):
                self._metadata.delete(ledger_id)
        elif self._bookie.ledger_exists(ledger_id):
            self._bookie.delete_ledger(ledger_id)
            self._bookie.checkpoint()  # journals do not record deletions
        return json_response(f"Deleted ledger: {ledger_id.ledger}")

    def _bookie_state(self, ledger_id: LedgerId) -> dict[str, Any]:
        """Return the state of a ledger in the bookie, for use without a metadata store."""
        state = self._bookie.state(ledger_id)
        entries = self._bookie.availability(ledger_id)
        lac = None if state.explicit_lac is None else explicit_lac_or_none(state.explicit_lac)
        return {
            "source": "bookie",
            "ledgerId": ledger_id.ledger,
            "ledgerScopeId": ledger_id.scope,
            "entries": len(entries),
            "firstEntryId": entries.first_entry,
            "lastEntryId": entries.last_entry,
            "fenced": state.fenced,
            "limbo": state.limbo,
            "explicitLac": lac,
        }


def _metadata_as_json(metadata: LedgerMetadata, *, secrets: bool = False) -> dict[str, Any]:
    """Return the members of `LedgerMetadataImpl`; `password` is null without `secrets`. Ledgers in
    a scope also have `ledgerScopeId`, which BookKeeper lacks."""
    digest_type = "MAC" if metadata.digest_type == "HMAC" else metadata.digest_type
    custom_metadata = {key: _base64(value) for key, value in metadata.custom_metadata.items()}
    ensembles = {
        str(segment.first_entry): [{"id": bookie} for bookie in segment.ensemble]
        for segment in metadata.segments
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
        "digestType": digest_type,
        "password": _base64(metadata.password or b"") if secrets else None,
        "customMetadata": custom_metadata,
        "allEnsembles": ensembles,
        "closed": metadata.closed,
        "ctoken": metadata.c_token,
    }


def _metadata_as_text(metadata: LedgerMetadata, *, secrets: bool = False) -> str:
    """Return the serialized metadata as UTF-8 text, as BookKeeper lists it when not decoded.
    Version 3 is binary: invalid UTF-8 becomes U+FFFD. The password is empty without `secrets`."""
    if metadata.password is not None and not secrets:
        metadata = replace(metadata, password=b"")
    return serialized.encode(metadata).decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
