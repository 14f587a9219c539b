"""HTTP admin of a bookie: BookKeeper's endpoints, and which entries of a ledger are here.

`server` has `AdminServer`, which runs in a thread: read it first. Requests are answered without the
network: `routes` has the paths, the bearer token, and the status of errors; `ledgers` and `entries`
are the endpoints about ledgers, `disk` and `garbage` those about the bookie's files, `operations`
those for probes and operators. `messages` has requests and answers, and `parameters` reads the
query. `transport` serves them by aiohttp, `guard` limits connections, `counters` has the
Prometheus metrics. Page: `docs/http-admin.md`.
"""

from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.admin.operations.controls import Controls
from bkstore.wire.admin.server import AdminServer

__all__ = ["AdminServer", "Controls", "OperationCounters"]
