"""ServerOptions: the limits of a server, with a bookie's names where it has them."""

from __future__ import annotations

from dataclasses import dataclass

from bkstore.arguments import check_fields, number, whole
from bkstore.wire.frames import MAX_FRAME, PREFIX

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings of `BookieServer`. Sizes in bytes, times in seconds.

    `max_frame` is `nettyMaxFrameSizeBytes`. `read_threads` and `write_threads` call the storage.
    A connection is not read from while `max_waiting` of its requests, or `max_waiting_bytes` of
    them, have no answer yet; one group of them, `max_group` at most, is with the storage at a
    time for reads and one for writes. `memory` is what all connections together may hold of
    requests (1.5 KiB beside the bytes of each) and answers before the server takes no more in. A
    peer that is in the middle of a
    frame, or does not take its answers, and does not move for `stall_timeout` is let go.
    Above `max_connections`, or fewer where the limit of open files (``ulimit -n``) leaves room for
    fewer, clients are refused. Stopping gives waiting requests `stop_timeout`.

    Where clients have to authenticate, one that takes longer than `authentication_timeout` is let
    go, and all that have not done so yet may hold `authentication_memory` of `memory`: above it
    the one that holds most is let go.
    """

    max_frame: int = MAX_FRAME
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


_CHECKS = {
    "max_frame": whole(PREFIX, 2**31 - 1),
    "read_threads": whole(1),
    "write_threads": whole(1),
    "max_waiting": whole(1),
    "max_waiting_bytes": whole(1),
    "max_group": whole(1),
    "max_connections": whole(1),
    "memory": whole(1),
    "stall_timeout": number(0, above=True),
    "stop_timeout": number(0),
    "authentication_timeout": number(0, above=True),
    "authentication_memory": whole(1),
}
