"""Rescued ledgers and the cookies of their new bookies in a metadata store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import IllegalOperation, InvalidArgument, LedgerExists
from bkstore.formats.cookie import Cookie
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata


def check_store(store: MetadataStore, ledgers: Iterable[LedgerId]) -> None:
    """Raise `InvalidArgument` if the store has one of the ledgers: nothing in it is replaced."""
    existing = sorted({*ledgers} & {*store.ledgers()})
    if existing:
        raise InvalidArgument(f"the store already has ledger {existing[0]}; nothing was written")


def register(
    store: MetadataStore,
    ledgers: Mapping[LedgerId, LedgerMetadata],
    cookies: Mapping[str, Cookie],
) -> None:
    """Write cookies, if the store has such, and the metadata of ledgers. What is there already,
    from an interrupted run, is kept if it is the same; else raises `IllegalOperation`."""
    if hasattr(store, "write_cookie") and hasattr(store, "cookie"):
        for bookie, cookie in cookies.items():
            stored = store.cookie(bookie)
            if stored is None:
                store.write_cookie(bookie, cookie)
            elif stored.cookie != cookie:
                raise IllegalOperation(f"the store has another cookie of bookie {bookie}")
    for ledger_id, metadata in ledgers.items():
        try:
            store.create(metadata)
        except LedgerExists:
            if store.read(ledger_id).metadata != metadata:
                raise IllegalOperation(f"the store has another ledger {ledger_id}") from None
