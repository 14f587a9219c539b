"""What tests of bkstore, of its backends and of its users' code are built from.

`EntryIndexSuite` is the contract of `bkstore.index.api` as tests: subclass it to prove a
backend. `index_machine.index_machine` makes a hypothesis state machine for the same contract.
`generators` makes entry ids as ledgers have them; it needs numpy only and serves the demo and
the tools too.

The suite needs pytest, so it is loaded when it is asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkstore.testing.index_suite import EntryIndexSuite

__all__ = ["EntryIndexSuite"]

if "pytest" in sys.modules:  # so that a failing assert in these modules shows its values
    sys.modules["pytest"].register_assert_rewrite(
        "bkstore.testing.index_machine",
        "bkstore.testing.suite_entries",
        "bkstore.testing.suite_keeping",
        "bkstore.testing.suite_ledgers",
    )


def __getattr__(name: str) -> object:
    """Return `EntryIndexSuite`, loading its module; `AttributeError` for any other name."""
    if name != "EntryIndexSuite":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bkstore.testing.index_suite import EntryIndexSuite

    return EntryIndexSuite
