"""PartitionableConnection: a client's connection that can be cut off, as by a network partition."""

from __future__ import annotations

from collections.abc import Callable

from bkstore.wire.server.connection import ServedConnection
from bkstore.wire.server.shared_state import SharedState


class PartitionableConnection(ServedConnection):
    """A connection over which nothing passes while `is_partitioned` returns True.

    The operating system accepts new connections all the same; received bytes are dropped, and so
    are answers. A connection that has lost bytes is closed once the partition has ended, because
    they cannot arrive any more. `is_partitioned` is called in the server's thread, for each
    received chunk and each answer.
    """

    def __init__(self, server: SharedState, is_partitioned: Callable[[], bool]) -> None:
        super().__init__(server)
        self._is_partitioned = is_partitioned
        self._has_lost_bytes = False

    def data_received(self, data: bytes) -> None:
        """Take received bytes, unless they are lost."""
        if not self._loses_bytes():
            super().data_received(data)

    def _write_frames(self, frames: bytes) -> None:
        if not self._loses_bytes():
            super()._write_frames(frames)

    def _loses_bytes(self) -> bool:
        """Return whether bytes that pass now are lost; close if earlier ones were lost."""
        if self._is_partitioned():
            self._has_lost_bytes = True
        elif self._has_lost_bytes:
            self.abort()
        return self._has_lost_bytes

    def check_progress(self, now: float) -> None:
        """Close a connection that lost bytes, once the partition has ended. While it lasts, nobody
        is disconnected for a stall."""
        if self._has_lost_bytes:
            self._loses_bytes()
        else:
            super().check_progress(now)
