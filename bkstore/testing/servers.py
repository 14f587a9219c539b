"""A factory of loopback servers over bookies in temporary directories; needs no pytest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import StorageKind
from bkstore.testing.factories import BookieFactory
from bkstore.wire.server import BookieServer


class ServerFactory:
    """Makes `BookieServer`s on loopback, each with a bookie of its own, made by `bookies`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     bookies = BookieFactory(Path(top))
    ...     make = ServerFactory(bookies)
    ...     server = make("db")
    ...     entry = server.bookie.add_entry(encode(Entry(7, 0, -1, 2, b"hi"), "CRC32C"), b"key")
    ...     again = make.crash(server)
    ...     print(again.address == server.address, again.bookie.read_entry(7)[-2:])
    ...     make.close_all(), bookies.close_all()
    True b'hi'
    ([], [])
    """

    def __init__(self, bookies: BookieFactory) -> None:
        self.bookies = bookies
        self._servers: list[tuple[BookieServer, dict[str, Any]]] = []

    def __call__(
        self,
        storage: StorageKind | None = None,
        *,
        bookie: Bookie | None = None,
        server: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> BookieServer:
        """Return a listening server over a new bookie, or over `bookie`.

        `server` are arguments of `BookieServer` (`port`, `extended`, `tls`, `observer`,
        `options`), `options` those of `BookieFactory`.
        """
        served = self.bookies(storage, **options) if bookie is None else bookie
        settings = dict(server or {})
        new_server = BookieServer(served, **settings).start()
        self._servers.append((new_server, settings))
        return new_server

    def restart(self, server: BookieServer) -> BookieServer:
        """Stop a server gracefully, reopen its bookie, and serve it on the same port."""
        settings = self._restart_settings(server)
        server.close()
        return self(bookie=self.bookies.reopen(server.bookie), server=settings)

    def crash(self, server: BookieServer) -> BookieServer:
        """Return a server on the same port over the files as a kill now would leave them."""
        settings = self._restart_settings(server)
        bookie = self.bookies.crash(server.bookie)
        server.close()
        return self(bookie=bookie, server=settings)

    def _restart_settings(self, server: BookieServer) -> dict[str, Any]:
        """Return the settings to start a server again, at the same port."""
        for known, settings in self._servers:
            if known is server:
                return settings | {"port": server.address.port}
        raise InvalidArgument("it was not made by this factory")

    def close_all(self) -> list[BkstoreError]:
        """Stop all servers without answering pending requests; return the errors of that."""
        errors = []
        for server, _ in reversed(self._servers):
            try:
                server.close(0)
            except BkstoreError as error:
                errors.append(error)
        return errors
