"""A client of bookies over their protocols: what `cluster.client` asks of a bookie, by sockets.

`wire_client` has `WireClient`: read it first; `wire_clients` has one for each bookie of a cluster,
`forwarding_client` is the base of clients that choose one for each call. Requests are made in a
dialect (`v2_dialect`, `v3_dialect`; what they share is in `requests`) and asked over a `link`,
which connects and authenticates as needed. `connection` has many requests under way on one
`stream`, which knows sockets and TLS; `interrupts` repairs what an interrupted call leaves.
"""

from bkstore.wire.client.v3_dialect import DiskSpace, LacUpdate
from bkstore.wire.client.wire_client import WireClient
from bkstore.wire.client.wire_clients import WireClients
from bkstore.wire.sasl import SaslUser
from bkstore.wire.tls import client_tls

__all__ = ["DiskSpace", "LacUpdate", "SaslUser", "WireClient", "WireClients", "client_tls"]
