"""ServerOptions: the limits of a server."""

from __future__ import annotations

from dataclasses import dataclass

from bkstore.arguments import check_fields, integer, number
from bkstore.wire.frames import LENGTH_BYTES, MAX_FRAME_BYTES

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings of `BookieServer`. Sizes in bytes, times in seconds.

    `max_frame` is `nettyMaxFrameSizeBytes`. `read_threads` and `write_threads` call the storage. A
    connection is not read while `max_waiting` of its requests, or `max_waiting_bytes` of them, are
    unanswered. The storage has one group of its reads and one of its writes at a time, of at most
    `max_group` requests. When all connections together hold `memory` bytes of requests (1.5 KiB
    more than the bytes of each) and answers, the server takes no more requests. A client in the
    middle of a frame, or with answers that it does not take, is disconnected after `stall_timeout`
    without progress. Clients above `max_connections`, which the limit of open files (``ulimit -n``)
    may lower, are refused. On stopping, waiting requests have `stop_timeout`.

    A client that takes longer than `authentication_timeout` to authenticate is disconnected; if
    those not yet authenticated hold over `authentication_memory` of `memory`, the largest is.
    """

    max_frame: int = MAX_FRAME_BYTES
    read_threads: int = 4
    write_threads: int = 2
    max_waiting: int = 1000
    max_waiting_bytes: int = _MIB
    max_group: int = 500
    max_connections: int = 4096
    memory: int = 256 * _MIB
    stall_timeout: float = 30.0
    stop_timeout: float = 30.0
    authentication_timeout: float = 30.0
    authentication_memory: int = 16 * _MIB

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_COUNTS = ("read_threads", "write_threads", "max_waiting", "max_group", "max_connections")
_SIZES = ("max_waiting_bytes", "memory", "authentication_memory")
_CHECKS = dict.fromkeys(_COUNTS + _SIZES, integer(1)) | {
    "max_frame": integer(LENGTH_BYTES, 2**31 - 1),
    "stall_timeout": number(0, above=True),
    "stop_timeout": number(0),
    "authentication_timeout": number(0, above=True),
}
