"""Ledger states of a new index: whether the layout has a place for them, stored, compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bkstore.errors import CorruptionError, NoSuchLedger, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState


def check_states(states: Mapping[LedgerId, LedgerState], to: str, what: str = "load") -> None:
    """Raise `UnsupportedLayout` where the layout has no place for a state; `what` is advice."""
    limbo = [name for name, state in states.items() if state.limbo]
    if to == "idx" and limbo:
        more = f" and {len(limbo) - 1} more are" if len(limbo) > 1 else " is"
        raise UnsupportedLayout(
            f"ledger {limbo[0]}{more} in limbo, which index files have no place for: "
            f"{what} to rocksdb"
        )


def put_states(index: EntryIndex, states: Mapping[LedgerId, LedgerState], per_flush: int) -> None:
    """Store the states that the index has not yet, durably; flush after each `per_flush`."""
    count = 0
    for name, state in states.items():
        if _has(index, name, state):
            continue
        index.set_state(name, state)
        count += 1
        if count % per_flush == 0:
            index.flush()
    index.flush()


def _has(index: EntryIndex, name: LedgerId, state: LedgerState) -> bool:
    try:
        return index.state(name) == state
    except NoSuchLedger:
        return False


def compare_states(
    index: EntryIndex,
    states: Mapping[LedgerId, LedgerState],
    out: Path,
    origin: str = "the dump",
) -> None:
    """Raise `CorruptionError` unless the index says the same of each ledger."""
    for name, state in states.items():
        found = index.state(name)
        if found != state:
            reason = f"ledger {name} is {_shown(found)} here, {_shown(state)} in {origin}"
            raise CorruptionError(out, None, reason)


def _shown(state: LedgerState) -> str:
    lac = None if state.explicit_lac is None else state.explicit_lac.hex()
    flags = f"fenced={state.fenced}, limbo={state.limbo}"
    return f"({flags}, explicit LAC {lac}, key of {len(state.master_key)} bytes)"
