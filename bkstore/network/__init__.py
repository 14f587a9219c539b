"""A cluster over sockets: a client that takes a service URI, and bookies that register there.

`client` has `Client`: read it first; `aio` has the same for asyncio. It finds bookies by their
registrations (`registrations`) and reaches each by a `scoped_client`, which chooses the protocol;
`audited_bookies` reads lists of entries for audits. On the server's side `registered_bookie` has
`RegisteredBookie`; `cookie_check` decides whether a directory belongs to that bookie of that
cluster, `disk_watch` and `checkpoints` whether it accepts writes, `advertised_endpoint` builds its
registration, `sanity_test` tests whether it works, `settings` reads a `bk_server.conf`. Page:
`docs/network.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.network.audited_bookies import AuditedBookies
    from bkstore.network.client import Client
    from bkstore.network.disk_watch import DiskOptions
    from bkstore.network.registered_bookie import RegisteredBookie

__all__ = ["AuditedBookies", "Client", "DiskOptions", "RegisteredBookie"]

__getattr__ = lazy_names(
    __name__,
    {
        "AuditedBookies": "bkstore.network.audited_bookies",
        "Client": "bkstore.network.client",
        "DiskOptions": "bkstore.network.disk_watch",
        "RegisteredBookie": "bkstore.network.registered_bookie",
    },
)
