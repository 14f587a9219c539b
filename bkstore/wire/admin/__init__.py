"""HTTP admin of a bookie: BookKeeper's endpoints, and one that lists the entries of a ledger.

`server` has `AdminServer`, which runs in a thread: read it first. Requests are answered without the
network: `router` has the paths and the status of errors, `access_control` the bearer token and the
check of the Host header; `ledger_endpoints` and `entry_endpoints` are the endpoints about ledgers,
`disk_endpoints` and `garbage_endpoints` those about the bookie's files, `operator_endpoints` those
for probes and operators. `messages` has requests and answers, and `query_parameters` reads the
query. `http_frontend` serves them by aiohttp, `connection_limits` limits connections, `counters`
has the Prometheus metrics. Page: `docs/http-admin.md`.
"""

from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.admin.operator_endpoints.host_callbacks import Controls
from bkstore.wire.admin.server import AdminServer

__all__ = ["AdminServer", "Controls", "OperationCounters"]
