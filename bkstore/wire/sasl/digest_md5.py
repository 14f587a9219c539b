"""DIGEST-MD5 (RFC 2831), both sides, for authentication alone (``qop=auth``).

    client                              server
      (nothing)                ->
                               <-         realm="bookkeeper",nonce="...",charset=utf-8,...
      username="hd",nonce="...",
      cnonce="...",response=...  ->
                               <-         rspauth=...
      (nothing)                ->

`response` proves to the server that the client knows the password, `rspauth` to the client that
the server does; neither says it. Messages are as Java's, field by field. Nothing here does I/O.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from bkstore.errors import CorruptionError, UnauthorizedAccess
from bkstore.wire.sasl.credentials import SaslUser, SaslUsers
from bkstore.wire.sasl.directives import parse_directives, quoted

_REALM = "bookkeeper"
_DIGEST_URI = "bookkeeper/bookkeeper"
"""Service and host: BookKeeper names no host of its own here, so a proof is for any bookie."""

LONGEST_CHALLENGE, LONGEST_RESPONSE = 2048, 4096
"""Bytes, as the RFC has them."""

_IN_CHALLENGE = (b"realm", b"nonce", b"qop", b"algorithm", b"charset")
_IN_RESPONSE = (
    b"username", b"realm", b"nonce", b"cnonce", b"nc", b"qop", b"digest-uri", b"response",
    b"maxbuf", b"charset", b"authzid",
)  # fmt: skip
_COUNT = b"00000001"  # of uses of a nonce: each is used once
_UTF8, _LATIN = "utf-8", "iso-8859-1"
_NONCE_SIZE = 30  # bytes, a multiple of 3: 40 characters


def new_nonce() -> bytes:
    """Return a nonce that nobody can guess: 40 characters, as many as Java's have."""
    return base64.b64encode(secrets.token_bytes(_NONCE_SIZE))


