"""Addresses of bookies: a host and a port."""

from __future__ import annotations

from bkstore.arguments import host_name
from bkstore.errors import InvalidArgument


def parse_address(address: str | tuple[str, int]) -> tuple[str, int]:
    """Return (host, port) from ``"host:port"``, ``"[v6]:port"`` or a pair.

    >>> parse_address("[::1]:3181"), parse_address(("localhost", 3181))
    (('::1', 3181), ('localhost', 3181))
    """
    if isinstance(address, str):
        host, _, number = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        port = int(number) if number.isascii() and number.isdigit() else -1
    else:
        try:
            host, port = address
        except (TypeError, ValueError):
            host, port = "", -1
    try:
        if host and type(port) is int and 0 < port < 2**16:
            return host_name("host", host), port
    except InvalidArgument:
        pass
    raise InvalidArgument(f"{address!r} is not an address: a host and a port in 1..65535")
