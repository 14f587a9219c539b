"""Observer: the interface of callbacks that a server makes for each request it has answered."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bkstore.wire.status_codes import Status


class Observer(Protocol):
    """Gets a call for each request, just before its answer is sent to the client.

    Give one to `BookieServer` as ``observer=``. It is called in the server's own thread: it must
    not block, and an exception that it raises is logged and changes no answer.
    """

    def observe(
        self,
        operation: str,
        protocol: int,
        seconds: float,
        status: Status,
        response_size: int | None = None,
    ) -> None:
        """Record one request.

        `operation` is a name of `v3.OperationType` ("ADD_ENTRY", "BATCH_READ_ENTRY"), for v2 too;
        `protocol` is 2 or 3; `seconds` is from receipt to answer, with the time in queues;
        `response_size` is the bytes of a batch read's frame with its length field, else None.
        """


@runtime_checkable
class BulkObserver(Observer, Protocol):
    """An observer that can record many requests with the same outcome in one call."""

    def observe_many(
        self, count: int, operation: str, protocol: int, seconds: float, status: Status
    ) -> None:
        """Record `count` requests, as `observe` does for one."""
