"""The real client's layer for one bookie, as its callbacks answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import MappingProxyType
from typing import Any

from tests.interop.driver import RealBookKeeper

OK = 0
NO_LEDGER = -7
NOT_AVAILABLE = -8
NO_ENTRY = -13
FENCED = -101
UNAUTHORIZED = -102
READ_ONLY = -104

FENCE, RECOVERY_ADD, HIGH_PRIORITY = 1, 2, 4
PASSWORD = "secret"

_names = map(str, count())


class RealClient:
    """A real client of one bookie; `do` sends operations one behind the other."""

    def __init__(self, real: RealBookKeeper, name: str) -> None:
        self._real = real
        self._name = name

    def do(self, *operations: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to operations that are under way together."""
        return list(self._real.call("client_do", name=self._name, operations=operations))

    def codes(self, *operations: dict[str, Any]) -> list[int]:
        """Return the codes of the answers alone."""
        return [answer["rc"] for answer in self.do(*operations)]


@contextmanager
def real_client(
    real: RealBookKeeper,
    address: tuple[str, int],
    protocol: str,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RealClient]:
    """Open a real client of the bookie at an address; `settings` are further ones of its own."""
    name, (host, port) = next(_names), address
    place = {"host": host, "port": port}
    real.call("client_open", name=name, v2=protocol == "v2", settings=dict(settings), **place)
    try:
        yield RealClient(real, name)
    finally:
        real.call("client_close", name=name)


def payload(ledger: int, entry: int) -> bytes:
    """Return the payload of an entry: some of them longer than 16 KiB, one of them empty."""
    size = 20_000 if entry % 50 == 49 else entry % 50
    return bytes((ledger * 7 + entry + at) % 256 for at in range(size))


def payload_hex(ledger: int, entries: Sequence[int]) -> list[str]:
    """Return the payloads of entries as answers have them."""
    return [payload(ledger, entry).hex() for entry in entries]


def add(ledger: int, entry: int, **more: Any) -> dict[str, Any]:
    """Return an add; its LAC is the entry before, its length the payloads' up to it."""
    return {
        "op": "add",
        "ledger": ledger,
        "entry": entry,
        "lac": entry - 1,
        "length": sum(len(payload(ledger, each)) for each in range(entry + 1)),
        "payload": payload(ledger, entry).hex(),
        "password": PASSWORD,
        "digest": "CRC32C",
        **more,
    }


def read(ledger: int, entry: int, flags: int = 0, **more: Any) -> dict[str, Any]:
    """Return a read, whose digest the real client verifies; a fencing one has the key."""
    named = {"op": "read", "ledger": ledger, "entry": entry, "flags": flags}
    return {**named, "password": PASSWORD, "digest": "CRC32C", **more}


def ask(op: str, ledger: int, **more: Any) -> dict[str, Any]:
    """Return another operation."""
    named = {"op": op, "ledger": ledger, "password": PASSWORD, "digest": "CRC32C"}
    return {**named, **more}
