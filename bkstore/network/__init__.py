"""A cluster over sockets: its client by service URI, and bookies that are found by one.

`client` has `Client`: read it first. It knows bookies by what they registered
(`registrations`) and speaks to each by a `scoped_client`, which takes the protocol that a ledger
needs; `audited_bookies` are those of a cluster as an audit asks them. On the other side
`registered_bookie` has `RegisteredBookie`, a server that is registered;
`cookie_check` decides whether a directory may be that bookie of that cluster, `disk_watch` and
`checkpoints` whether it takes writes, `advertised` is what its registration says; `sanity` tests
whether it works; `settings` reads what a `bk_server.conf` asks of it. Page: `docs/network.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_faces import lazy_names

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
