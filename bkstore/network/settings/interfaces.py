"""The address of a network interface, for `listeningInterface`."""

from __future__ import annotations

import socket
import struct
import sys

from bkstore.errors import InvalidArgument

_SIOCGIFADDR = 0x8915


def find_interface_address(interface_name: str) -> str:
    """Return the IPv4 address of an interface of this machine, on Linux only; raises
    `InvalidArgument` if the interface does not exist or has none."""
    if not sys.platform.startswith("linux"):
        name = f"interface {interface_name!r}"
        raise InvalidArgument(f"the address of {name} can be found on Linux only; give --host")
    import fcntl

    # A `struct ifreq`: 16 bytes of name, then a `sockaddr_in`, with the address at its offset 4.
    request = struct.pack("256s", interface_name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
        try:
            response = fcntl.ioctl(probe_socket.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            existing = ", ".join(interface for _, interface in socket.if_nameindex())
            reason = f"has no IPv4 address ({error.strerror}); there are: {existing}"
            raise InvalidArgument(f"interface {interface_name!r} {reason}") from None
    return socket.inet_ntoa(response[20:24])
