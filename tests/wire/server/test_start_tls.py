"""START_TLS: the answer in the clear, then the handshake, then requests as before."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from bkstore.errors import InvalidArgument
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.server import BookieServer, ServerOptions, server_tls
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import AUTHORITY, CLIENT, KEY, SERVER, Peer, add, record, secured

REQUEST = frame(v3.encode(v3.new_request(v3.OperationType.START_TLS, 7, {})))


@pytest.fixture
def server(bkstore_server: ServerFactory) -> BookieServer:
    """Return a server with a certificate."""
    return bkstore_server(server={"tls": server_tls(*SERVER)})


def test_requests_over_tls(server: BookieServer) -> None:
    """After START_TLS both protocols work as before, large answers too; others may stay in the
    clear."""
    server.bookie.add_entries([record(9, entry, bytes(50_000)) for entry in range(40)], KEY)
    with Peer(server.address) as peer, Peer(server.address) as clear:
        read = {"ledgerId": 9, "entryId": 3}
        body = v3.body_of(secured(peer).ask_v3(v3.OperationType.READ_ENTRY, read)).body

        assert record(9, 3, bytes(50_000)) == body
        answers = peer.ask(*(add(7, entry) for entry in range(300)))

        assert {"EOK"} == {answer.status.name for answer in answers}
        (batch,) = peer.ask(v2.BatchReadRequest(9, 0, 1, 0, 5 << 20))

        assert 40 == len(batch.records)
        assert clear.ask(v2.ReadRequest(7, 299))[0].record == record(7, 299)
    assert [*range(300)] == server.bookie.entries(7).tolist()


def test_requests_before_start_tls_are_answered_first(server: BookieServer) -> None:
    """What came before START_TLS is answered in the clear, then START_TLS is."""
    with Peer(server.address) as peer:
        body = {"ledgerId": 7, "entryId": 0, "masterKey": KEY, "body": record(7, 0)}
        request = v3.new_request(v3.OperationType.ADD_ENTRY, 1, body)
        peer.send(frame(v3.encode(request)) + REQUEST)
        answers = [v3.decode_response(peer.frame()[4:]) for _ in range(2)]

        assert [1, 7] == [answer.header.txnId for answer in answers]


def test_start_tls_twice(server: BookieServer) -> None:
    """A second START_TLS is refused, and the connection stays."""
    with Peer(server.address) as peer:
        assert v3.status_in(secured(peer).ask_v3(v3.OperationType.START_TLS, {})) is Status.EBADREQ
        assert (
            v3.status_in(peer.ask_v3(v3.OperationType.READ_LAC, {"ledgerId": 1})) is Status.ENOENTRY
        )


def test_a_request_behind_start_tls_is_dropped(server: BookieServer) -> None:
    """Nothing that was sent in the clear behind START_TLS is ever taken for a secured request."""
    with Peer(server.address) as peer:
        peer.send(REQUEST + frame(*add(7, 0).parts()))
        peer.frame()

        assert peer.ends()
    assert not server.bookie.ledger_exists(7)


def test_half_a_request_behind_start_tls_is_dropped(server: BookieServer) -> None:
    """Nor is a request that begins in the clear and ends in TLS."""
    request = frame(*add(7, 0).parts())
    with Peer(server.address) as peer:
        peer.send(REQUEST + request[:10])
        peer.frame()

        assert peer.ends()


def test_requests_with_the_end_of_the_handshake(server: BookieServer) -> None:
    """A client may send its first requests in one piece with its end of the handshake (TLS 1.3)."""
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(here, there, server_hostname="127.0.0.1")
    with Peer(server.address) as peer:
        peer.send(REQUEST)
        peer.frame()
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.send(there.read())
                here.write(peer.socket.recv(65536))
        for entry in range(3):
            tls.write(frame(*add(7, entry).parts()))
        peer.send(there.read())
        answers = b""
        while len(answers) < 3 * 28:
            try:
                answers += tls.read()
            except ssl.SSLWantReadError:
                here.write(peer.socket.recv(65536))

    assert [0, 1, 2] == server.bookie.entries(7).tolist()
    assert "TLSv1.3" == tls.version()


def test_client_certificates(bkstore_server: ServerFactory) -> None:
    """With an authority for clients, one that shows no certificate of it has no answer."""
    server = bkstore_server(server={"tls": server_tls(*SERVER, AUTHORITY)})
    with Peer(server.address) as peer:
        assert secured(peer, shown=True).ask(add(7, 0))[0].status is Status.EOK
    with Peer(server.address) as peer, pytest.raises((ssl.SSLError, OSError)):  # noqa: PT012
        secured(peer).socket.sendall(frame(*add(7, 1).parts()))
        if not peer.socket.recv(10):
            raise OSError("hung up")
    assert [0] == server.bookie.entries(7).tolist()


def test_a_handshake_that_fails(server: BookieServer, bkstore_server: ServerFactory) -> None:
    """Rubbish instead of a handshake ends the connection; the server stays up, and stops."""
    for rubbish in (b"no hello at all" * 50, b"\x16\x03\x01\xff\xff"):
        with Peer(server.address) as peer:
            peer.send(REQUEST)
            peer.frame()
            peer.send(rubbish)
    with Peer(server.address) as peer:
        peer.send(REQUEST)
        peer.frame()  # and no hello ever
        again = bkstore_server.restart(server)
    with Peer(again.address) as peer:
        assert secured(peer).ask(v2.ReadRequest(7, 0))[0].status is Status.ENOLEDGER


def test_tls_and_a_graceful_stop(bkstore_server: ServerFactory) -> None:
    """What waits is answered over TLS too before the server hangs up."""
    options = ServerOptions(max_group=10)
    server = bkstore_server(server={"tls": server_tls(*SERVER), "options": options})
    with Peer(server.address) as peer:
        secured(peer).send(*(frame(*add(7, entry).parts()) for entry in range(200)))
        while not server.bookie.ledger_exists(7):
            pass
        server.close()
        answered = 0
        while peer.frame():
            answered += 1

    assert answered == server.bookie.entries(7).size > 0


def test_files_of_certificates(tmp_path: Path) -> None:
    """A file that is missing, or is no certificate with its key, is named."""
    with pytest.raises(FileNotFoundError, match=r"none\.pem"):
        server_tls(tmp_path / "none.pem")
    with pytest.raises(InvalidArgument, match=r"server.pem and .*client.key: not a certificate"):
        server_tls(SERVER[0], CLIENT[1])
    with pytest.raises(InvalidArgument, match=r"server.pem: not a certificate and its key"):
        server_tls(SERVER[0])
    with pytest.raises(InvalidArgument, match=r"server.key: cannot load certificates"):
        server_tls(*SERVER, SERVER[1])
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(path.read_bytes() for path in SERVER))

    assert server_tls(both).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_server_stops_after_a_request_behind_start_tls(server: BookieServer) -> None:
    """A request in one packet with START_TLS ends its connection, and no TLS begins there: a
    client that shakes hands nevertheless does not keep the server from stopping."""
    with Peer(server.address) as peer:
        peer.send(REQUEST, frame(*v2.ReadRequest(7, 0).parts()))

        assert v3.status_in(v3.decode_response(peer.frame()[4:])) is Status.EOK
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ssl.create_default_context(cafile=str(AUTHORITY)).wrap_socket(
                peer.socket, server_hostname="localhost"
            )
        stopping = threading.Thread(target=server.close, daemon=True)
        stopping.start()
        stopping.join(20)

        assert not stopping.is_alive()
