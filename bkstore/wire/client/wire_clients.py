"""WireClients: a `WireClient` for each bookie of a cluster, by bookie id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from bkstore.arguments import instance, optional
from bkstore.errors import InvalidArgument
from bkstore.index.api import Closeable
from bkstore.wire.client.addresses import parse_address
from bkstore.wire.client.wire_client import WireClient

_check_addresses = optional(instance(Mapping))
_CLIENT_OPTIONS = set(signature(WireClient).parameters) - {"address", "bookie_id"}


class WireClients(Mapping[str, WireClient], Closeable):
    """A `WireClient` for each bookie, made at its first use; a `Client` takes this mapping.

    The address of a bookie is that in `addresses`, or else its id, ``host:port``. An id that is no
    address either raises `KeyError`; a `Client` treats such a bookie as unreachable. Iterates over
    `addresses` and the other bookies used so far. `options` are those of `WireClient`. Threads:
    safe. Fork: as `WireClient`. `close` closes all clients; later uses make new ones.

    >>> with WireClients({"bookie-1": "127.0.0.1:3181"}, protocol="v3") as bookies:
    ...     bookies["bookie-1"], bookies["10.0.0.7:3181"], sorted(bookies), "bookie-2" in bookies
    ...     # doctest: +NORMALIZE_WHITESPACE
    (<WireClient 127.0.0.1:3181 v3>, <WireClient 10.0.0.7:3181 v3>, ['10.0.0.7:3181', 'bookie-1'],
     False)
    """

    def __init__(
        self, addresses: Mapping[str, str | tuple[str, int]] | None = None, **options: Any
    ) -> None:
        """Check the addresses and the options, which are those of `WireClient`."""
        self._addresses = dict(_check_addresses("addresses", addresses) or {})
        for bookie_id, address in self._addresses.items():
            instance(str, tuple)(f"the address of {bookie_id}", address)
        for option in options.keys() - _CLIENT_OPTIONS:
            raise InvalidArgument(f"{option} is not an option of WireClient")
        self._options = options
        self._clients: dict[str, WireClient] = {}

    def __getitem__(self, bookie_id: str) -> WireClient:
        """Return the client of a bookie; an id without a given address is taken as its address."""
        existing_client = self._clients.get(bookie_id)
        if existing_client is not None:
            return existing_client
        try:
            address = parse_address(self._addresses.get(bookie_id, bookie_id))
        except InvalidArgument as error:
            raise KeyError(bookie_id) from error
        new_client = WireClient(address, bookie_id=bookie_id, **self._options)
        # `setdefault` instead of a lock, which a forked child could find locked
        return self._clients.setdefault(bookie_id, new_client)

    def __iter__(self) -> Iterator[str]:
        return iter(list(dict.fromkeys([*self._addresses, *self._clients])))

    def __len__(self) -> int:
        return len(self._addresses.keys() | self._clients.keys())

    def close(self) -> None:
        """Close all clients made so far. Idempotent."""
        for bookie_id, client in list(self._clients.items()):
            client.close()
            self._clients.pop(bookie_id, None)
