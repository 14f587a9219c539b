"""What a bookie tells of itself where it is registered: `BookieServiceInfoFormat`, in protobuf.

Clients take a bookie's address from there and from nowhere else, and one registration that they
cannot read makes every real client wait for ever. Page: `docs/formats/zookeeper.md`. Source:
`discover/ZKRegistrationManager`, `discover/ZKRegistrationClient`, `discover/BookieServiceInfo`,
`net/BookieId`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.proto_messages import check_complete, declare_file

BOOKIE_RPC = "bookie-rpc"
"""The protocol of the endpoint that clients read and write by."""

READ_ONLY = "readonly"

# The class of upstream's pattern has the range from ":" to "_", so ; < = > ? @ [ \ ] ^ are in it.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")
_PORT = re.compile(r"[0-9]{1,5}")

_FILE = """
name: "bkstore/serviceinfo.proto"
package: "bkstore.registration"
syntax: "proto2"
message_type {
  name: "BookieServiceInfoFormat"
  field {
    name: "endpoints" number: 6 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".bkstore.registration.BookieServiceInfoFormat.Endpoint"
  }
  field {
    name: "properties" number: 7 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".bkstore.registration.BookieServiceInfoFormat.Property"
  }
  nested_type {
    name: "Endpoint"
    field { name: "id" number: 1 type: TYPE_STRING label: LABEL_REQUIRED }
    field { name: "port" number: 2 type: TYPE_INT32 label: LABEL_REQUIRED }
    field { name: "host" number: 3 type: TYPE_STRING label: LABEL_REQUIRED }
    field { name: "protocol" number: 4 type: TYPE_STRING label: LABEL_REQUIRED }
    field { name: "auth" number: 5 type: TYPE_STRING label: LABEL_REPEATED }
    field { name: "extensions" number: 6 type: TYPE_STRING label: LABEL_REPEATED }
  }
  nested_type {
    name: "Property"
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
}
"""

(_Message,) = declare_file(_FILE, "BookieServiceInfoFormat")


class Endpoint(NamedTuple):
    """Where a bookie listens, and for what."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


class ServiceInfo(NamedTuple):
    """What a registration says: endpoints, and properties by name."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = {}

    @classmethod
    def at(cls, host: str, port: int, *, tls: bool = False) -> ServiceInfo:
        """Return what a bookie that listens there publishes, as a real one does."""
        extensions = ("tls",) if tls else ()
        return cls((Endpoint("bookie", port, host, BOOKIE_RPC, (), extensions),))

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the first endpoint that speaks the bookie's protocol.

        >>> ServiceInfo.at("10.0.0.1", 3181).address
        ('10.0.0.1', 3181)
        """
        for each in self.endpoints:
            if each.protocol == BOOKIE_RPC:
                return each.host, each.port
        return None


def check_bookie_id(bookie: str) -> str:
    """Return a bookie's id; `InvalidArgument` for one that real clients refuse.

    One such name among the registered ones stops every real client (`net/BookieId`).

    >>> check_bookie_id("10.0.0.1:3181")
    '10.0.0.1:3181'
    """
    if not _BOOKIE_ID.fullmatch(bookie) or bookie.lower() in (READ_ONLY, ".", ".."):
        raise InvalidArgument(
            f"{bookie!r} is no bookie id: letters, digits and : ; < = > ? @ [ \\ ] ^ _ . - "
            f"are allowed, and it must not be {READ_ONLY!r}"
        )
    return bookie


def decode_service_info(data: bytes, bookie: str) -> ServiceInfo:
    """Return what a registration says; `CorruptionError` for bytes that are none.

    A registration without a byte is one of an old bookie: the id tells its host and port, and
    where it does not, there is no endpoint (a real client hangs there).

    >>> decode_service_info(b"", "10.0.0.1:3181").address
    ('10.0.0.1', 3181)
    """
    if not data:
        return _legacy(bookie)
    message = _Message()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptionError(None, 0, f"service info does not parse: {error}") from error
    check_complete(message, 0, "service info")
    endpoints = tuple(
        Endpoint(each.id, each.port, each.host, each.protocol, (*each.auth,), (*each.extensions,))
        for each in message.endpoints
    )
    return ServiceInfo(endpoints, {each.key: each.value for each in message.properties})


def _legacy(bookie: str) -> ServiceInfo:
    host, _, rest = bookie.partition(":")
    port = rest.split(":")[0]
    if not host or not _PORT.fullmatch(port) or int(port) > 0xFFFF:
        return ServiceInfo()
    return ServiceInfo((Endpoint(bookie, int(port), host, BOOKIE_RPC),))


def encode_service_info(info: ServiceInfo) -> bytes:
    """Return the bytes of a registration, fields in the order of their numbers.

    `InvalidArgument` for a port outside 0..65535, and for info without any byte: a real client
    reads that as "the id is the address".

    >>> encode_service_info(ServiceInfo.at("127.0.0.1", 3181))[:8].hex()
    '32220a06626f6f6b'
    """
    if not info.endpoints and not info.properties:
        raise InvalidArgument("service info needs an endpoint or a property")
    message = _Message()
    for each in info.endpoints:
        if not 0 <= each.port <= 0xFFFF:
            raise InvalidArgument(f"port {each.port} is outside 0..65535")
        message.endpoints.add(**each._asdict())
    for key, value in info.properties.items():
        message.properties.add(key=key, value=value)
    data: bytes = message.SerializeToString()
    return data
