"""A server that asks for SASL: who is served, who is refused, and what strangers cost."""

from __future__ import annotations

import gc
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import InvalidArgument
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.sasl import DigestClient, SaslUser, SaslUsers
from bkstore.wire.sasl.plugins import AUTH_DISABLED, SASL
from bkstore.wire.server import BookieServer, ServerOptions, server_tls
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import AUTHORITY, SERVER, Peer, add, record, secured, statuses

USERS = SaslUsers({"hd": "testpwd", "bookkeeper": "secret"}, allowed_ids="hd")
HD = SaslUser("hd", "testpwd")


def v2_step(peer: Peer, payload: bytes) -> bytes:
    """Send one step of a handshake in v2; return the answer's payload."""
    (answer,) = peer.ask(v2.AuthRequest(SASL, payload))
    assert SASL == answer.plugin
    return bytes(answer.payload)


def v3_step(peer: Peer, payload: bytes) -> bytes:
    """Send one step of a handshake in v3; return the answer's payload."""
    answer = peer.ask_v3(v3.OperationType.AUTH, {"authPluginName": SASL, "payload": payload})
    assert v3.status_in(answer) is Status.EOK
    assert SASL == answer.authResponse.authPluginName
    return bytes(answer.authResponse.payload)


Step = Callable[[Peer, bytes], bytes]
STEPS = pytest.mark.parametrize("step", [v2_step, v3_step], ids=["v2", "v3"])


def _request(step: Step, payload: bytes) -> bytes:
    if step is v2_step:
        return frame(*v2.AuthRequest(SASL, payload).parts())
    body = {"authPluginName": SASL, "payload": payload}
    return frame(v3.encode(v3.new_request(v3.OperationType.AUTH, 7, body)))


def authenticated(peer: Peer, step: Step, user: SaslUser = HD) -> Peer:
    """Authenticate as a user."""
    client = DigestClient(user)
    client.respond(step(peer, client.respond(step(peer, b""))))

    assert client.is_complete
    return peer


@pytest.fixture
def server(bkstore_server: ServerFactory) -> BookieServer:
    """Return a server that asks for SASL, and goes on in TLS."""
    return bkstore_server(server={"sasl": USERS, "tls": server_tls(*SERVER)})


def is_refused(peer: Peer, step: Step) -> bool:
    """Return whether a read is, as one before authentication."""
    if step is v2_step:
        return bool(peer.ask(v2.ReadRequest(7, 0))[0].status is Status.EUA)
    answer = peer.ask_v3(v3.OperationType.READ_ENTRY, {"ledgerId": 7, "entryId": 0})
    return v3.status_in(answer) is Status.EUA and not answer.HasField("readResponse")


@STEPS
def test_who_is_served(server: BookieServer, step: Step) -> None:
    """Requests are refused before the handshake and served after it, also those that are sent
    with its last message; that one is answered as where no authentication is asked for."""
    with Peer(server.address) as peer:
        assert is_refused(peer, step)
        authenticated(peer, step)
        peer.send(frame(*v2.AuthRequest(SASL, b"").parts()), frame(*add(7, 0).parts()))

        assert AUTH_DISABLED == v2.decode_response(peer.frame()[4:]).plugin
        assert v2.decode_response(peer.frame()[4:]).status is Status.EOK
        assert peer.ask(v2.ReadRequest(7, 0))[0].record == record(7, 0)


@STEPS
@pytest.mark.parametrize(
    "user",
    [SaslUser("hd", "nope"), SaslUser("nobody", "testpwd"), SaslUser("bookkeeper", "secret")],
    ids=["password", "name", "not allowed"],
)
def test_who_is_not(server: BookieServer, step: Step, user: SaslUser) -> None:
    """A wrong password, an unknown name and one that is not allowed get no answer, and none to
    a second try on that connection: a read behind them is refused. Another connection is none
    the worse."""
    with Peer(server.address) as peer, Peer(server.address) as other:
        client = DigestClient(user)
        right = DigestClient(HD)
        challenge = step(peer, b"")
        for payload in (client.respond(challenge), right.respond(challenge), b"", b"x" * 5000):
            peer.send(_request(step, payload))

        assert is_refused(peer, step)
        authenticated(other, step)


