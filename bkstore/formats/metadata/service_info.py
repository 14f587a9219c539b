"""The service info in a bookie's registration: `BookieServiceInfoFormat`, in protobuf. Clients take
a bookie's address only from there; one that cannot be parsed makes every BookKeeper client wait
forever. Page: `docs/formats/zookeeper.md`. Source: `discover/BookieServiceInfo`,
`discover/ZKRegistrationManager`, `discover/ZKRegistrationClient`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.bookie_ids import parse_address
from bkstore.formats.syntax.proto_messages import check_complete, declare

BOOKIE_RPC = "bookie-rpc"
"""The protocol of the endpoint for clients' reads and writes."""

_MESSAGES = """
BookieServiceInfoFormat:
    repeated BookieServiceInfoFormat.Endpoint endpoints 6,
    repeated BookieServiceInfoFormat.Property properties 7
BookieServiceInfoFormat.Endpoint:
    required string id 1, required int32 port 2, required string host 3,
    required string protocol 4, repeated string auth 5, repeated string extensions 6
BookieServiceInfoFormat.Property: optional string key 1, optional string value 2
"""

_Message = declare("bkstore.registration", _MESSAGES)["BookieServiceInfoFormat"]


class Endpoint(NamedTuple):
    """An address that a bookie listens on, and its protocol."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


class ServiceInfo(NamedTuple):
    """The contents of a registration: endpoints, and properties by name."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = {}

    @classmethod
    def at(cls, host: str, port: int, *, tls: bool = False) -> ServiceInfo:
        """Return the service info that a bookie at this address registers, like BookKeeper's."""
        extensions = ("tls",) if tls else ()
        return cls((Endpoint("bookie", port, host, BOOKIE_RPC, (), extensions),))

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the first endpoint that speaks the bookie's protocol.

        >>> ServiceInfo.at("10.0.0.1", 3181).address
        ('10.0.0.1', 3181)
        """
        for endpoint in self.endpoints:
            if endpoint.protocol == BOOKIE_RPC:
                return endpoint.host, endpoint.port
        return None


def decode_service_info(data: bytes, bookie_id: str) -> ServiceInfo:
    """Return the contents of a bookie's registration; raise `CorruptionError` for invalid bytes. An
    old bookie's registration is empty: its id is its address, and becomes the only endpoint; an id
    that is not an address gives no endpoint.

    >>> decode_service_info(b"", "10.0.0.1:3181").address
    ('10.0.0.1', 3181)
    """
    if not data:
        address = parse_address(bookie_id)
        if address is None:
            return ServiceInfo()
        host, port = address
        return ServiceInfo((Endpoint(bookie_id, port, host, BOOKIE_RPC),))
    message = _Message()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptionError(None, 0, f"service info does not parse: {error}") from error
    check_complete(message, 0, "service info")
    endpoints = tuple(
        Endpoint(item.id, item.port, item.host, item.protocol, (*item.auth,), (*item.extensions,))
        for item in message.endpoints
    )
    return ServiceInfo(endpoints, {item.key: item.value for item in message.properties})


def encode_service_info(info: ServiceInfo) -> bytes:
    """Return the bytes of a registration. Raises `InvalidArgument` for a port outside 0..65535 and
    for empty info: a client takes an empty registration to mean that the id is the address.

    >>> encode_service_info(ServiceInfo.at("127.0.0.1", 3181))[:8].hex()
    '32220a06626f6f6b'
    """
    if not info.endpoints and not info.properties:
        raise InvalidArgument("service info needs an endpoint or a property")
    message = _Message()
    for endpoint in info.endpoints:
        if not 0 <= endpoint.port <= 0xFFFF:
            raise InvalidArgument(f"port {endpoint.port} is outside 0..65535")
        message.endpoints.add(**endpoint._asdict())
    for key, value in info.properties.items():
        message.properties.add(key=key, value=value)
    data: bytes = message.SerializeToString()
    return data
