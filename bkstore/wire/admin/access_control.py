"""Access control: the bearer token of requests that write, and the Host header of all.

The `Host` header must name this machine: this refuses pages of websites whose name resolves to this
machine (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from bkstore.errors import InvalidArgument
from bkstore.wire.admin.messages import HttpError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,1024}=*")


def check_token(token: str | None) -> str | None:
    """Return a valid token: RFC 6750's syntax, 16 characters or more. Raises `InvalidArgument`."""
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        what = "16 to 1024 letters, digits and -._~+/, and = at the end"
        raise InvalidArgument(f"a token has {what}")
    return token


def check_bearer(authorization: str | None, token: str | None) -> None:
    """Raise `HttpError` unless the header has the bearer token, compared in constant time."""
    if token is None:
        raise HttpError(403, "writes are not enabled: this admin was started without a token")
    scheme, _, credentials = (authorization or "").partition(" ")
    given_token = credentials.strip().encode("utf-8", "replace")
    if not hmac.compare_digest(given_token, token.encode("ascii")) or scheme.lower() != "bearer":
        raise HttpError(401, "this needs the header Authorization: Bearer with the right token")


def make_host_predicate(host: str, names: Collection[str]) -> Callable[[str], bool]:
    """Return a predicate for Host headers that name this machine, for use beyond loopback: a web
    page whose own name resolves to this machine (DNS rebinding) must not reach the admin. Accepts
    localhost, `host`, the machine's name, `names`, and IP addresses, which no page has as name."""
    all_names = (host, socket.gethostname(), "localhost", *names)
    known = {_normalize_name(name) for name in all_names if name}

    def is_own(header: str) -> bool:
        name = _host_name(header)
        return name is not None and (_normalize_name(name) in known or _is_address(name))

    return is_own


def is_loopback_host(host: str) -> bool:
    """Return whether a Host header names loopback: localhost, 127.0.0.0/8 or ::1; any port.

    >>> [is_loopback_host(host) for host in ("localhost:8080", "[::1]", "example.org")]
    [True, True, False]
    """
    name = _host_name(host)
    if name is None:
        return False
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _host_name(header: str) -> str | None:
    """Return the host in a Host header, in lower case, or None if the header is invalid."""
    try:
        parts = urlsplit(f"//{header}")
        name, _ = parts.hostname or "", parts.port  # which raises an error for a bad port
    except ValueError:
        return None
    has_only_host = parts.netloc == header and parts.username is None  # no path, no user
    return name if name and has_only_host else None


def _normalize_name(name: str) -> str:
    return name.lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
