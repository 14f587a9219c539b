"""`ledger/list` and `ledger/metadata`: from a metadata store, else from what the bookie holds.

Upstream: `ListLedgerService`, `GetLedgerMetaService`. Which of the two has answered stands in the
header `X-Bkstore-Source`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import NoSuchLedger
from bkstore.formats.entry import explicit_lac_entry
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin import ledger_json, parameters
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
        show = ledger_json.decoded if decodes else ledger_json.as_text
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
