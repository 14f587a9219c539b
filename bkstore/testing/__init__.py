"""What tests of bkstore, of its backends and of its users' code are built from.

`EntryIndexSuite` is the contract of `bkstore.index.api` as tests, `StorageSuite` that of
`LedgerStorage`: subclass them to prove a backend. `index_machine` and `storage_machine` make
hypothesis state machines for the same contracts. `plugin` has the pytest fixtures. `generators`
makes entry ids as ledgers have them and `workloads` whole streams of records; they need numpy
only and serve the demo and the tools too.

`streams` makes worlds of stream objects and their events. `crash` makes power losses, `faults`
failing calls and damaged files, `leaks` looks for files that were left open.

The suites need pytest, and the plugin is loaded in every run of it, so each module is loaded
when it is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkstore.testing.index_suite import EntryIndexSuite
    from bkstore.testing.leaks import assert_no_leaks
    from bkstore.testing.storage_suite import StorageSuite

__all__ = ["EntryIndexSuite", "StorageSuite", "assert_no_leaks"]

_MODULES = {
    "EntryIndexSuite": "index_suite",
    "StorageSuite": "storage_suite",
    "assert_no_leaks": "leaks",
}

if "pytest" in sys.modules:  # so that a failing assert in these modules shows its values
    sys.modules["pytest"].register_assert_rewrite(
        "bkstore.testing.index_machine",
        "bkstore.testing.storage_machine",
        "bkstore.testing.storage_suite_batches",
        "bkstore.testing.storage_suite_entries",
        "bkstore.testing.storage_suite_errors",
        "bkstore.testing.storage_suite_garbage",
        "bkstore.testing.storage_suite_keeping",
        "bkstore.testing.storage_suite_ledgers",
        "bkstore.testing.suite_entries",
        "bkstore.testing.suite_keeping",
        "bkstore.testing.suite_ledgers",
    )


def __getattr__(name: str) -> object:
    """Return a public name, loading its module; `AttributeError` for any other name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"bkstore.testing.{_MODULES[name]}"), name)
