"""ScopedClient: one bookie, by the protocol that a ledger needs.

Ledgers of scope 0 go by v2, which every bookie knows. Others go by v3 as bkstore extends it, to
bookies that say that they know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from bkstore.availability import Availability
from bkstore.errors import IllegalOperation
from bkstore.ids import LedgerId
from bkstore.index.api import Closing, LedgerLike
from bkstore.index.many_ledgers import Errors, asked_for
from bkstore.wire.client import WireClient
from bkstore.wire.client.forwarding_client import ForwardingClient

_T = TypeVar("_T")


class ScopedClient(ForwardingClient, Closing):
    """A `BookieClient` over sockets for ledgers of all scopes, if the bookie is `extended`.

    For another bookie a ledger of a scope is `IllegalOperation`, and nothing is sent. `options` are
    those of `WireClient`, and so are threads and forks. Connects when it is asked.
    """

    batch_reads = True

    def __init__(
        self, bookie_id: str, address: tuple[str, int], *, extended: bool, **options: Any
    ) -> None:
        self.address = address
        self.extended = extended
        self._plain = WireClient(address, "v2", bookie_id=bookie_id, **options)
        self._scoped = WireClient(address, "v3", True, bookie_id=bookie_id, **options)

    def __repr__(self) -> str:
        """Return the bookie's id and address."""
        return f"<ScopedClient {self.bookie_id} at {self.address[0]}:{self.address[1]}>"

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as ensembles name it."""
        return self._plain.bookie_id

    def close(self) -> None:
        """End the connections. Idempotent."""
        self._plain.close()
        self._scoped.close()

    def _of(self, ledger: LedgerLike) -> WireClient:
        name = LedgerId.of(ledger)
        if not name.scope:
            return self._plain
        if not self.extended:
            raise IllegalOperation(
                f"ledger {name}: bookie {self.bookie_id} does not say that it knows scopes"
            )
        return self._scoped

    def _ask(self, ledger: LedgerLike, call: Callable[[WireClient], _T]) -> _T:
        return call(self._of(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """As `WireClient.availability_many`; ledgers of scopes are asked for behind the others."""
        if ledgers is None:
            raise IllegalOperation(f"{self!r}: the protocol has no list of ledgers")
        names = asked_for(ledgers)
        scoped = [name for name in names if name.scope]
        for name in scoped:
            self._of(name)
        if not scoped:
            return self._plain.availability_many(names, errors)
        plain = names[: len(names) - len(scoped)]  # unsigned order has them first
        parts = [(self._plain, plain)] if plain else []
        parts.append((self._scoped, scoped))
        return chain.from_iterable(one.availability_many(part, errors) for one, part in parts)
