"""Servers that answer for lists of entries what a test wants, and nothing, or reads, besides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bkstore.availability import Availability
from bkstore.errors import CorruptionError
from bkstore.wire import v2, v3
from bkstore.wire.status_codes import Status
from tests.wire.client.scripted import Peer

__all__ = ["HungUp", "Listing", "asked_ledger", "list_of", "refusal"]

Answer = Callable[[Any], bytes | None]
"""Returns the message for a request, None = no answer; `HungUp` ends the connection."""


class HungUp(Exception):
    """The server ends the connection."""


class Listing:
    """A script: `lists` answers requests for lists, and reads are answered if `reads`."""

    def __init__(self, lists: Answer, *, reads: bool = False) -> None:
        self.lists = lists
        self.reads = reads
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, peer: Peer) -> None:
        """Talk to one connection."""
        for message in peer.requests():
            try:
                found = self._answer(message)
            except HungUp:
                peer.hang_up()
                return
            if found is not None:
                peer.answer(found)

    def _answer(self, message: bytes) -> bytes | None:
        try:
            request = v3.decode_request(message)
        except CorruptionError:
            asked: Any = v2.decode_request(message)
            self._note("FENCE" if asked.flags else "READ_ENTRY")
            found = v2.ReadResponse(Status.ENOENTRY, asked.ledger, asked.entry, b"")
            return b"".join(found.parts()) if self.reads else None
        self._note(v3.OperationType(request.header.operation).name)
        return self.lists(request)

    def _note(self, operation: str) -> None:
        with self._lock:
            self.asked.append(operation)


def asked_ledger(request: Any) -> int:
    """Return the ledger that a request is about."""
    return int(v3.body_of(request).ledgerId)


def list_of(request: Any, *entries: int, ledger: int | None = None) -> bytes:
    """Return the answer with a list of entries, of the ledger that was asked for, or another."""
    name = asked_ledger(request) if ledger is None else ledger
    data = Availability.from_entries(entries).to_bytes()
    fields = {"ledgerId": name, "availabilityOfEntriesOfLedger": data}
    return v3.encode(v3.new_response(request, Status.EOK, fields))


def refusal(request: Any, status: Status) -> bytes:
    """Return the answer that has a status and nothing else."""
    return v3.encode(v3.new_response(request, status, {"ledgerId": asked_ledger(request)}))