def test_windows_of_strangers(server: BookieServer) -> None:
    """Requests alike that come together are refused one by one, before and between the steps of a
    handshake, and change nothing; behind it they are served."""
    adds = [add(7, entry) for entry in range(50)]
    with Peer(server.address) as peer:
        assert ["EUA"] * 50 == statuses(peer.ask(*adds))
        client = DigestClient(HD)
        challenge = v2_step(peer, b"")
        assert ["EUA"] * 50 == statuses(peer.ask(*(v2.ReadRequest(7, n) for n in range(50))))
        assert ["EUA"] * 50 == statuses(peer.ask(*adds))
        assert not server.bookie.ledger_exists(7)
        v2_step(peer, client.respond(challenge))
        assert ["EOK"] * 50 == statuses(peer.ask(*adds))
    assert list(range(50)) == server.bookie.entries(7).tolist()


@pytest.mark.parametrize("operation", [each for each in v3.OperationType if each != 9])
def test_every_operation_of_v3_is_refused(
    server: BookieServer, operation: v3.OperationType
) -> None:
    """Before authentication a request of v3 gets its own header back and EUA, priority and all,
    and nothing else; so does AUTH of another plugin, or without a message."""
    request = v3.new_request(operation, 2**64 - 1, None, priority=100)
    with Peer(server.address) as peer:
        peer.send(frame(v3.encode(request)))
        answer = v3.decode_response(peer.frame()[4:])

        assert request.header == answer.header
        answer.ClearField("header")
        assert bytes.fromhex("10f603") == answer.SerializePartialToString()


@pytest.mark.parametrize(
    "request_of_v2",
    [
        v2.AuthRequest(b"other", b"hello"),
        v2.AuthRequest(AUTH_DISABLED, b""),
        v2.BatchReadRequest(7, 0, 1, 10, 1000),
    ],
    ids=["plugin", "disabled", "batch"],
)
def test_what_ends_a_connection(server: BookieServer, request_of_v2: v2.Request) -> None:
    """In v2 another plugin and a batch read have no answer that says so: the connection ends,
    what was answered before reaches the client."""
    with Peer(server.address) as peer:
        peer.send(frame(*v2.ReadRequest(7, 0).parts()), frame(*request_of_v2.parts()))

        assert v2.decode_response(peer.frame()[4:]).status is Status.EUA
        assert peer.ends()


@STEPS
def test_tls_comes_first_or_between(server: BookieServer, step: Step) -> None:
    """START_TLS is served before authentication, also between two of its steps, and makes nobody
    known: requests in TLS are refused until the handshake is over."""
    with Peer(server.address) as peer:
        secured(peer)

        assert is_refused(peer, v3_step)
        authenticated(peer, step)
        assert peer.ask(add(7, 0))[0].status is Status.EOK
    with Peer(server.address) as peer:
        client = DigestClient(HD)
        challenge = v3_step(peer, b"")
        secured(peer)
        client.respond(v3_step(peer, client.respond(challenge)))

        assert client.is_complete
        assert peer.ask(add(7, 1))[0].status is Status.EOK


def start_tls(*more: bytes) -> bytes:
    """Return START_TLS, and what is sent in the clear behind it."""
    request = v3.new_request(v3.OperationType.START_TLS, 7, {})
    return b"".join((frame(v3.encode(request)), *more))


def encrypted(peer: Peer) -> Peer:
    """Begin the TLS that was asked for."""
    assert v3.status_in(v3.decode_response(peer.frame()[4:])) is Status.EOK
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    peer.socket = context.wrap_socket(peer.socket, server_hostname="localhost")
    return peer


def test_a_first_step_behind_start_tls(server: BookieServer) -> None:
    """The first step of v3 may come in the clear with START_TLS, as the real client sends it: it
    is answered in TLS, where the handshake goes on."""
    with Peer(server.address) as peer:
        client = DigestClient(HD)
        peer.send(start_tls(_request(v3_step, b"")))
        encrypted(peer)
        answer = v3.decode_response(peer.frame()[4:])

        assert (v3.OperationType.AUTH, 7) == (answer.header.operation, answer.header.txnId)
        client.respond(v3_step(peer, client.respond(answer.authResponse.payload)))
        assert peer.ask(add(7, 0))[0].status is Status.EOK


