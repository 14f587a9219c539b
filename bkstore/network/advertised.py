"""What a bookie of bkstore says of itself where it is registered.

One endpoint as a real bookie's, and one property that real clients pass over: whether v3 has
scopes and batch reads there.
"""

from __future__ import annotations

from bkstore.formats.metadata.service_info import ServiceInfo

__all__ = ["advertised", "knows_scopes"]

_PROPERTY, _EXTENDED = "bkstore-protocol", "v3-extended"


def advertised(host: str, port: int, *, tls: bool = False, extended: bool = False) -> ServiceInfo:
    """Return what a bookie that listens there publishes.

    >>> advertised("10.0.0.1", 3181, extended=True).properties
    {'bkstore-protocol': 'v3-extended'}
    """
    properties = {_PROPERTY: _EXTENDED} if extended else {}
    return ServiceInfo.at(host, port, tls=tls)._replace(properties=properties)


def knows_scopes(info: ServiceInfo) -> bool:
    """Return whether a bookie says that it serves ledgers of scopes other than 0."""
    return info.properties.get(_PROPERTY) == _EXTENDED
