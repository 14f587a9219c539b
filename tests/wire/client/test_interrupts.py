"""Calls that are interrupted at any line: the client can be used on, and closed, by any thread."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from bkstore import wire
from bkstore.errors import BookieUnavailable
from bkstore.formats.entry import Entry, RecordBatch, encode
from bkstore.testing.servers import ServerFactory
from bkstore.wire.client import WireClient, WireClients, client_tls
from bkstore.wire.client.socket_stream import SocketStream
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.server import server_tls
from tests.wire.client.answering import KEY, LEDGER, answer, record
from tests.wire.client.scripted import Peer, served
from tests.wire.server.peer import AUTHORITY, SERVER

_WIRE = str(Path(wire.__file__).parent)
_BATCH = RecordBatch.of([record(entry) for entry in range(3)], range(3))
_LARGE = encode(Entry(LEDGER, 0, -1, 4_000_000, bytes(4_000_000)), "CRC32C")

Call = Callable[[WireClient], object]


class Point(NamedTuple):
    """A line of `bkstore.wire`, and at which of its runs within a call to interrupt (from 1)."""

    file: str
    line: int
    run: int


def _trace(call: Callable[[], object], see: Callable[[str, int], None]) -> None:
    """Call something; `see` is told of each line of `bkstore.wire` before this thread runs it."""

    def look(frame: FrameType, event: str, _value: object) -> Any:
        if not frame.f_code.co_filename.startswith(_WIRE):
            return None
        if event == "line":
            see(frame.f_code.co_filename, frame.f_lineno)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        call()
    finally:
        sys.settrace(before)


def list_points(call: Callable[[], object]) -> list[Point]:
    """Return the first and the last run of every line that a call runs, in order."""
    runs: Counter[tuple[str, int]] = Counter()

    def see(file: str, line: int) -> None:
        runs[file, line] += 1

    _trace(call, see)
    return [Point(*place, run) for place, most in runs.items() for run in sorted({1, most})]


def call_interrupted(call: Callable[[], object], point: Point) -> bool:
    """Call something, interrupted at a point; return whether it came there.

    What the call raises but the interrupt is raised here too.
    """
    runs = 0

    def see(file: str, line: int) -> None:
        nonlocal runs
        if (file, line) == (point.file, point.line):
            runs += 1
            if runs == point.run:
                raise KeyboardInterrupt

    try:
        _trace(call, see)
    except KeyboardInterrupt:
        return True
    return False


def _read(client: WireClient) -> None:
    assert record(1) == client.read_entry(LEDGER, 1)


def _add_batch(client: WireClient) -> None:
    client.add_batch(_BATCH, KEY)


def _read_many(client: WireClient) -> None:
    client.read_many(LEDGER, range(3))


def _look(client: WireClient) -> None:
    assert client.connected


def _leave(client: WireClient) -> None:
    with client:
        _read(client)


CALLS: dict[str, tuple[bool, Call]] = {
    "connect": (False, _read),
    "read": (True, _read),
    "add_batch": (True, _add_batch),
    "read_many": (True, _read_many),
    "connected": (True, _look),
    "leave": (True, _leave),
}
"""Calls, and whether the client is connected before."""


def _fine(peer: Peer) -> None:
    decoder = RequestDecoder()
    for message in peer.requests():
        peer.answer(answer(decoder.decode(message)))


def _within(seconds: float, call: Callable[[], object], what: Callable[[], object]) -> None:
    """Run something in a thread; fail if it does not end, with what it was at, or raises."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"hangs after an interrupt at {what()}"
    if errors:
        raise errors[0]


def _interrupt_everywhere(
    make: Callable[[], WireClient], connected: bool, call: Call, use: Call = _read
) -> None:
    """Interrupt a call at each line in turn: a call of another thread, the next one of this
    thread and the end of the client must come through."""
    reached: list[bool] = []
    points: list[Point] = []
    at: Point | None = None

    def interrupt_each() -> None:
        nonlocal at
        with make() as client:
            if connected:
                use(client)
            points.extend(list_points(lambda: call(client)))
        for at in points:
            client = make()
            if connected:
                use(client)
            reached.append(call_interrupted(lambda: call(client), at))  # noqa: B023
            if not client._main_link._closed:
                _within(10, lambda: use(client), lambda: at)  # noqa: B023
                use(client)
            client.close()
            _within(10, client.close, lambda: at)  # noqa: B023

    _within(100, interrupt_each, lambda: at)
    assert len(points) > 10
    assert sum(reached) > 0.8 * len(points)  # answers may come in other pieces


