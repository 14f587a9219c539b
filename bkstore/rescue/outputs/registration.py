"""Rescued ledgers and the cookies of their new bookies in a metadata store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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
    from an interrupted run, is kept if it is the same; else raises `IllegalOperation`, before
    anything is written."""
    new_cookies = dict(_new_cookies(store, cookies))
    existing = {*ledgers} & {*store.ledgers()}
    for ledger_id in sorted(existing):
        _check_same(store, ledgers[ledger_id])
    for bookie, cookie in new_cookies.items():
        store.write_cookie(bookie, cookie)  # type: ignore[attr-defined]
    for ledger_id, metadata in ledgers.items():
        if ledger_id not in existing:
            try:
                store.create(metadata)
            except LedgerExists:
                _check_same(store, metadata)


def _new_cookies(
    store: MetadataStore, cookies: Mapping[str, Cookie]
) -> Iterator[tuple[str, Cookie]]:
    """Yield the cookies that the store does not have yet; none if it has no cookies at all."""
    if not (hasattr(store, "write_cookie") and hasattr(store, "cookie")):
        return
    for bookie, cookie in cookies.items():
        stored = store.cookie(bookie)
        if stored is None:
            yield bookie, cookie
        elif stored.cookie != cookie:
            raise IllegalOperation(f"the store has another cookie of bookie {bookie}")


def _check_same(store: MetadataStore, metadata: LedgerMetadata) -> None:
    """Raise `IllegalOperation` unless the store has exactly these metadata."""
    if store.read(metadata.ledger).metadata != metadata:
        raise IllegalOperation(f"the store has another ledger {metadata.ledger}")
