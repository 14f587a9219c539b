"""How a server begins to listen, how it ends, and what becomes of its bookie."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import IllegalOperation, InvalidArgument
from bkstore.storage.bookie import Bookie
from bkstore.testing.factories import BookieFactory
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.client.addresses import parse_address
from bkstore.wire.frames import frame
from bkstore.wire.server import Address, BookieServer
from tests.wire.server.held_syncs import HeldSyncs
from tests.wire.server.peer import KEY, Peer, add, record, statuses

Operation = v3.OperationType


def test_a_graceful_stop(bkstore_server: ServerFactory) -> None:
    """A server that stops answers what it has taken in, then hangs up; nobody gets in any more."""
    files = HeldSyncs()
    server = bkstore_server(files=files)
    with Peer(server.address) as peer:
        peer.ask(add(7, 0))
        files.gate.clear()
        files.waiting.clear()
        peer.send(*(frame(*add(7, entry).parts()) for entry in range(1, 301)))

        assert files.waiting.wait(10)
        closer = threading.Thread(target=server.close)
        closer.start()
        peer.send(frame(*add(7, 301).parts()))  # too late, or in time: it has an answer or none
        time.sleep(0.1)
        files.gate.set()
        answers = [v2.decode_response(peer.frame()[4:]) for _ in range(300)]

        assert [*range(1, 301)] == [answer.entry for answer in answers]  # type: ignore[union-attr]
        assert {"EOK"} == set(statuses(answers))
        rest = peer.frame()
        assert not rest or peer.ends()
    closer.join()

    assert server.wait(0)
    with pytest.raises(ConnectionRefusedError):
        Peer(server.address)


def test_one_stop_has_an_end(bkstore_server: ServerFactory) -> None:
    """A client that does not take its answers holds up a stop for as long as that was given."""
    server = bkstore_server()
    server.bookie.add_entry(record(7, 0, bytes(1 << 20)), KEY)
    with Peer(server.address) as peer:
        peer.send(frame(*v2.ReadRequest(7, 0).parts()) * 50)
        time.sleep(0.2)
        server.close(0.2)

        assert server.wait(0)


def test_addresses(tmp_path: Path, bkstore_bookie: BookieFactory) -> None:
    """A server is on loopback, at a free port, unless told otherwise; a taken one is named."""
    bookie = bkstore_bookie()
    server = BookieServer(bookie)
    with pytest.raises(IllegalOperation, match="not been started"):
        _ = server.address
    with server:
        assert ("127.0.0.1", str(server.address)) == (
            server.address.host,
            f"127.0.0.1:{server.address.port}",
        )
        assert repr(server) == f"<BookieServer {server.address}>"
        with pytest.raises(OSError, match="Address already in use") as caught:
            BookieServer(bookie, port=server.address.port).start()
        assert caught.value.filename == str(server.address)
        with pytest.raises(IllegalOperation, match="started"):
            server.start()
    with pytest.raises(IllegalOperation, match="closed"):
        server.start()
    assert repr(server) == f"<BookieServer {server.address} (closed)>"
    server.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 65536),
        ("port", "3181"),
        ("host", None),
        ("host", "a..b"),
        ("host", "a\0b"),
        ("extended", 1),
        ("options", 5),
        ("tls", "file.pem"),
    ],
)
def test_arguments(bkstore_bookie: BookieFactory, name: str, value: Any) -> None:
    """What is no argument is refused by its name, before anything listens."""
    with pytest.raises(InvalidArgument, match=name):
        BookieServer(bkstore_bookie(), **{name: value})


def test_a_server_needs_a_bookie() -> None:
    """What is no bookie is refused."""
    with pytest.raises(InvalidArgument, match="bookie"):
        BookieServer("127.0.0.1")  # type: ignore[arg-type]


def test_the_text_of_an_address() -> None:
    """It is one that a client takes, with brackets around a host that has colons."""
    for address in (Address("::1", 3181), Address("127.0.0.1", 3181)):
        assert address == parse_address(str(address))
    assert str(Address("::1", 3181)) == "[::1]:3181"


def test_a_server_that_broke_down(bkstore_bookie: BookieFactory) -> None:
    """`close` raises what ended the server, once; `wait` says that it has ended."""
    server = BookieServer(bkstore_bookie()).start()
    assert server._server_state is not None

    def broken() -> None:
        raise SystemExit("broken")

    server._server_state.loop.call_soon_threadsafe(broken)

    assert server.wait(10)
    with pytest.raises(SystemExit, match="broken"):
        server.close()
    server.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("bkstore-")]


def test_read_only_stays(bkstore_bookie: BookieFactory) -> None:
    """A server may be made read-only before it starts and while it runs."""
    with BookieServer(bkstore_bookie()) as server:
        server.read_only = True
        with Peer(server.address) as peer:
            assert statuses(peer.ask(add(7, 0))) == ["EREADONLY"]
            server.read_only = False
            assert statuses(peer.ask(add(7, 0))) == ["EOK"]
    again = BookieServer(server.bookie)
    again.read_only = True
    with again, Peer(again.address) as peer:
        assert (again.read_only, statuses(peer.ask(add(7, 1)))) == (True, ["EREADONLY"])


def test_the_bookie_stays_open(bkstore_bookie: BookieFactory) -> None:
    """Closing a server closes no bookie: several may come and go over one."""
    bookie: Bookie = bkstore_bookie()
    with BookieServer(bookie) as one, BookieServer(bookie) as other:
        with Peer(one.address) as peer:
            peer.ask(add(7, 0))
        with Peer(other.address) as peer:
            assert statuses(peer.ask(v2.ReadRequest(7, 0))) == ["EOK"]
    assert bookie.read_entry(7) == record(7, 0)