@pytest.mark.parametrize(
    ("name", "protocol"),
    [*((name, "v2") for name in CALLS if name != "read_many"), ("read", "v3"), ("read_many", "v3")],
)
def test_an_interrupt_at_any_line(name: str, protocol: Any) -> None:
    """The next call of the thread, one of another thread and the end of the client come through,
    whatever line the interrupt came at."""
    connected, call = CALLS[name]
    with served(_fine) as server:
        _interrupt_everywhere(lambda: WireClient(server.address, protocol), connected, call)


def test_an_interrupt_while_the_bookie_does_not_take_what_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Likewise where a request is larger than what the bookie takes at a time."""
    send = SocketStream.send
    sent: dict[SocketStream, int] = {}

    def send_some(stream: SocketStream, data: memoryview) -> int:
        """Send nothing at every second call: then the client has to wait."""
        sent[stream] = sent.get(stream, 0) + 1
        return send(stream, data[: 2 << 20]) if sent[stream] % 2 else 0

    monkeypatch.setattr(SocketStream, "send", send_some)
    with served(_fine) as server:
        _interrupt_everywhere(
            lambda: WireClient(server.address), True, lambda client: client.add_entry(_LARGE, KEY)
        )


def test_an_interrupt_at_any_line_of_tls(bkstore_server: ServerFactory) -> None:
    """Likewise over TLS, whose two directions share a lock."""
    server = bkstore_server(server={"tls": server_tls(*SERVER)})
    server.bookie.add_entry(record(1), KEY)
    context = client_tls(AUTHORITY)
    _interrupt_everywhere(lambda: WireClient(server.address, tls=context), True, _read)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_others_do_not_wait_for_who_was_interrupted(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the thread that receives for all is interrupted, the calls of the others end; what
    became of theirs is not known."""
    waits = SocketStream.wait
    leads, interrupts, sleeps = threading.Event(), threading.Event(), threading.Event()

    def silent(peer: Peer) -> None:
        for number, _ in enumerate(peer.requests()):
            if number == 1:  # both are under way
                sleeps.set()

    def wait(
        stream: SocketStream, seconds: float, *, receive: bool = False, send: bool = False
    ) -> bool:
        if receive and seconds and not interrupts.is_set():
            leads.set()
            assert sleeps.wait(10)
            interrupts.set()
            raise KeyboardInterrupt
        return waits(stream, seconds, receive=receive, send=send)

    ends: list[str] = []

    def read(entry: int) -> None:
        try:
            client.read_entry(LEDGER, entry)
        except (KeyboardInterrupt, BookieUnavailable) as error:
            ends.append(str(error).partition(": ")[2] or type(error).__name__)

    with served(silent) as server, WireClient(server.address, protocol, timeout=100) as client:
        monkeypatch.setattr(SocketStream, "wait", wait)
        threads = [threading.Thread(target=read, args=(entry,), daemon=True) for entry in (0, 1)]
        threads[0].start()
        assert leads.wait(10)
        threads[1].start()
        for thread in threads:
            thread.join(20)

    lost = (
        "the connection is lost (a call was interrupted); pending requests may have been executed"
    )
    assert sorted(["KeyboardInterrupt", lost]) == sorted(ends)


def test_an_interrupt_while_many_are_closed() -> None:
    """A second `close` ends those that an interrupted one left open."""
    with served(_fine) as server:
        bookies = WireClients({"one": server.address, "two": server.address})

        def connect() -> list[WireClient]:
            clients = [bookies[name] for name in ("one", "two")]
            for client in clients:
                _read(client)
            return clients

        connect()
        for at in list_points(bookies.close):
            clients = connect()
            call_interrupted(bookies.close, at)
            bookies.close()

            assert [True, True] == [client._main_link._closed for client in clients]
