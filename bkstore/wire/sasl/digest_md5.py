"""DIGEST-MD5 (RFC 2831), both sides, for authentication alone (``qop=auth``).

    client                              server
      (nothing)                ->
                               <-         realm="bookkeeper",nonce="...",charset=utf-8,...
      username="hd",nonce="...",
      cnonce="...",response=...  ->
                               <-         rspauth=...
      (nothing)                ->

`response` proves that the client knows the password, `rspauth` that the server does; neither
reveals it. `nonce` and `cnonce` are random numbers of server and client, which both proofs contain.
Messages have the same fields as Java's. Does no I/O.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from bkstore.errors import CorruptionError, UnauthorizedAccess
from bkstore.wire.sasl.credentials import SaslUser, SaslUsers
from bkstore.wire.sasl.directives import parse_directives, quote

_REALM = "bookkeeper"
_DIGEST_URI = "bookkeeper/bookkeeper"
"""Service and host. BookKeeper uses the same host for all bookies, so a proof is valid for any."""

MAX_CHALLENGE_BYTES, MAX_RESPONSE_BYTES = 2048, 4096
"""The most bytes of each message, as in the RFC."""

_CHALLENGE_FIELDS = (b"realm", b"nonce", b"qop", b"algorithm", b"charset")
_RESPONSE_FIELDS = (
    b"username", b"realm", b"nonce", b"cnonce", b"nc", b"qop", b"digest-uri", b"response",
    b"maxbuf", b"charset", b"authzid",
)  # fmt: skip
_NONCE_COUNT = b"00000001"  # how often the nonce is used: once
_UTF8, _LATIN = "utf-8", "iso-8859-1"
_NONCE_BYTES = 30  # a multiple of 3: 40 characters in base64


def new_nonce() -> bytes:
    """Return a random nonce of 40 characters, the length of Java's."""
    return base64.b64encode(secrets.token_bytes(_NONCE_BYTES))


