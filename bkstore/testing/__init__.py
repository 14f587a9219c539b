"""What tests of bkstore, of its backends and of its users' code are built from.

`EntryIndexSuite` is the contract of `bkstore.index.api` as tests: subclass it to prove a
backend. `index_machine` makes a hypothesis state machine for the same contract. `generators`
makes entry ids as ledgers have them; it needs numpy only and serves the demo and tools too.

The suite needs pytest and the machine hypothesis, so both are loaded when they are asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkstore.testing.index_machine import index_machine
    from bkstore.testing.index_suite import EntryIndexSuite

__all__ = ["EntryIndexSuite", "index_machine"]

_HOMES = {
    "EntryIndexSuite": "bkstore.testing.index_suite",
    "index_machine": "bkstore.testing.index_machine",
}

if "pytest" in sys.modules:  # so that a failing assert in these modules shows its values
    sys.modules["pytest"].register_assert_rewrite(*_HOMES.values())


def __getattr__(name: str) -> object:
    """Return a public name, loading its module; `AttributeError` for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
