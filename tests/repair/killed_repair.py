"""A process that runs `bkstore repair --apply`, and kills itself before one of its requests."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

SESSION_SECONDS = 1.0
"""How long the locks of the process last after its end."""


class RequestCounter:
    """Counts the requests to bookies and to ZooKeeper; the process ends before the `last` one is
    sent, as by a power cut."""

    def __init__(self, last: int) -> None:
        self.requests = 0
        self._last = last
        self._lock = threading.Lock()

    def count(self) -> None:
        """Count a request."""
        with self._lock:
            self.requests += 1
            if self.requests == self._last:
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Count what the classes of connections send, but for ZooKeeper's pings."""
        from kazoo.protocol.connection import PING_XID, ConnectionHandler

        from bkstore.cluster.store.zookeeper.connection import ZooKeeperConnection
        from bkstore.wire.client.connection import PipelinedConnection

        classes: Any = (PipelinedConnection, ConnectionHandler, ZooKeeperConnection)
        bookies, zookeeper, store = classes
        send, submit, connect = bookies._send, zookeeper._submit, store.__init__

        def send_counted(connection: Any, frames: Any) -> None:
            if frames:
                self.count()
            send(connection, frames)

        def submit_counted(handler: Any, request: Any, timeout: Any, xid: Any = None) -> Any:
            if xid != PING_XID:
                self.count()
            return submit(handler, request, timeout, xid)

        def connect_shortly(connection: Any, servers: Any, **seconds: float) -> None:
            connect(connection, servers, **{**seconds, "session_timeout": SESSION_SECONDS})

        bookies._send, zookeeper._submit = send_counted, submit_counted
        store.__init__ = connect_shortly


def _main(uri: str, last: str) -> int:
    from bkstore.cli.main import main

    counter = RequestCounter(int(last))
    counter.install()
    options = ["--apply", "--parallel", "1", "--retries", "0"]
    code = main(["repair", uri, *options, "--format", "jsonl", "-o", os.devnull])
    sys.stdout.write(f"{counter.requests}\n")
    return code


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
