"""DIGEST-MD5: RFC 2831's worked examples, Java's recorded messages, and proofs that are none."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError, UnauthorizedAccess
from bkstore.wire.sasl import DigestClient, DigestServer, SaslUser, SaslUsers
from bkstore.wire.sasl.directives import quote
from tests.wire.recorded import conversations, needs_golden

CHRIS = SaslUsers({"chris": "secret"}, allowed_ids=".*")
HD = SaslUsers({"hd": "testpwd"}, allowed_ids=".*")

IMAP = {
    "digest_uri": "imap/elwood.innosoft.com",
    "nonce": b"OA6MG9tEQGm2hh",
    "response": (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",'
        b'nc=00000001,cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
        b"response=d388dad90d4bbd760a152321f2143af7,qop=auth"
    ),
    "rspauth": b"rspauth=ea40f60335c427b5527b84dbabcdfffd",
}
ACAP = {
    "digest_uri": "acap/elwood.innosoft.com",
    "nonce": b"OA9BSXrbuRhWay",
    "response": (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA9BSXrbuRhWay",'
        b'nc=00000001,cnonce="OA9BSuZWMSpW8m",digest-uri="acap/elwood.innosoft.com",'
        b"response=6084c6db3fede7352c551284490fd0fc,qop=auth"
    ),
    "rspauth": b"rspauth=2f0b3d7c3c2e486600ef710726aa2eae",
}
"""Section 4 of the RFC: what is in its examples."""


@pytest.mark.parametrize("example", [IMAP, ACAP], ids=["imap", "acap"])
def test_the_examples_of_the_rfc(example: Any) -> None:
    """The RFC's response proves to our server who chris is, and gets the RFC's answer."""
    server = DigestServer(
        CHRIS, example["nonce"], realm="elwood.innosoft.com", digest_uri=example["digest_uri"]
    )
    server.respond(b"")

    assert example["rspauth"] == server.respond(example["response"])
    assert server.is_complete
    assert "chris" == server.username


def tokens(conversation: str) -> list[bytes]:
    """Return the payloads of AUTH in a recorded conversation of v2, in order."""
    (found,) = (each for each in conversations("wire_auth.json") if each["name"] == conversation)
    frames = (f["hex"] for f in found["connections"][0]["frames"] if "hex" in f)
    auth = (bytes.fromhex(each)[8:] for each in frames if each[8:16] == "02030000")
    return [each[8 + (each[7] >= 128) :] for each in auth if each[2:6] == b"sasl"]


def value(message: bytes, name: bytes) -> bytes:
    """Return a quoted value of a message."""
    return message.split(name + b'="')[1].split(b'"')[0]


@needs_golden
def test_what_java_says() -> None:
    """Each message of a recorded handshake of Java's, byte for byte, in both roles."""
    first, challenge, response, proof, last = tokens("v2_both_sides")
    client = DigestClient(SaslUser("hd", "testpwd"), value(response, b"cnonce"))
    server = DigestServer(HD, value(challenge, b",nonce"))

    assert challenge == server.respond(first)
    assert response == client.respond(challenge)
    assert proof == server.respond(response)
    assert last == client.respond(proof)
    assert client.is_complete
    assert server.is_complete


@needs_golden
def test_a_wrong_password_of_javas() -> None:
    """What Java's client says with another password is what ours says, and no proof."""
    first, challenge, response = tokens("v2_wrong_password")
    client = DigestClient(SaslUser("hd", "nope"), value(response, b"cnonce"))
    server = DigestServer(HD, value(challenge, b",nonce"))

    assert challenge == server.respond(first)
    assert response == client.respond(challenge)
    with pytest.raises(UnauthorizedAccess):
        server.respond(response)
    assert not server.is_complete


RESPONSE = IMAP["response"]


