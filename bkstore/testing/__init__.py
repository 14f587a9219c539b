"""Tools for testing bkstore, its backends and code that uses it.

`EntryIndexSuite` is the contract of `bkstore.index.api` as tests, `StorageSuite` that of
`LedgerStorage`, `BookieClientSuite` that of `BookieClient`: subclass them to test a backend. They
are in `suites`, with hypothesis state machines for the first two. `plugin` has the pytest fixtures,
made by `factories` and `servers`. `generators` makes realistic entry ids and `workloads` streams of
records; they need only numpy, and are used by the demo and the tools, too.

`socket_cluster` has a `Cluster` whose bookies are reached over sockets. `stream_worlds` makes
worlds of stream objects and their events. `crash` simulates power losses (`crash_image` is their
state), `faults` makes calls fail and damages files, `leaks` finds files that were left open.
`zookeeper_server` finds a real ZooKeeper's jars and runs it, `ensemble` one with bookies, each a
process of its own.

The suites need pytest, and every pytest run loads the plugin, so modules are loaded on first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.testing.leaks import assert_no_leaks
    from bkstore.testing.suites.bookie_client import BookieClientSuite
    from bkstore.testing.suites.index.suite import EntryIndexSuite
    from bkstore.testing.suites.storage.suite import StorageSuite

__all__ = ["BookieClientSuite", "EntryIndexSuite", "StorageSuite", "assert_no_leaks"]

if "pytest" in sys.modules:  # so that failing asserts in these modules show their values
    sys.modules["pytest"].register_assert_rewrite("bkstore.testing.suites")

__getattr__ = lazy_names(
    __name__,
    {
        "BookieClientSuite": "bkstore.testing.suites.bookie_client",
        "EntryIndexSuite": "bkstore.testing.suites.index.suite",
        "StorageSuite": "bkstore.testing.suites.storage.suite",
        "assert_no_leaks": "bkstore.testing.leaks",
    },
)
