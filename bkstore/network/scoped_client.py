"""ScopedClient: a client of one bookie, by the protocol that a ledger needs.

Scope 0 uses v2, which every bookie supports; others bkstore's extended v3, if it is registered.
Extended v3 is v3 with scopes (the upper 64 bits of ledger ids, 0 in BookKeeper) and batch reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from bkstore.availability import Availability
from bkstore.errors import IllegalOperation
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable, LedgerLike
from bkstore.index.bulk_listing import LedgerErrors, normalize_ledger_ids
from bkstore.wire.client import WireClient
from bkstore.wire.client.forwarding_client import ForwardingClient

_T = TypeVar("_T")


class ScopedClient(ForwardingClient, Closeable):
    """A `BookieClient` over sockets for ledgers of all scopes, if the bookie is `extended`.

    For another bookie, other scopes than 0 raise `IllegalOperation`, and nothing is sent. `options`
    are those of `WireClient`; threads and forks as there. Connects at the first request.
    """

    batch_reads = True

    def __init__(
        self, bookie_id: str, address: tuple[str, int], *, extended: bool, **options: Any
    ) -> None:
        self.address = address
        self.extended = extended
        self._v2_client = WireClient(address, "v2", bookie_id=bookie_id, **options)
        self._v3_client = WireClient(address, "v3", extended=True, bookie_id=bookie_id, **options)

    def __repr__(self) -> str:
        return f"<ScopedClient {self.bookie_id} at {self.address[0]}:{self.address[1]}>"

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as ensembles name it."""
        return self._v2_client.bookie_id

    def close(self) -> None:
        """End the connections. Idempotent."""
        self._v2_client.close()
        self._v3_client.close()

    def _client_for(self, ledger: LedgerLike) -> WireClient:
        """Return the client of the protocol for a ledger: v2, or v3 for one with a scope."""
        ledger_id = LedgerId.of(ledger)
        if not ledger_id.scope:
            return self._v2_client
        if not self.extended:
            reason = f"bookie {self.bookie_id} does not announce support for scopes"
            raise IllegalOperation(f"ledger {ledger_id}: {reason}")
        return self._v3_client

    def _call_client(self, ledger: LedgerLike, call: Callable[[WireClient], _T]) -> _T:
        return call(self._client_for(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Yield each ledger with the bookie's entries, as `WireClient.availability_many` does.
        Ledgers of scope 0 come first, because they have a connection of their own."""
        if ledgers is None:
            raise IllegalOperation(f"{self!r}: the protocol cannot list ledgers")
        ledger_ids = normalize_ledger_ids(ledgers)
        scoped_ids = [ledger_id for ledger_id in ledger_ids if ledger_id.scope]
        for ledger_id in scoped_ids:
            self._client_for(ledger_id)  # raises if the bookie does not support scopes
        if not scoped_ids:
            return self._v2_client.availability_many(ledger_ids, errors)
        plain_ids = ledger_ids[: len(ledger_ids) - len(scoped_ids)]  # scope 0 sorts first
        requests = [(self._v2_client, plain_ids)] if plain_ids else []
        requests.append((self._v3_client, scoped_ids))
        return chain.from_iterable(wire.availability_many(ids, errors) for wire, ids in requests)