@pytest.mark.parametrize(
    ("found", "instead"),
    {
        "user": (b'"chris"', b'"carol"'),
        "proof": (b"d388", b"d389"),
        "nonce": (b'nonce="OA6MG9', b'nonce="OA6MG8'),
        "realm": (b'realm="elwood', b'realm="elmwood'),
        "count": (b"nc=00000001", b"nc=00000002"),
        "qop": (b"qop=auth", b"qop=auth-int"),
        "service": (b'uri="imap', b'uri="smtp'),
        "charset": (b"charset=utf-8", b"charset=latin"),
        "no user": (b'username="chris",', b""),
        "no realm": (b'realm="elwood.innosoft.com",', b""),
        "no nonce": (b'nonce="OA6MG9tEQGm2hh",', b""),
        "no cnonce": (b'cnonce="OA6MHXh6VqTrRk",', b""),
        "no service": (b'digest-uri="imap/elwood.innosoft.com",', b""),
        "no proof": (b"response=d388dad90d4bbd760a152321f2143af7,", b""),
        "twice": (b"qop=auth", b"qop=auth,qop=auth"),
        "another user": (b"qop=auth", b'qop=auth,authzid="carol"'),
        "buffer": (b"qop=auth", b"qop=auth,maxbuf=many"),
        "no UTF-8": (b'"chris"', b'"chris\xff"'),
    }.values(),
)
def test_proofs_that_are_none(found: bytes, instead: bytes) -> None:
    """A response that differs in one place is refused, and so is the right one behind it; the
    error shows neither proof nor password."""
    server = DigestServer(
        CHRIS, IMAP["nonce"], realm="elwood.innosoft.com", digest_uri=IMAP["digest_uri"]
    )
    server.respond(b"")
    assert 1 == RESPONSE.count(found)

    with pytest.raises((UnauthorizedAccess, CorruptionError)) as caught:
        server.respond(RESPONSE.replace(found, instead))
    with pytest.raises(UnauthorizedAccess):
        server.respond(RESPONSE)

    assert not server.is_complete
    assert "secret" not in str(caught.value)
    assert "dad90d4b" not in str(caught.value)


def test_an_id_that_is_not_allowed() -> None:
    """Who knows the password and does not match the allowed ids is not let in."""
    users = SaslUsers({"hd": "testpwd", "bookkeeper": "other"})
    server, client = DigestServer(users), DigestClient(SaslUser("hd", "testpwd"))
    response = client.respond(server.respond(b""))

    with pytest.raises(UnauthorizedAccess, match="allowed ids"):
        server.respond(response)


@pytest.mark.parametrize(
    ("found", "instead", "reason"),
    [
        (b'realm="bookkeeper"', b'realm="elsewhere"', "another realm"),
        (b'realm="bookkeeper",', b"", "lacks realm"),
        (b'nonce="n"', b'nonce="m"', "another nonce"),
    ],
)
def test_proofs_of_another_challenge(found: bytes, instead: bytes, reason: str) -> None:
    """Who knows the password and proves it to another challenge is not let in: a proof that was
    heard elsewhere is worth nothing here."""
    server, client = DigestServer(HD, b"n"), DigestClient(SaslUser("hd", "testpwd"))
    response = client.respond(server.respond(b"").replace(found, instead))

    with pytest.raises((UnauthorizedAccess, CorruptionError), match=reason):
        server.respond(response)


def test_a_proof_for_another_service() -> None:
    """Nor is one for another service; letters of either case name the same."""
    for uri, same in (("imap/bookkeeper", False), ("BookKeeper/BOOKKEEPER", True)):
        server = DigestServer(HD)
        client = DigestClient(SaslUser("hd", "testpwd"), digest_uri=uri)
        response = client.respond(server.respond(b""))
        if same:
            client.respond(server.respond(response))
        else:
            with pytest.raises(UnauthorizedAccess, match="another service"):
                server.respond(response)

        assert same is server.is_complete


