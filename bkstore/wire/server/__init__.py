"""A bookie's server: requests of both protocols from sockets, answered by a `Bookie`.

`bookie_server` has `BookieServer`, what callers use. `connection` is one client: frames in, answers
out, back-pressure; `tls_socket` is what lies below its TLS, `core` what all clients share.
`authentication` is what a client may do and cost before it has proved who it is. `requests` turns
messages of both protocols into operations, `rules` answers them out of the bookie: read that to
see what a bookie says to what. `jobs` has the threads that do so, and lets answers go when they
are durable; `long_polls` keeps reads that wait for a LAC. `options` are the limits, `observer` is
told of each request.
"""

from bkstore.wire.sasl import SaslUsers
from bkstore.wire.server.bookie_server import Address, BookieServer
from bkstore.wire.server.observer import Observer
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.tls import server_tls

__all__ = ["Address", "BookieServer", "Observer", "SaslUsers", "ServerOptions", "server_tls"]
