"""Strangers: clients that have not authenticated yet, and what they may cost together."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from bkstore.wire.server.options import ServerOptions

_log = logging.getLogger(__name__)


class Stranger(Protocol):
    """A connection whose client has not authenticated."""

    held: int

    def abort(self) -> None:
        """Close now."""


class Strangers:
    """The connections that have not authenticated. It belongs to the loop's thread.

    One that takes longer than `authentication_timeout` is closed, and where they hold more than
    `authentication_memory` of requests and answers together, the one that holds most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: ServerOptions) -> None:
        self._loop = loop
        self._timeout = options.authentication_timeout
        self._memory = options.authentication_memory
        self._since: dict[Stranger, float] = {}
        self._held = 0

    def add(self, stranger: Stranger) -> None:
        """Take note of a new connection."""
        self._since[stranger] = self._loop.time()

    def forget(self, stranger: Stranger) -> None:
        """Count a connection no more: it has authenticated, or is lost."""
        if self._since.pop(stranger, None) is not None:
            self._held -= stranger.held

    def count(self, stranger: Stranger, more: int) -> None:
        """Count bytes that a connection holds beside those of its `held`, or no longer holds."""
        if stranger not in self._since:
            return
        self._held += more
        if more > 0 and self._held > self._memory:
            largest = max(self._since, key=lambda each: each.held + more * (each is stranger))
            _log.warning("%d bytes held before authentication: closed a client", self._held)
            self._loop.call_soon(largest.abort)  # not now: one of them may be at work

    def sweep(self, now: float) -> None:
        """Close the connections that have had their time."""
        for stranger, since in list(self._since.items()):
            if now - since > self._timeout:
                _log.info("a client did not authenticate in %g s: closed", self._timeout)
                stranger.abort()
