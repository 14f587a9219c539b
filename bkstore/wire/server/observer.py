"""What a server tells of the requests that it answered, to whoever counts them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bkstore.wire.status import Status


class Observer(Protocol):
    """Is told of each request just before its answer goes to the client.

    Give one to `BookieServer` as ``observer=``. It is called in the server's own thread: it must
    not block, and what it raises is logged and changes no answer.
    """

    def observe(
        self,
        operation: str,
        protocol: int,
        seconds: float,
        status: Status,
        response_size: int | None = None,
    ) -> None:
        """Take note of one request.

        `operation` is a name of `v3.Operation` ("ADD_ENTRY", "BATCH_READ_ENTRY"), for both
        protocols; `protocol` is 2 or 3; `seconds` go from the whole request to its answer, time
        in queues included; `response_size` is the bytes of the answer's frame, its length field
        among them, for batch reads, None for all else.
        """


@runtime_checkable
class ObserverOfMany(Observer, Protocol):
    """An observer that takes note of many requests alike at once, where they were served so."""

    def observe_many(
        self, count: int, operation: str, protocol: int, seconds: float, status: Status
    ) -> None:
        """Take note of so many requests, as `observe` does of each."""