class DigestServer:
    """The server's side of one handshake.

    `respond` takes each message of the client; the handshake is over when it is `complete`, and
    `username` says then who the client is. It never is once `respond` has raised.

    >>> server = DigestServer(SaslUsers({"bookkeeper": "secret"}), nonce=b"abc")
    >>> server.respond(b"")
    b'realm="bookkeeper",nonce="abc",charset=utf-8,algorithm=md5-sess'
    """

    def __init__(
        self,
        users: SaslUsers,
        nonce: bytes | None = None,
        *,
        realm: str = _REALM,
        digest_uri: str = _DIGEST_URI,
    ) -> None:
        self._users = users
        self._nonce = nonce
        self._realm = realm
        self._digest_uri = digest_uri
        self._step = 1
        self.username: str | None = None

    @property
    def begun(self) -> bool:
        """Whether the challenge has been given."""
        return self._step != 1

    @property
    def complete(self) -> bool:
        """Whether the client has proved who it is."""
        return self.username is not None

    def respond(self, message: bytes) -> bytes:
        """Return the answer to a message of the client.

        The first one is answered with the challenge, whatever is in it, as Java does. Raises
        `UnauthorizedAccess` for a proof that is none, for a user who is not known or not allowed,
        and for each message after that; `CorruptionError` for one that cannot be read. Neither
        shows what the client sent, but for its user name.
        """
        step, self._step = self._step, 0
        if len(message) > LONGEST_RESPONSE:
            raise CorruptionError(None, LONGEST_RESPONSE, "too long a message of DIGEST-MD5")
        if step == 1:
            self._step = 2
            return self._challenge()
        if step == 2:
            return self._proof(parse_directives(message, _IN_RESPONSE))
        raise UnauthorizedAccess("DIGEST-MD5: a message after the handshake")

    def _challenge(self) -> bytes:
        self._nonce = self._nonce or new_nonce()
        realm = quoted(self._realm.encode())
        fields = b"realm=%b,nonce=%b,charset=utf-8,algorithm=md5-sess"
        return fields % (realm, quoted(self._nonce))

    def _proof(self, fields: Mapping[bytes, bytes]) -> bytes:
        """Return ``rspauth`` to a response that proves who the client is."""
        coding = _coding(fields)
        username = _text(fields, b"username", coding)
        self._check_fields(fields, coding)
        password = self._users.passwords.get(username)
        answer = _Answer(
            username,
            new_nonce().decode() if password is None else password,  # as long as for one known
            _text(fields, b"realm", coding),
            fields[b"nonce"],
            _needed(fields, b"cnonce"),
            _needed(fields, b"digest-uri"),
            fields.get(b"authzid"),
        )
        expected = answer.proof(b"AUTHENTICATE")
        right = hmac.compare_digest(expected, _needed(fields, b"response"))
        if password is None or not right:
            raise UnauthorizedAccess(f"DIGEST-MD5: wrong user or password of {username[:80]!r}")
        if fields.get(b"authzid", fields[b"username"]) != fields[b"username"]:
            raise UnauthorizedAccess(f"DIGEST-MD5: {username[:80]!r} would act for another user")
        if not self._users.allows(username):
            raise UnauthorizedAccess(
                f"DIGEST-MD5: {username[:80]!r} is not among the allowed ids "
                "(saslJaasClientAllowedIds)"
            )
        self.username = username
        return b"rspauth=" + answer.proof(b"")

    def _check_fields(self, fields: Mapping[bytes, bytes], coding: str) -> None:
        """Refuse a response to another challenge than this one."""
        assert self._nonce is not None
        if _text(fields, b"realm", coding) != self._realm:
            raise UnauthorizedAccess("DIGEST-MD5: the response is for another realm")
        if _needed(fields, b"nonce") != self._nonce:
            raise UnauthorizedAccess("DIGEST-MD5: the response is to another nonce")
        if fields.get(b"nc", _COUNT) != _COUNT:
            raise UnauthorizedAccess("DIGEST-MD5: the nonce was used before")
        if fields.get(b"qop", b"auth") != b"auth":
            raise UnauthorizedAccess("DIGEST-MD5: only qop=auth is served")
        uri = _text(fields, b"digest-uri", coding)
        if uri.lower() != self._digest_uri.lower():
            raise UnauthorizedAccess("DIGEST-MD5: the response is for another service")
        maxbuf = fields.get(b"maxbuf", b"65536")
        if not maxbuf.isdigit() or int(maxbuf) >= 2**31:
            raise CorruptionError(None, None, "maxbuf of DIGEST-MD5 is no number")


