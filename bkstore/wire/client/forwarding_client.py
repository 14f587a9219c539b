"""ForwardingClient: a `BookieClient` that chooses a `WireClient` for each call."""

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


def _make_forwarding_method(
    method: Callable[Concatenate[WireClient, _P], _T],
) -> Callable[Concatenate[ForwardingClient, _P], _T]:
    """Return a method that forwards its calls to `method` of a `WireClient`, which is chosen by the
    ledger: the first argument."""

    @wraps(method)
    def call(self: ForwardingClient, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        ledger: Any = options["ledger"] if "ledger" in options else arguments[0]
        return self._call_client(ledger, lambda wire: method(wire, *arguments, **options))

    return call


class ForwardingClient(ABC):
    """`BookieClient`, `BatchAdder` and `BulkReader`, each call forwarded by `_call_client`."""

    @abstractmethod
    def _call_client(self, ledger: LedgerLike, call: Callable[[WireClient], _T]) -> _T:
        """Return the result of `call` with the client to use for this ledger."""

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record and return its entry id; see `BookieClient.add_entry`."""
        return self._call_client(
            record_header(record).ledger,
            lambda wire: wire.add_entry(record, master_key, recovery=recovery, sync=sync),
        )

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """As `WireClient.add_batch`, for records of one ledger."""
        if len(batch):
            self._call_client(
                record_header(batch[0]).ledger,
                lambda wire: wire.add_batch(batch, master_key, recovery=recovery),
            )

    read_entry = _make_forwarding_method(WireClient.read_entry)
    read_many = _make_forwarding_method(WireClient.read_many)
    read_entries = _make_forwarding_method(WireClient.read_entries)
    read_lac = _make_forwarding_method(WireClient.read_lac)
    wait_for_lac = _make_forwarding_method(WireClient.wait_for_lac)
    write_lac = _make_forwarding_method(WireClient.write_lac)
    force = _make_forwarding_method(WireClient.force)
    availability = _make_forwarding_method(WireClient.availability)
