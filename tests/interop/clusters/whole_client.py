"""The whole real client, with its metadata in ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from tests.interop.driver import RealBookKeeper, RealError

NOT_ENOUGH_BOOKIES = -6
SECONDS = 20

_clients = map(str, count())


class WholeClient:
    """The whole real client; a ledger is named by its id."""

    def __init__(
        self,
        real: RealBookKeeper,
        uri: str,
        protocol: str = "v3",
        settings: Mapping[str, str] = {},
        explicit_lac_ms: int = 50,
    ) -> None:
        self._real = real
        self._name = next(_clients)
        named = {"uri": uri, "v2": protocol == "v2", "settings": dict(settings)}
        self._call("open", explicit_lac_ms=explicit_lac_ms, **named)

    def _call(self, what: str, **arguments: Any) -> Any:
        common = {"digest": "CRC32C", "password": "pw", "custom": {}, **arguments}
        return self._real.call(f"whole_{what}", name=self._name, **common)

    def close(self) -> None:
        """Close it."""
        self._call("close")

    def create(
        self,
        ensemble: int,
        write: int,
        ack: int,
        digest: str = "CRC32C",
        custom: Mapping[str, bytes] = {},
    ) -> int:
        """Make a ledger and return its id.

        Bookies that came back are known to all others before the client's watch tells it of them:
        with too few it is asked again, `SECONDS` long.
        """
        sizes = {"ensemble": ensemble, "write": write, "ack": ack}
        texts = {key: value.hex() for key, value in custom.items()}
        until = time.monotonic() + SECONDS
        while True:
            try:
                return int(self._call("create", digest=digest, custom=texts, **sizes))
            except RealError as error:
                if error.code != NOT_ENOUGH_BOOKIES or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def add(self, ledger: int, payloads: list[bytes]) -> list[int]:
        """Add payloads, under way together; return their entry ids."""
        texts = [payload.hex() for payload in payloads]
        return list(self._call("add", ledger=ledger, payloads=texts))

    def outcomes(self, ledger: int, payloads: list[bytes]) -> list[int]:
        """Add payloads; return for each its entry id, or the code of its error."""
        texts = [payload.hex() for payload in payloads]
        return list(self._call("outcomes", ledger=ledger, payloads=texts))

    def read(self, ledger: int, first: int, last: int) -> list[bytes]:
        """Return the payloads of entries."""
        found = self._call("read", ledger=ledger, first=first, last=last)
        return [bytes.fromhex(text) for text in found]

    def batch(self, ledger: int, start: int, max_count: int, max_size: int) -> list[bytes]:
        """Return the payloads of a batch read."""
        limits = {"max_count": max_count, "max_size": max_size}
        found = self._call("batch", ledger=ledger, start=start, **limits)
        return [bytes.fromhex(text) for text in found]

    def confirmed(self, ledger: int) -> dict[str, int]:
        """Return the LAC, "by_entries" and "explicit"."""
        return dict(self._call("confirmed", ledger=ledger))

    def open(self, ledger: int, recovery: bool) -> dict[str, Any]:
        """Open a ledger to read it; "last", "length", "closed"."""
        return dict(self._call("open_ledger", ledger=ledger, recovery=recovery))

    def await_entry(self, ledger: int, entry: int, timeout_ms: int) -> None:
        """Begin to wait for an entry that is not confirmed yet; `awaited` returns it."""
        self._call("await", ledger=ledger, entry=entry, timeout_ms=timeout_ms)

    def awaited(self) -> dict[str, Any]:
        """Return what `await_entry` came to: "rc", "lac", "entry", "payload"."""
        return dict(self._call("awaited"))

    def ledgers(self) -> list[int]:
        """Return all ledgers of the cluster, as an administrator lists them."""
        return sorted(self._call("ledgers"))

    def bookies(self) -> dict[str, list[str]]:
        """Return the bookies: "writable", "read_only", and "ever" by their cookies."""
        return dict(self._call("bookies"))

    def close_ledger(self, ledger: int) -> None:
        """Close a ledger that was written."""
        self._call("close_ledger", ledger=ledger)

    def delete(self, ledger: int) -> None:
        """Delete a ledger."""
        self._call("delete", ledger=ledger)

    def listed(self, ledger: int, bookie_id: str) -> int:
        """Return how many entries a bookie says it has."""
        return int(self._call("list", ledger=ledger, bookie_id=bookie_id))

    def ensembles(self, ledger: int) -> dict[int, list[str]]:
        """Return a ledger's ensembles by their first entry."""
        found = self._call("ensembles", ledger=ledger)
        return {int(first): members for first, members in found.items()}