class DigestServer:
    """The server's side of one handshake.

    `respond` takes each message of the client. Once the handshake is `is_complete`, `username` is
    the client's. It never completes after `respond` has raised an error.

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
        self._step = 1  # the number of the message that is expected
        self.username: str | None = None

    @property
    def has_sent_challenge(self) -> bool:
        """Whether the challenge has been sent."""
        return self._step != 1

    @property
    def is_complete(self) -> bool:
        """Whether the client has authenticated."""
        return self.username is not None

    def respond(self, message: bytes) -> bytes:
        """Return the answer to a message of the client.

        The answer to the first one is the challenge, whatever its content, as in Java. Raises
        `UnauthorizedAccess` for a wrong proof, an unknown or disallowed user, and any later
        message; `CorruptionError` for a malformed one. Errors show only the user name.
        """
        step, self._step = self._step, 0  # 0: after an error, no message is accepted
        if len(message) > MAX_RESPONSE_BYTES:
            raise CorruptionError(None, MAX_RESPONSE_BYTES, "the DIGEST-MD5 message is too long")
        if step == 1:
            self._step = 2
            return self._make_challenge()
        if step == 2:
            return self._verify_response(parse_directives(message, _RESPONSE_FIELDS))
        raise UnauthorizedAccess("DIGEST-MD5: a message after the handshake")

    def _make_challenge(self) -> bytes:
        """Return the first message: realm, nonce and algorithm."""
        self._nonce = self._nonce or new_nonce()
        realm = quote(self._realm.encode())
        fields = b"realm=%b,nonce=%b,charset=utf-8,algorithm=md5-sess"
        return fields % (realm, quote(self._nonce))

    def _verify_response(self, fields: Mapping[bytes, bytes]) -> bytes:
        """Verify the client's response and set `username`; return the answer with ``rspauth``.
        Raises `UnauthorizedAccess` if the proof is wrong or the user is not allowed."""
        charset = _text_encoding(fields)
        username = _decoded_field(fields, b"username", charset)
        self._check_challenge_fields(fields, charset)
        password = self._users.passwords.get(username)
        expected, rspauth = _compute_proofs(
            username,
            # for an unknown user a random one, so that the check takes as long
            new_nonce().decode() if password is None else password,
            _decoded_field(fields, b"realm", charset),
            fields[b"nonce"],
            _required_field(fields, b"cnonce"),
            _required_field(fields, b"digest-uri"),
            fields.get(b"authzid"),
        )
        is_right = hmac.compare_digest(expected, _required_field(fields, b"response"))
        if password is None or not is_right:
            raise UnauthorizedAccess(f"DIGEST-MD5: wrong user or password of {username[:80]!r}")
        if fields.get(b"authzid", fields[b"username"]) != fields[b"username"]:
            raise UnauthorizedAccess(f"DIGEST-MD5: {username[:80]!r} may not act as another user")
        if not self._users.is_allowed(username):
            reason = "is not among the allowed ids (saslJaasClientAllowedIds)"
            raise UnauthorizedAccess(f"DIGEST-MD5: {username[:80]!r} {reason}")
        self.username = username
        return b"rspauth=" + rspauth

    def _check_challenge_fields(self, fields: Mapping[bytes, bytes], charset: str) -> None:
        """Raise `UnauthorizedAccess` if the response is not to this server's challenge (realm,
        nonce, service), or chooses options that the challenge does not offer."""
        assert self._nonce is not None
        if _decoded_field(fields, b"realm", charset) != self._realm:
            raise UnauthorizedAccess("DIGEST-MD5: the response is for another realm")
        if _required_field(fields, b"nonce") != self._nonce:
            raise UnauthorizedAccess("DIGEST-MD5: the response is to another nonce")
        if fields.get(b"nc", _NONCE_COUNT) != _NONCE_COUNT:
            raise UnauthorizedAccess("DIGEST-MD5: the nonce was used before")
        if fields.get(b"qop", b"auth") != b"auth":
            raise UnauthorizedAccess("DIGEST-MD5: only qop=auth is supported")
        uri = _decoded_field(fields, b"digest-uri", charset)
        if uri.lower() != self._digest_uri.lower():
            raise UnauthorizedAccess("DIGEST-MD5: the response is for another service")
        maxbuf = fields.get(b"maxbuf", b"65536")
        if not maxbuf.isdigit() or int(maxbuf) >= 2**31:
            raise CorruptionError(None, None, "maxbuf of DIGEST-MD5 is not a number")


class DigestClient:
    """The client's side of one handshake, as `user`.

    `respond` takes a message of the server and returns the next one to send. The first and the last
    message to the server are empty; after the last the handshake is `is_complete`.
    """

    def __init__(
        self, user: SaslUser, cnonce: bytes | None = None, *, digest_uri: str = _DIGEST_URI
    ) -> None:
        self._user = user
        self._cnonce = cnonce
        self._digest_uri = digest_uri
        self._expected_rspauth = b""
        self._step = 1  # the number of the message that is expected
        self.is_complete = False

    def respond(self, message: bytes) -> bytes:
        """Return the response to a challenge, or b"" once the server's proof is verified. Raises
        `CorruptionError` for a malformed message, `UnauthorizedAccess` for a challenge that
        requires another algorithm or encryption, and if the server does not know the password."""
        step, self._step = self._step, 0  # 0: after an error, no message is accepted
        if len(message) > MAX_CHALLENGE_BYTES:
            raise CorruptionError(None, MAX_CHALLENGE_BYTES, "the DIGEST-MD5 challenge is too long")
        if step == 1:
            self._step = 2
            return self._make_response(parse_directives(message, _CHALLENGE_FIELDS))
        if step == 2:
            proof = _required_field(parse_directives(message, [b"rspauth"]), b"rspauth")
            if not hmac.compare_digest(proof, self._expected_rspauth):
                who = repr(self._user.username)
                raise UnauthorizedAccess(f"the bookie does not know the password of {who}")
            self.is_complete = True
            return b""
        raise CorruptionError(None, None, "a message of DIGEST-MD5 after the handshake")

    def _make_response(self, fields: Mapping[bytes, bytes]) -> bytes:
        """Return the response to a challenge, and keep the ``rspauth`` expected in return."""
        charset = _text_encoding(fields)
        if _required_field(fields, b"algorithm") != b"md5-sess":
            raise UnauthorizedAccess("DIGEST-MD5: the bookie requires an unsupported algorithm")
        if b"auth" not in fields.get(b"qop", b"auth").replace(b",", b" ").split():
            raise UnauthorizedAccess("DIGEST-MD5: the bookie requires SASL encryption")
        nonce, cnonce = _required_field(fields, b"nonce"), self._cnonce or new_nonce()
        realm = fields.get(b"realm", b"")
        try:
            username = self._user.username.encode(charset)
        except UnicodeError:
            who = repr(self._user.username)
            reason = f"DIGEST-MD5: cannot encode the name {who} for the bookie"
            raise UnauthorizedAccess(reason) from None
        response, self._expected_rspauth = _compute_proofs(
            self._user.username,
            self._user.password,
            _decoded_field({b"realm": realm}, b"realm", charset),
            nonce,
            cnonce,
            self._digest_uri.encode(),
            self._user.username.encode(),
        )
        directives = [b"charset=utf-8"] if charset == _UTF8 else []
        directives.append(b"username=" + quote(username))
        if realm:
            directives.append(b"realm=" + quote(realm))
        directives += [
            b"nonce=" + quote(nonce),
            b"nc=" + _NONCE_COUNT,
            b"cnonce=" + quote(cnonce),
            b"digest-uri=" + quote(self._digest_uri.encode()),
            b"maxbuf=65536",
            b"response=" + response,
            b"qop=auth",
            b"authzid=" + quote(self._user.username.encode()),
        ]
        return b",".join(directives)


def _compute_proofs(
    username: str,
    password: str,
    realm: str,
    nonce: bytes,
    cnonce: bytes,
    digest_uri: bytes,
    authzid: bytes | None,
) -> tuple[bytes, bytes]:
    """Return the proofs of client and server that they know the password (RFC 2831, 2.1.2.1), 32
    hex digits each. The client's is its ``response``, the server's the ``rspauth``."""
    # In the RFC's terms: A1 is who (with the nonces), A2 for which service; a proof hashes both.
    secret_hash = _md5(b":".join(map(_encode_for_hash, (username, realm, password)))).digest()
    key_fields = [nonce, cnonce] if authzid is None else [nonce, cnonce, authzid]
    key = _hex(b":".join([secret_hash, *key_fields]))
    nonces = b":".join([nonce, _NONCE_COUNT, cnonce, b"auth"])
    client_hash, server_hash = _hex(b"AUTHENTICATE:" + digest_uri), _hex(b":" + digest_uri)
    return _hex(b":".join([key, nonces, client_hash])), _hex(b":".join([key, nonces, server_hash]))


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)  # works where MD5 is forbidden for security


def _hex(data: bytes) -> bytes:
    return _md5(data).hexdigest().encode()


def _encode_for_hash(text: str) -> bytes:
    """Return text encoded for hashing: in ISO 8859-1 if possible, else in UTF-8."""
    try:
        return text.encode(_LATIN)
    except UnicodeError:
        return text.encode(_UTF8)


def _text_encoding(fields: Mapping[bytes, bytes]) -> str:
    """Return the encoding of text fields: ISO 8859-1 unless the message says UTF-8."""
    charset_field = fields.get(b"charset")
    if charset_field is None:
        return _LATIN
    if charset_field.lower() != b"utf-8":
        raise CorruptionError(None, None, "charset of DIGEST-MD5 is not utf-8")
    return _UTF8


def _required_field(fields: Mapping[bytes, bytes], name: bytes) -> bytes:
    value = fields.get(name)
    if value is None:
        raise CorruptionError(None, None, f"message of DIGEST-MD5 lacks {name.decode()}")
    return value


def _decoded_field(fields: Mapping[bytes, bytes], name: bytes, charset: str) -> str:
    try:
        return _required_field(fields, name).decode(charset)
    except UnicodeDecodeError:
        reason = f"{name.decode()} of DIGEST-MD5 is not {charset}"
        raise CorruptionError(None, None, reason) from None
