"""A client that authenticates at servers that do it wrong: what it raises, and what it survives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from bkstore.errors import BookieUnavailable, CorruptionError, UnauthorizedAccess
from bkstore.wire import v2, v3
from bkstore.wire.client import SaslUser, WireClient
from bkstore.wire.frames import frame
from bkstore.wire.sasl import DigestServer, SaslUsers
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.status_codes import Status
from tests.wire.client.scripted import Peer, Script, served
from tests.wire.server.peer import record

USER = SaslUser("bookkeeper", "hunter2")
USERS = SaslUsers({"bookkeeper": "hunter2"})
CHALLENGE = b'realm="bookkeeper",nonce="n",charset=utf-8,algorithm=md5-sess'
PROTOCOLS = pytest.mark.parametrize("protocol", ["v2", "v3"])
Protocol = Literal["v2", "v3"]


def step(peer: Peer, answer: bytes | None, plugin: bytes = SASL) -> bytes:
    """Take a step of the client and answer it in its protocol; None: not. Return its payload."""
    message = peer.request() or b""
    try:
        request = v3.decode_request(message)
    except CorruptionError:
        asked = v2.decode_request(message)
        assert isinstance(asked, v2.AuthRequest)
        if answer is not None:
            peer.answer(*v2.AuthResponse(plugin, answer).parts())
        return asked.payload
    if answer is not None:
        body = {"authPluginName": plugin, "payload": answer}
        peer.answer(v3.encode(v3.new_response(request, Status.EOK, body)))
    return bytes(request.authRequest.payload)


def shaken(peer: Peer, last: bytes | None = b"") -> None:
    """Go through a whole handshake."""
    server = DigestServer(USERS, b"n")
    server.respond(b"")
    step(peer, CHALLENGE)
    message = peer.request() or b""
    payload = message[message.index(b"charset=") :]
    proof = server.respond(payload)
    if message[:2] == b"\x02\x03":
        peer.answer(*v2.AuthResponse(SASL, proof).parts())
    else:
        body = {"authPluginName": SASL, "payload": proof}
        peer.answer(v3.encode(v3.new_response(v3.decode_request(message), Status.EOK, body)))
    step(peer, last)


def failure(script: Script, protocol: Protocol, timeout: float = 20) -> Exception:
    """Return what a read raises at a server that follows a script; it shows no password."""
    with (
        served(script) as server,
        WireClient(server.address, protocol, timeout=timeout, sasl=USER) as client,
        pytest.raises((BookieUnavailable, CorruptionError, UnauthorizedAccess)) as caught,
    ):
        client.read_entry(7, 0)
    assert "hunter2" not in str(caught.value)
    assert f"127.0.0.1:{server.address[1]}" in str(caught.value)
    return caught.value


def silent(peer: Peer) -> None:
    """Take everything and say nothing."""
    for _ in peer.requests():
        continue


@PROTOCOLS
@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    {
        "gone": (lambda peer: peer.request(), BookieUnavailable, "authenticating as 'bookkeeper'"),
        "junk": (
            lambda peer: step(peer, b"junk"),
            CorruptionError,
            "not a directive of DIGEST-MD5",
        ),
        "long": (lambda peer: step(peer, b"a" * 3000), CorruptionError, "challenge is too long"),
        "plugin": (lambda peer: step(peer, b"", b"krb"), CorruptionError, "a plugin other than"),
        "mechanism": (
            lambda peer: step(peer, CHALLENGE.replace(b"md5-sess", b"sha")),
            UnauthorizedAccess,
            "an unsupported algorithm",
        ),
        "no proof": (
            lambda peer: [step(peer, CHALLENGE) for _ in "12"],
            CorruptionError,
            "lacks rspauth",
        ),
        "wrong proof": (
            lambda peer: [step(peer, CHALLENGE), step(peer, b"rspauth=" + b"0" * 32)],
            UnauthorizedAccess,
            "does not know the password of 'bookkeeper'",
        ),
    }.values(),
)
def test_servers_that_do_it_wrong(
    script: Callable[[Peer], Any], kind: type[Exception], reason: str, protocol: Protocol
) -> None:
    """Each error names the bookie and what is wrong."""

    def whole(peer: Peer) -> None:
        script(peer)
        if reason != "authenticating as 'bookkeeper'":
            silent(peer)

    error = failure(whole, protocol)

    assert kind is type(error)
    assert reason in str(error)


@PROTOCOLS
def test_a_server_that_says_nothing(protocol: Protocol) -> None:
    """The silence of a real bookie after a wrong password is told as what it may be."""
    error = failure(silent, protocol, timeout=0.2)

    assert "no answer to authentication in 0.2 s" in str(error)
    assert "a bookie does not answer a wrong name or password" in str(error)


def test_a_server_that_refuses() -> None:
    """EUA to AUTH is `UnauthorizedAccess`, with the bookie's address."""

    def refuse(peer: Peer) -> None:
        request = v3.decode_request(peer.request() or b"")
        peer.answer(v3.encode(v3.new_response(request, Status.EUA)))
        silent(peer)

    assert "authentication: the bookie answered EUA" in str(failure(refuse, "v3"))


@PROTOCOLS
@pytest.mark.parametrize("last", [None, b"", b"anything"], ids=["none", "empty", "words"])
def test_the_last_answer_does_not_matter(protocol: Protocol, last: bytes | None) -> None:
    """Requests go behind the last step at once; its answer is skipped, or never comes."""

    def serve(peer: Peer) -> None:
        shaken(peer, last)
        message = peer.request() or b""
        if protocol == "v2":
            peer.answer(*v2.ReadResponse(Status.EOK, 7, 0, record(7, 0)).parts())
        else:
            body = {"ledgerId": 7, "entryId": 0, "body": record(7, 0)}
            request = v3.decode_request(message)
            peer.answer(v3.encode(v3.new_response(request, Status.EOK, body)))
        silent(peer)

    with served(serve) as server, WireClient(server.address, protocol, sasl=USER) as client:
        assert record(7, 0) == client.read_entry(7, 0)


@PROTOCOLS
def test_a_second_answer_to_start_tls(protocol: Protocol) -> None:
    """A real bookie says in TLS that START_TLS failed where nobody had authenticated before it: it
    is skipped once, and the connection goes on."""
    asked = v3.new_request(v3.OperationType.START_TLS, 0, {})
    refusal = frame(v3.encode(v3.new_response(asked, Status.EIO)))

    def serve(peer: Peer) -> None:
        peer.send(refusal)
        shaken(peer)
        peer.request()
        peer.send(refusal)
        silent(peer)

    error = failure(serve, protocol)

    assert type(error) is CorruptionError
    assert "an answer without a request" in str(error)
