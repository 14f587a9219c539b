"""HTTP admin of a bookie: BookKeeper's endpoints, and which entries of a ledger are here.

`server` has `AdminServer`, a thread with a server in it: read it first. What a request asks and
what is answered is decided without the network: `routes` knows the paths, who may do what, and
what an error looks like; `ledgers` and `entries` are the endpoints about ledgers, `disk` and
`garbage` those about the bookie's files, with what goes on behind an answer, `operations` those
of probes and operators, about its condition and its cluster. They take and give what `messages`
has, and `parameters` reads the query. `transport` puts them on aiohttp, `guard` bounds what a
connection may cost, `counters` counts into Prometheus. Page: `docs/http-admin.md`.
"""

from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.admin.operations.controls import Controls
from bkstore.wire.admin.server import AdminServer

__all__ = ["AdminServer", "Controls", "OperationCounters"]
