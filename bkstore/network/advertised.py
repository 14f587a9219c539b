"""What a bookie of bkstore says of itself where it is registered.

One endpoint as a real bookie's, and one property that real clients pass over: whether v3 has
scopes and batch reads there.
"""

from __future__ import annotations

import ipaddress

from bkstore.errors import InvalidArgument
from bkstore.formats.metadata.service_info import ServiceInfo

_PROPERTY, _EXTENDED = "bkstore-protocol", "v3-extended"


def advertised(host: str, port: int, *, tls: bool = False, extended: bool = False) -> ServiceInfo:
    """Return what a bookie that listens there publishes.

    >>> advertised("10.0.0.1", 3181, extended=True).properties
    {'bkstore-protocol': 'v3-extended'}
    """
    properties = {_PROPERTY: _EXTENDED} if extended else {}
    return ServiceInfo.at(host, port, tls=tls)._replace(properties=properties)


def check_advertised(host: str) -> str:
    """Return a host that clients may be told; `InvalidArgument` for one that stands for any.

    >>> check_advertised("10.0.0.1")
    '10.0.0.1'
    """
    if means_any(host):
        raise InvalidArgument(f"clients cannot be told to come to {host!r}: advertise a host")
    return host


def means_any(host: str) -> bool:
    """Return whether who listens there listens at all addresses of the machine.

    >>> [means_any(host) for host in ("0.0.0.0", "0", "::", "", "127.0.0.1", "localhost")]
    [True, True, True, True, False, False]
    """
    if not host or host == "0":
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def knows_scopes(info: ServiceInfo) -> bool:
    """Return whether a bookie says that it serves ledgers of scopes other than 0."""
    return info.properties.get(_PROPERTY) == _EXTENDED
