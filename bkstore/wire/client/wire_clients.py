"""WireClients: the bookies of a cluster by id, each over its own sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from bkstore.arguments import instance, optional
from bkstore.errors import InvalidArgument
from bkstore.index.api import Closing
from bkstore.wire.client.stream import parse_address
from bkstore.wire.client.wire_client import WireClient

_check_addresses = optional(instance(Mapping))
_OPTIONS = set(signature(WireClient).parameters) - {"address", "bookie_id"}


class WireClients(Mapping[str, WireClient], Closing):
    """A `WireClient` for each bookie, made when it is first asked for; what a `Client` takes.

    A bookie is where `addresses` says; one that is not in there is where its id says, which is
    ``host:port`` unless a bookie was given another. An id that is no address is no bookie here
    (`KeyError`; for a `Client`, one that cannot be reached). Iteration goes over `addresses`, and
    the others that were asked for. `options` are those of `WireClient`.

    Threads: safe. Fork: as `WireClient`. `close` closes them all; more can be asked for after it.

    >>> with WireClients({"bookie-1": "127.0.0.1:3181"}, protocol="v3") as bookies:
    ...     bookies["bookie-1"], bookies["10.0.0.7:3181"], sorted(bookies), "bookie-2" in bookies
    ...     # doctest: +NORMALIZE_WHITESPACE
    (<WireClient 127.0.0.1:3181 v3>, <WireClient 10.0.0.7:3181 v3>, ['10.0.0.7:3181', 'bookie-1'],
     False)
    """

    def __init__(
        self, addresses: Mapping[str, str | tuple[str, int]] | None = None, **options: Any
    ) -> None:
        self._addresses = dict(_check_addresses("addresses", addresses) or {})
        for bookie_id, address in self._addresses.items():
            instance(str, tuple)(f"the address of {bookie_id}", address)
        for name in options.keys() - _OPTIONS:
            raise InvalidArgument(f"{name} is no option of a WireClient")
        self._options = options
        self._clients: dict[str, WireClient] = {}

    def __getitem__(self, bookie_id: str) -> WireClient:
        found = self._clients.get(bookie_id)
        if found is not None:
            return found
        try:
            address = parse_address(self._addresses.get(bookie_id, bookie_id))
        except InvalidArgument as error:
            raise KeyError(bookie_id) from error
        made = WireClient(address, bookie_id=bookie_id, **self._options)
        # without a lock, which a forked child might find taken
        return self._clients.setdefault(bookie_id, made)

    def __iter__(self) -> Iterator[str]:
        return iter(list(dict.fromkeys([*self._addresses, *self._clients])))

    def __len__(self) -> int:
        return len(self._addresses.keys() | self._clients.keys())

    def close(self) -> None:
        """Close every client that was made. Idempotent."""
        for bookie_id, client in list(self._clients.items()):
            client.close()
            self._clients.pop(bookie_id, None)
