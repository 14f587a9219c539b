"""A bookie's server: requests of both protocols from sockets, answered by a `Bookie`.

`bookie_server` has `BookieServer`, which callers use. `connection` serves one client: frames in,
answers out, back-pressure; `tls_socket` watches the socket below its TLS; `shared_state` has what
all clients share. `authentication` has the SASL exchange, and the limits on clients before it.
`requests` turns messages of both protocols into operations. `rules` answers them from the bookie:
read it to see which request gets which answer. They run in `thread_pools`; `group_sync` holds
answers until they are durable; `long_polls` keeps reads that wait for a LAC.
`partitions` cuts clients off, for tests. `options` has the limits; `observer` is the interface for
counting requests.
"""

from bkstore.wire.sasl import SaslUsers
from bkstore.wire.server.bookie_server import Address, BookieServer
from bkstore.wire.server.observer import Observer
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.tls import server_tls

__all__ = ["Address", "BookieServer", "Observer", "SaslUsers", "ServerOptions", "server_tls"]
