"""Ledger states and headers of index files: each as the other says it."""

from __future__ import annotations

from typing import Literal

from bkstore.formats import idxfile
from bkstore.formats.idxfile import FENCED_BIT, IdxHeader
from bkstore.index.api import LedgerState


def state_of(header: IdxHeader) -> LedgerState:
    """Return the state that a header keeps."""
    return LedgerState(header.master_key, header.fenced, False, header.explicit_lac)


def changed(
    old: IdxHeader,
    state: LedgerState,
    newest: int = idxfile.VERSION_1,
    compat: Literal["bookkeeper"] | None = None,
) -> IdxHeader:
    """Return the header for a new state; other state bits stay as they were read.

    A header of version 0 becomes one of version 1 for an explicit LAC, if `newest` allows it.
    """
    bits = old.state_bits | FENCED_BIT if state.fenced else old.state_bits & ~FENCED_BIT
    lac, version = state.explicit_lac, old.version
    if lac is not None and version == idxfile.VERSION_0:
        if compat:  # upstream keeps version 0 and loses the LAC at restart
            lac = None
        elif newest >= idxfile.VERSION_1:
            version = idxfile.VERSION_1
    return IdxHeader(state.master_key, bits, lac, version)
