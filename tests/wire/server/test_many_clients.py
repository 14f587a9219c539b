"""Many clients at once, some of which vanish, and servers that are killed: what was acknowledged
is there afterwards, byte for byte."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bkstore.storage.bookie import Bookie
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import FrameSplitter, frame
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import KEY, Peer, record

_WINDOW = 100
_RESET = struct.pack("ii", 1, 0)


class Writer(threading.Thread):
    """Adds entries to a ledger of its own, a hundred at a time, and reads some of them again.

    `acknowledged` are the entries that were answered with EOK. After `vanish` of them it resets
    its connection, with requests under way.
    """

    def __init__(
        self, address: tuple[str, int], ledger: int, count: int, vanish: int | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self.acknowledged: set[int] = set()
        self.wrong: list[object] = []
        self._count, self._vanish = count, vanish
        self._peer = Peer(address, timeout=60)
        self._v3 = ledger % 3 == 0

    def run(self) -> None:
        """Write until all is written, or the connection ends."""
        with self._peer:
            for first in range(0, self._count, _WINDOW):
                window = range(first, min(first + _WINDOW, self._count))
                self._peer.send(*map(self._add, window))
                if self._vanish is not None and first >= self._vanish:
                    option = socket.SOL_SOCKET, socket.SO_LINGER, _RESET
                    self._peer.socket.setsockopt(*option)
                    return
                if not self._take(len(window)) or not self._look(first):
                    return

    def _add(self, entry: int) -> bytes:
        data = record(self.ledger, entry)
        if not self._v3:
            return frame(*v2.AddRequest(KEY, data).parts())
        body = {"ledgerId": self.ledger, "entryId": entry, "masterKey": KEY, "body": data}
        return frame(v3.encode(v3.new_request(v3.OperationType.ADD_ENTRY, entry, body)))

    def _take(self, count: int) -> bool:
        """Take so many answers; return whether the connection is still there."""
        splitter = FrameSplitter()
        while count:
            try:
                data = self._peer.socket.recv(1 << 16)
            except ConnectionError:
                return False
            if not data:
                return False
            splitter.feed(data)
            for message in splitter.frames():
                count -= 1
                self._note(message)
        return True

    def _note(self, message: bytes) -> None:
        if self._v3:
            answer = v3.decode_response(message)
            status, entry = v3.status_in(answer), v3.body_of(answer).entryId
        else:
            found = v2.decode_response(message)
            assert isinstance(found, v2.AddResponse)
            status, entry = found.status, found.entry
        if status is Status.EOK:
            self.acknowledged.add(entry)
        else:
            self.wrong.append((entry, status))

    def _look(self, entry: int) -> bool:
        """Read an entry that was acknowledged; return whether the connection is still there."""
        if self._v3:
            answer = self._asked(v3.OperationType.READ_ENTRY, entry)
        else:
            self._peer.send(frame(*v2.ReadRequest(self.ledger, entry).parts()))
            whole = self._peer.frame()
            message = v2.decode_response(whole[4:]) if self._peer.open else None
            answer = message.record if isinstance(message, v2.ReadResponse) else None
        if answer is not None and answer != record(self.ledger, entry):
            self.wrong.append((entry, answer))
        return answer is not None

    def _asked(self, operation: v3.OperationType, entry: int) -> bytes | None:
        body = {"ledgerId": self.ledger, "entryId": entry}
        self._peer.send(frame(v3.encode(v3.new_request(operation, entry, body))))
        whole = self._peer.frame()
        if not self._peer.open:
            return None
        return bytes(v3.body_of(v3.decode_response(whole[4:])).body)


def lost(bookie: Bookie, writers: list[Writer]) -> list[tuple[int, int]]:
    """Return (ledger, entry) of what was acknowledged and is not there as it was sent."""
    found = []
    for writer in writers:
        here = set(bookie.entries(writer.ledger).tolist())
        found += [(writer.ledger, entry) for entry in sorted(writer.acknowledged - here)]
        for entry in sorted(writer.acknowledged & here)[:: max(1, len(here) // 500)]:
            if bookie.read_entry(writer.ledger, entry) != record(writer.ledger, entry):
                found.append((writer.ledger, entry))
    return found


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("clients", "operations"),
    [(8, 8_000), pytest.param(64, 100_000, marks=LONG), pytest.param(64, 1_000_000, marks=LONG)],
)
def test_clients_that_vanish(bkstore_server: ServerFactory, clients: int, operations: int) -> None:
    """With clients resetting their connections midway, all that was acknowledged to any of them
    is there, after a kill too."""
    server = bkstore_server()
    each = operations // clients
    writers = [
        Writer(server.address, at, each, vanish=each // 2 if at % 4 == 3 else None)
        for at in range(clients)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [] == [writer.wrong for writer in writers if writer.wrong]
    assert {each} == {len(w.acknowledged) for w in writers if w.ledger % 4 != 3}
    assert all(w.acknowledged for w in writers)
    assert [] == lost(server.bookie, writers)
    assert [] == lost(bkstore_server.crash(server).bookie, writers)


def serving(folder: Path, storage: str) -> tuple[subprocess.Popen[str], tuple[str, int]]:
    """Return a process of `bkstore serve`, and where it listens."""
    words = ["serve", str(folder), "--create", "--storage", storage, "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bkstore", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r" on (\S+):(\d+)\n", line)

    assert found, line + process.stderr.read()
    return process, (found[1], int(found[2]))


@pytest.mark.parametrize(
    ("clients", "enough", "storage"),
    [
        (8, 3_000, "sorted"),
        (8, 3_000, "db"),
        pytest.param(64, 100_000, "sorted", marks=LONG),
        pytest.param(64, 100_000, "db", marks=LONG),
        pytest.param(64, 100_000, "interleaved", marks=LONG),
    ],
)
def test_a_killed_server(tmp_path: Path, clients: int, enough: int, storage: str) -> None:
    """All that was acknowledged before a kill -9 is there when the directory is opened again,
    and a server over it takes the next entries."""
    folder = tmp_path / "bookie"
    process, address = serving(folder, storage)
    writers = [Writer(address, at, 10**9) for at in range(clients)]
    try:
        for writer in writers:
            writer.start()
        while sum(len(writer.acknowledged) for writer in writers) < enough:
            assert any(writer.is_alive() for writer in writers)
            writers[0].join(0.01)
        process.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.join(60)
    finally:
        process.kill()
        process.communicate()

    assert -signal.SIGKILL == process.returncode
    assert [] == [writer.wrong for writer in writers if writer.wrong]
    with Bookie.open(folder) as bookie:
        assert bookie.unclean
        assert [] == lost(bookie, writers)
    process, address = serving(folder, storage)
    late = Writer(address, 10**6, 300)
    late.run()
    process.send_signal(signal.SIGTERM)
    process.communicate()

    assert (0, 300) == (process.returncode, len(late.acknowledged))
    with Bookie.open(folder) as bookie:
        assert not bookie.unclean
        assert [] == lost(bookie, [*writers, late])
