"""ForwardingClient: a `BookieClient` whose calls go to a `WireClient` that it chooses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from bkstore.formats.entry import RecordBatch, record_header
from bkstore.index.api import LedgerLike
from bkstore.wire.client.wire_client import WireClient

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _about_a_ledger(
    method: Callable[Concatenate[WireClient, _P], _T],
) -> Callable[Concatenate[ForwardingClient, _P], _T]:
    """Return a method of `WireClient`, whose first argument is a ledger, as a forwarding one."""

    @wraps(method)
    def call(self: ForwardingClient, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        ledger: Any = options["ledger"] if "ledger" in options else arguments[0]
        return self._ask(ledger, lambda wire: method(wire, *arguments, **options))

    return call


class ForwardingClient(ABC):
    """The calls of a `BookieClient`, `TakesMany` and `ReadsMany`, each handed on by `_ask`."""

    @abstractmethod
    def _ask(self, ledger: LedgerLike, call: Callable[[WireClient], _T]) -> _T:
        """Return what `call` gets from the client to be asked about this ledger."""

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """As `BookieClient.add_entry`."""
        return self._ask(
            record_header(record).ledger,
            lambda wire: wire.add_entry(record, master_key, recovery=recovery, sync=sync),
        )

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """As `WireClient.add_batch`, of records of one ledger."""
        if len(batch):
            ledger = record_header(batch[0]).ledger
            self._ask(ledger, lambda wire: wire.add_batch(batch, master_key, recovery=recovery))

    read_entry = _about_a_ledger(WireClient.read_entry)
    read_many = _about_a_ledger(WireClient.read_many)
    read_entries = _about_a_ledger(WireClient.read_entries)
    read_lac = _about_a_ledger(WireClient.read_lac)
    write_lac = _about_a_ledger(WireClient.write_lac)
    force = _about_a_ledger(WireClient.force)
    availability = _about_a_ledger(WireClient.availability)