def test_a_proof_that_acts_for_another() -> None:
    """A right password with the id of another user to act for is refused."""
    import hashlib

    def digest(data: bytes) -> bytes:
        return hashlib.md5(data).digest()

    nonce, uri = b"n", b"bookkeeper/bookkeeper"
    key = digest(digest(b"hd:bookkeeper:testpwd") + b":n:c:root").hex().encode()
    proof = digest(
        b":".join(
            [key, nonce, b"00000001", b"c", b"auth", digest(b"AUTHENTICATE:" + uri).hex().encode()]
        )
    ).hex()
    server = DigestServer(HD, nonce)
    server.respond(b"")

    with pytest.raises(UnauthorizedAccess, match="another user"):
        server.respond(
            b'charset=utf-8,username="hd",realm="bookkeeper",nonce="n",nc=00000001,cnonce="c",'
            b'digest-uri="bookkeeper/bookkeeper",response=%b,qop=auth,authzid="root"'
            % proof.encode()
        )


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"hello",
        b'realm="bookkeeper",charset=utf-8,algorithm=md5-sess',
        b'realm="bookkeeper",nonce="n",charset=utf-8',
        b'realm="bookkeeper",nonce="n",algorithm=md5',
        b'realm="bookkeeper",nonce="n",algorithm=md5-sess,charset=utf-16',
        b'realm="bookkeeper",nonce="n",algorithm=md5-sess,qop="auth-conf"',
        b'realm="a",realm="b",nonce="n",algorithm=md5-sess',
        b'nonce="' + 2048 * b"n" + b'",algorithm=md5-sess',
    ],
)
def test_challenges_that_are_none(challenge: bytes) -> None:
    """A client answers no challenge that is damaged or asks for more than authentication."""
    with pytest.raises((UnauthorizedAccess, CorruptionError)):
        DigestClient(SaslUser("hd", "testpwd")).respond(challenge)


def test_a_server_that_does_not_know_the_password() -> None:
    """A client is not complete with a server whose proof is wrong, or missing."""
    challenge = b'realm="bookkeeper",nonce="n",charset=utf-8,algorithm=md5-sess'
    for answer in (b"rspauth=" + 32 * b"0", b"", b"rspauth=", challenge):
        client = DigestClient(SaslUser("hd", "testpwd"))
        client.respond(challenge)
        with pytest.raises((UnauthorizedAccess, CorruptionError)):
            client.respond(answer)

        assert not client.is_complete


def test_each_handshake_has_nonces_of_its_own() -> None:
    """Nonces of servers and clients are 40 characters that do not repeat."""
    challenges = {DigestServer(HD).respond(b"") for _ in range(20)}
    challenge = challenges.pop()
    responses = {DigestClient(SaslUser("hd", "x")).respond(challenge) for _ in range(20)}

    assert 19 == len(challenges)
    assert 20 == len(responses)
    assert {40} == {len(value(each, b"cnonce")) for each in responses}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(NAMES, NAMES, NAMES)
def test_any_user_and_password(name: str, password: str, other: str) -> None:
    """Whatever stands in name and password, the right one is let in and another is not."""
    users = SaslUsers({name: password}, allowed_ids="(?s).*")
    server, client = DigestServer(users), DigestClient(SaslUser(name, password))
    client.respond(server.respond(client.respond(server.respond(b""))))

    assert client.is_complete
    assert name == server.username
    server, client = DigestServer(users), DigestClient(SaslUser(name, password + other))
    response = client.respond(server.respond(b""))
    with pytest.raises(UnauthorizedAccess):
        server.respond(response)


@given(st.binary(max_size=300))
def test_any_bytes(message: bytes) -> None:
    """Whatever comes is refused by one of two errors, in both roles and both steps."""
    for side in (DigestServer(HD), DigestClient(SaslUser("hd", "testpwd"))):
        for _ in range(3):
            with suppress(CorruptionError, UnauthorizedAccess):
                side.respond(message)

        assert not side.is_complete


@given(st.data())
def test_any_change_of_a_response(data: st.DataObject) -> None:
    """A response with any byte changed, dropped or doubled is refused, or means the same."""
    server = DigestServer(HD, b"n")
    client = DigestClient(SaslUser("hd", "testpwd"), b"c")
    response = client.respond(server.respond(b""))
    at = data.draw(st.integers(0, len(response) - 1))
    changed = data.draw(st.binary(max_size=2))
    mutated = response[:at] + changed + response[at + 1 :]
    proof = DigestServer(HD, b"n")
    proof.respond(b"")
    right = proof.respond(response)

    try:
        assert right == server.respond(mutated)
    except (CorruptionError, UnauthorizedAccess):
        assert not server.is_complete


def test_quoting_is_what_java_does() -> None:
    """Quotes, backslashes and control characters get a backslash; tabs and ends of lines do not."""
    assert rb'"a\"b\\c' + b'\\\x01\t\r\n\\\x7f\xe4"' == quote(b'a"b\\c\x01\t\r\n\x7f\xe4')
