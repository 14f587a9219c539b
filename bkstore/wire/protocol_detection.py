"""Detection of the protocol of a connection, as in BookKeeper's server.

Every request is parsed as v3 until one fails to parse; from that one on, the connection uses v2.
Extended v3 is v3 with scopes (the upper 64 bits of ledger ids, 0 in BookKeeper) and batch reads.
Source: `BookieProtoEncoding.RequestDecoder`, and recorded conversations.
"""

from __future__ import annotations

from typing import Any

from bkstore.errors import CorruptionError
from bkstore.wire import v2, v3


class RequestDecoder:
    """Decodes the requests of one connection, in order.

    `version` is 3 until the first request that is not a v3 message, then 2. With `extended`, v3
    requests have scopes and batch reads. Not safe between threads.

    >>> decoder = RequestDecoder()
    >>> decoder.decode(bytes.fromhex("02020000" + "00" * 16)), decoder.version
    (ReadRequest(ledger=0, entry=0, flags=0, master_key=None, version=2), 2)
    """

    def __init__(self, *, extended: bool = False) -> None:
        self.version = 3
        self._extended = extended

    def decode(self, message: bytes) -> v2.Request | Any:
        """Return the request in a frame's message: one of `v2.Request`, or a v3 message. Raises
        `CorruptionError` if it is neither, or a v3 message after a v2 one: there BookKeeper
        disconnects."""
        if self.version == 3:
            try:
                return v3.decode_request(message, extended=self._extended)
            except CorruptionError:
                self.version = 2  # decoded as v2 below, for good
        return v2.decode_request(message)
