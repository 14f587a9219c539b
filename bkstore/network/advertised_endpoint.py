"""The registration of a bookie: one endpoint, like a real bookie's, and one property.

The property, which real clients ignore, says that the bookie's v3 has scopes and batch reads.
Extended v3 is v3 with scopes (the upper 64 bits of ledger ids, 0 in BookKeeper) and batch reads.
"""

from __future__ import annotations

import ipaddress

from bkstore.errors import InvalidArgument
from bkstore.formats.metadata.service_info import ServiceInfo

_PROTOCOL_PROPERTY, _EXTENDED_PROTOCOL = "bkstore-protocol", "v3-extended"


def build_service_info(
    host: str, port: int, *, tls: bool = False, extended: bool = False
) -> ServiceInfo:
    """Return the registration of a bookie; `extended` announces that it serves all scopes.

    >>> build_service_info("10.0.0.1", 3181, extended=True).properties
    {'bkstore-protocol': 'v3-extended'}
    """
    properties = {_PROTOCOL_PROPERTY: _EXTENDED_PROTOCOL} if extended else {}
    return ServiceInfo.at(host, port, tls=tls)._replace(properties=properties)


def check_advertised_host(host: str) -> str:
    """Return a host to advertise; raises `InvalidArgument` if it is a wildcard address.

    >>> check_advertised_host("10.0.0.1")
    '10.0.0.1'
    """
    if is_wildcard_host(host):
        raise InvalidArgument(f"clients cannot connect to {host!r}: advertise a host")
    return host


def is_wildcard_host(host: str) -> bool:
    """Return whether a host is a wildcard address: all addresses of the machine.

    >>> [is_wildcard_host(host) for host in ("0.0.0.0", "0", "::", "", "127.0.0.1", "localhost")]
    [True, True, True, True, False, False]
    """
    if not host or host == "0":
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def supports_scopes(info: ServiceInfo) -> bool:
    """Return whether the registration says that the bookie serves scopes other than 0."""
    return info.properties.get(_PROTOCOL_PROPERTY) == _EXTENDED_PROTOCOL