@pytest.mark.parametrize(
    "behind",
    [
        [_request(v3_step, b""), _request(v3_step, b"")],
        [
            _request(v3_step, b""),
            frame(v3.encode(v3.new_request(v3.OperationType.READ_LAC, 1, None))),
        ],
        [_request(v2_step, b"")],
        [frame(*v2.ReadRequest(7, 0).parts())],
        [frame(v3.encode(v3.new_request(v3.OperationType.AUTH, 1, None)))],
        [b"\0"],
    ],
    ids=["twice", "request", "v2", "read", "plugin", "part"],
)
def test_what_else_comes_behind_start_tls(
    server: BookieServer, behind: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Anything else in the clear behind START_TLS ends the connection in order once that is
    answered, and so does a first step after the first, or where nobody is asked."""
    with Peer(server.address) as peer:
        peer.send(start_tls(*behind))

        assert v3.status_in(v3.decode_response(peer.frame()[4:])) is Status.EOK
        with suppress(OSError):  # which it may do before it knows
            ssl.create_default_context(cafile=str(AUTHORITY)).wrap_socket(
                peer.socket, server_hostname="localhost"
            )
            pytest.fail("TLS behind a request in the clear")
    with Peer(server.address) as peer:
        v3_step(peer, b"")
        peer.send(start_tls(_request(v3_step, b"")))

        assert v3.status_in(v3.decode_response(peer.frame()[4:])) is Status.EOK
        assert peer.ends()
    server.close()
    gc.collect()

    assert [] == [each for each in caplog.records if each.name == "asyncio"]


def test_a_server_that_asks_nobody(bkstore_server: ServerFactory) -> None:
    """Without users AUTH is answered with the name of the plugin that stands for none, in v2 and
    v3, with the request's own header."""
    with Peer(bkstore_server().address) as peer:
        body = {"authPluginName": SASL, "payload": b""}
        request = v3.new_request(v3.OperationType.AUTH, 5, body, priority=7)
        peer.send(frame(v3.encode(request)))
        answer = v3.decode_response(peer.frame()[4:])

        assert request.header == answer.header
        assert (AUTH_DISABLED, b"") == peer.ask(v2.AuthRequest(SASL, b"x"))[0][:2]


# -- strangers


def serving(bkstore_server: ServerFactory, **options: Any) -> BookieServer:
    """Return a server with users and options."""
    return bkstore_server(server={"sasl": USERS, "options": ServerOptions(**options)})


@pytest.mark.parametrize("said", [b"", _request(v3_step, b""), b"\0"], ids=["nothing", "a", "part"])
def test_a_handshake_that_never_ends(bkstore_server: ServerFactory, said: bytes) -> None:
    """Who does not authenticate in time is let go, whatever it has said; who has, stays."""
    server = serving(bkstore_server, authentication_timeout=0.4)
    with Peer(server.address) as known, Peer(server.address) as peer:
        authenticated(known, v3_step)
        peer.send(said)
        while peer.frame():
            continue

        assert not peer.open
        assert known.ask(add(7, 0))[0].status is Status.EOK


def test_strangers_that_refuse_to_be_quiet(bkstore_server: ServerFactory) -> None:
    """Asking all the time gives nobody more time."""
    server = serving(bkstore_server, authentication_timeout=0.4)
    with Peer(server.address) as peer:
        while peer.open:
            peer.send(frame(*v2.ReadRequest(7, 0).parts()))
            peer.frame()

    assert not peer.open


def test_what_strangers_may_hold(bkstore_server: ServerFactory) -> None:
    """Together they hold so much and no more: the one with most is let go, and who has
    authenticated may hold what it could before."""
    server = serving(bkstore_server, authentication_memory=1 << 20, memory=64 << 20)
    whole = frame(*add(7, 0, b"x" * (3 << 20)).parts())
    few = frame(*add(7, 0, b"x" * 200_000).parts())
    with Peer(server.address) as known, Peer(server.address) as small, Peer(server.address) as big:
        authenticated(known, v2_step)
        known.send(whole[: 2 << 20])
        small.send(few[:100_000])
        big.send(whole[: 2 << 20])

        assert big.ends()
        known.send(whole[2 << 20 :])
        assert v2.decode_response(known.frame()[4:]).status is Status.EOK
        small.send(few[100_000:])
        assert v2.decode_response(small.frame()[4:]).status is Status.EUA


def test_large_requests_of_strangers_are_refused_alike(bkstore_server: ServerFactory) -> None:
    """An add of many bytes is answered with EUA as a small one is, and is not kept."""
    server = serving(bkstore_server)
    with Peer(server.address) as peer:
        for _ in range(20):
            assert peer.ask(add(7, 0, b"x" * (1 << 20)))[0].status is Status.EUA

        assert is_refused(peer, v2_step)
        assert server.held_bytes < 1 << 20


@given(
    st.lists(st.one_of(st.binary(max_size=200), st.just(b"")), min_size=1, max_size=4), st.data()
)
def test_any_payloads(payloads: list[bytes], data: st.DataObject) -> None:
    """Whatever the steps of a handshake say, the server goes on and lets nobody in."""
    server = _fuzzed()
    step = data.draw(st.sampled_from([v2_step, v3_step]))
    with Peer(server.address) as peer:
        for payload in payloads:
            peer.send(_request(step, payload))
        peer.send(_request(step, b"hd"), b"")
        answers = [peer.frame()]  # the challenge, whatever came first

        assert b'realm="bookkeeper"' in answers[0]
        assert is_refused(peer, step)


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_any_messages(plugin: bytes, junk: bytes) -> None:
    """AUTH of any plugin and messages cut or made of junk end with a refusal or the end of the
    connection."""
    server = _fuzzed()
    whole = frame(*v2.AuthRequest(plugin, junk).parts())
    with Peer(server.address) as peer:
        peer.send(whole[:4], whole[4:], frame(whole[4:-1]), frame(b"\x02\x03\x00\x00" + junk))
        peer.socket.shutdown(1)
        while peer.frame():
            continue

        assert not peer.open
    with Peer(server.address) as peer:
        assert is_refused(peer, v2_step)


_servers: list[BookieServer] = []


def _fuzzed() -> BookieServer:
    return _servers[0]


@pytest.fixture(autouse=True)
def _one_server_for_fuzzing(request: pytest.FixtureRequest, bkstore_server: ServerFactory) -> Any:
    """Keep one server for all examples of a test."""
    if "any" in request.node.name:
        _servers[:] = [bkstore_server(server={"sasl": USERS})]
    yield
    _servers.clear()


def test_no_traceback_and_no_secret_in_the_log(
    server: BookieServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused is logged with the user's name and without any secret, on one line."""
    caplog.set_level("DEBUG")
    with Peer(server.address) as peer:
        client = DigestClient(SaslUser("h\nd", "hunter2"))
        proof = client.respond(v2_step(peer, b""))
        peer.send(_request(v2_step, proof))
        assert is_refused(peer, v2_step)

    text = "\n".join(each.getMessage() for each in caplog.records)
    assert "wrong user or password of 'h\\nd'" in text
    assert not any(secret in text for secret in ("hunter2", "testpwd", proof.decode()[-60:]))
    assert not any(each.exc_info for each in caplog.records)


def test_many_handshakes_at_once(server: BookieServer) -> None:
    """Clients authenticate side by side, each with its own nonce."""
    failed: list[object] = []

    def one() -> None:
        try:
            with Peer(server.address) as peer:
                authenticated(peer, v2_step)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed


def test_wrong_arguments(bkstore_server: ServerFactory) -> None:
    """What is no `SaslUsers` is refused at once."""
    with pytest.raises(InvalidArgument, match="sasl must be"):
        bkstore_server(server={"sasl": {"hd": "testpwd"}})
    with suppress(InvalidArgument):
        ServerOptions(authentication_timeout=0)
        pytest.fail("a handshake without time")
