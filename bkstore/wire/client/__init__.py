"""Clients of bookies over sockets, as `cluster.client` needs them.

`wire_client` has `WireClient`: read it first. `wire_clients` has one for each bookie of a cluster;
`forwarding_client` is the base of clients that choose one for each call; `addresses` parses
``host:port``. Requests are made in a dialect (`v2_dialect`, `v3_dialect`; `dialect` has their
interface) and sent over a `reconnection`, which connects and authenticates as needed.
`connection` keeps many requests in flight on one `socket_stream`, which handles sockets and TLS;
`interrupt_repair` repairs objects after interrupted calls.
"""

from bkstore.wire.client.v3_dialect import DiskSpace, LacUpdate
from bkstore.wire.client.wire_client import WireClient
from bkstore.wire.client.wire_clients import WireClients
from bkstore.wire.sasl import SaslUser
from bkstore.wire.tls import client_tls

__all__ = ["DiskSpace", "LacUpdate", "SaslUser", "WireClient", "WireClients", "client_tls"]
