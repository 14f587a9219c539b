"""The address of a network interface, as `listeningInterface` names one."""

from __future__ import annotations

import socket
import struct
import sys

from bkstore.errors import InvalidArgument

_SIOCGIFADDR = 0x8915


def interface_address(name: str) -> str:
    """Return the IPv4 address of an interface of this machine; Linux alone tells it.

    Raises `InvalidArgument` for an interface that is not there, or has none.
    """
    if not sys.platform.startswith("linux"):
        raise InvalidArgument(
            f"the address of interface {name!r} is known on Linux only: give --host"
        )
    import fcntl

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            found = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(each for _, each in socket.if_nameindex())
            raise InvalidArgument(
                f"interface {name!r} has no IPv4 address ({error.strerror}); there are: {known}"
            ) from None
    return socket.inet_ntoa(found[20:24])
