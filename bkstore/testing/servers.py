"""A factory of servers on loopback, over bookies in temporary directories: for the pytest fixture.

Usable without pytest, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import Storage
from bkstore.testing.factories import BookieFactory
from bkstore.wire.server import BookieServer


class ServerFactory:
    """Makes `BookieServer`s on loopback, each over a bookie of its own; a call returns a new one.

    `bookies` makes the bookies, and closes them.

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
        self._made: list[tuple[BookieServer, dict[str, Any]]] = []

    def __call__(
        self,
        storage: Storage | None = None,
        *,
        bookie: Bookie | None = None,
        server: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> BookieServer:
        """Return a server that listens, over a new bookie or the one given.

        `server` are arguments of `BookieServer` (`port`, `extended`, `tls`, `observer`,
        `options`), `options` those of `BookieFactory`.
        """
        opened = self.bookies(storage, **options) if bookie is None else bookie
        settings = dict(server or {})
        started = BookieServer(opened, **settings).start()
        self._made.append((started, settings))
        return started

    def restart(self, server: BookieServer) -> BookieServer:
        """Stop one gracefully, reopen its bookie, and serve it on the same port."""
        settings = self._settings(server)
        server.close()
        return self(bookie=self.bookies.reopen(server.bookie), server=settings)

    def crash(self, server: BookieServer) -> BookieServer:
        """Return a server on the same port over the files as they are now: a kill's."""
        settings = self._settings(server)
        bookie = self.bookies.crash(server.bookie)
        server.close()
        return self(bookie=bookie, server=settings)

    def _settings(self, server: BookieServer) -> dict[str, Any]:
        for made, settings in self._made:
            if made is server:
                return settings | {"port": server.address.port}
        raise InvalidArgument("this factory did not make it")

    def close_all(self) -> list[BkstoreError]:
        """Stop whatever serves; what still waits gets no answer. Return what failed."""
        errors = []
        for server, _ in reversed(self._made):
            try:
                server.close(0)
            except BkstoreError as error:
                errors.append(error)
        return errors