class DigestClient:
    """The client's side of one handshake, as `user`.

    `respond` takes what the server sent and returns what is sent next; the first message is empty,
    and so is the last, after which the handshake is `complete`.
    """

    def __init__(
        self, user: SaslUser, cnonce: bytes | None = None, *, digest_uri: str = _DIGEST_URI
    ) -> None:
        self._user = user
        self._cnonce = cnonce
        self._digest_uri = digest_uri
        self._expected = b""
        self._step = 1
        self.complete = False

    def respond(self, message: bytes) -> bytes:
        """Return the answer to a challenge, or nothing to the server's proof.

        Raises `CorruptionError` for a message that is none, `UnauthorizedAccess` for a challenge
        that asks for more than DIGEST-MD5 for authentication, and for a server that does not know
        the password.
        """
        step, self._step = self._step, 0
        if len(message) > LONGEST_CHALLENGE:
            raise CorruptionError(None, LONGEST_CHALLENGE, "too long a challenge of DIGEST-MD5")
        if step == 1:
            self._step = 2
            return self._response(parse_directives(message, _IN_CHALLENGE))
        if step == 2:
            proof = _needed(parse_directives(message, [b"rspauth"]), b"rspauth")
            if not hmac.compare_digest(proof, self._expected):
                who = repr(self._user.username)
                raise UnauthorizedAccess(f"the bookie does not know the password of {who}")
            self.complete = True
            return b""
        raise CorruptionError(None, None, "a message of DIGEST-MD5 after the handshake")

    def _response(self, fields: Mapping[bytes, bytes]) -> bytes:
        coding = _coding(fields)
        if _needed(fields, b"algorithm") != b"md5-sess":
            raise UnauthorizedAccess("DIGEST-MD5: the bookie asks for another algorithm")
        if b"auth" not in fields.get(b"qop", b"auth").replace(b",", b" ").split():
            raise UnauthorizedAccess("DIGEST-MD5: the bookie asks for encryption by SASL")
        nonce, cnonce = _needed(fields, b"nonce"), self._cnonce or new_nonce()
        realm = fields.get(b"realm", b"")
        try:
            username = self._user.username.encode(coding)
        except UnicodeError:
            who = repr(self._user.username)
            raise UnauthorizedAccess(f"DIGEST-MD5: the bookie takes no name as {who}") from None
        answer = _Answer(
            self._user.username,
            self._user.password,
            _text({b"realm": realm}, b"realm", coding),
            nonce,
            cnonce,
            self._digest_uri.encode(),
            self._user.username.encode(),
        )
        self._expected = answer.proof(b"")
        parts = [b"charset=utf-8"] if coding == _UTF8 else []
        parts.append(b"username=" + quoted(username))
        if realm:
            parts.append(b"realm=" + quoted(realm))
        parts += [
            b"nonce=" + quoted(nonce),
            b"nc=" + _COUNT,
            b"cnonce=" + quoted(cnonce),
            b"digest-uri=" + quoted(self._digest_uri.encode()),
            b"maxbuf=65536",
            b"response=" + answer.proof(b"AUTHENTICATE"),
            b"qop=auth",
            b"authzid=" + quoted(self._user.username.encode()),
        ]
        return b",".join(parts)


class _Answer:
    """What the proofs of a handshake are made of (RFC 2831, 2.1.2.1)."""

    def __init__(
        self,
        username: str,
        password: str,
        realm: str,
        nonce: bytes,
        cnonce: bytes,
        digest_uri: bytes,
        authzid: bytes | None,
    ) -> None:
        secret = _md5(b":".join(map(_as_latin, (username, realm, password)))).digest()
        ends = [nonce, cnonce] if authzid is None else [nonce, cnonce, authzid]
        self._key = _hex(b":".join([secret, *ends]))
        self._middle = b":".join([nonce, _COUNT, cnonce, b"auth"])
        self._digest_uri = digest_uri

    def proof(self, method: bytes) -> bytes:
        """Return 32 hexadecimal digits: of the client by ``AUTHENTICATE``, of the server by
        nothing."""
        asked = _hex(method + b":" + self._digest_uri)
        return _hex(b":".join([self._key, self._middle, asked]))


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)  # which systems that forbid it still have


def _hex(data: bytes) -> bytes:
    return _md5(data).hexdigest().encode()


def _as_latin(text: str) -> bytes:
    """Return text as it is hashed: in ISO 8859-1 where that has all of it, else in UTF-8."""
    try:
        return text.encode(_LATIN)
    except UnicodeError:
        return text.encode(_UTF8)


def _coding(fields: Mapping[bytes, bytes]) -> str:
    charset = fields.get(b"charset")
    if charset is None:
        return _LATIN
    if charset.lower() != b"utf-8":
        raise CorruptionError(None, None, "charset of DIGEST-MD5 is not utf-8")
    return _UTF8


def _needed(fields: Mapping[bytes, bytes], name: bytes) -> bytes:
    value = fields.get(name)
    if value is None:
        raise CorruptionError(None, None, f"message of DIGEST-MD5 lacks {name.decode()}")
    return value


def _text(fields: Mapping[bytes, bytes], name: bytes, coding: str) -> str:
    try:
        return _needed(fields, name).decode(coding)
    except UnicodeDecodeError:
        reason = f"{name.decode()} of DIGEST-MD5 is not {coding}"
        raise CorruptionError(None, None, reason) from None
