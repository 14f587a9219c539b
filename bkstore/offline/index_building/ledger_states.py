"""Check, store and compare the ledger states of a new index; store its storage flags."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from bkstore.errors import CorruptionError, NoSuchLedger, UnsupportedLayout
from bkstore.files.disk_changes import Files
from bkstore.formats.ledgerdata import FLAGS_KEY
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.options import database_options


def check_storable(states: Mapping[LedgerId, LedgerState], layout: str, verb: str = "load") -> None:
    """Raise `UnsupportedLayout` for a state that the layout cannot store. The message advises what
    to do with rocksdb instead; `verb` is its verb."""
    limbo = [ledger_id for ledger_id, state in states.items() if state.limbo]
    if layout == "idx" and limbo:
        more = f" and {len(limbo) - 1} more are" if len(limbo) > 1 else " is"
        raise UnsupportedLayout(
            f"ledger {limbo[0]}{more} in limbo, which index files cannot store: {verb} to rocksdb"
        )


def put_states(index: EntryIndex, states: Mapping[LedgerId, LedgerState], per_flush: int) -> None:
    """Store the states that the index does not have yet, durably. It is flushed after every
    `per_flush` states, which bounds what it holds in memory."""
    count = 0
    for ledger_id, state in states.items():
        if _has_state(index, ledger_id, state):
            continue
        index.set_state(ledger_id, state)
        count += 1
        if count % per_flush == 0:
            index.flush()
    index.flush()


def put_storage_flags(path: Path, flags: int, files: Files) -> None:
    """Store a bookie's storage flags in the `ledgers` database of ledger 0's directory."""
    with closing(Database(path, database_options("ledgers"), files=files)) as database:
        database.put(FLAGS_KEY, flags.to_bytes(8, "big"))
        database.sync()


def _has_state(index: EntryIndex, ledger_id: LedgerId, state: LedgerState) -> bool:
    try:
        return index.state(ledger_id) == state
    except NoSuchLedger:
        return False


def compare_states(
    index: EntryIndex, states: Mapping[LedgerId, LedgerState], path: Path, origin: str = "the dump"
) -> None:
    """Raise `CorruptionError` unless the index has the same state of each ledger."""
    for ledger_id, state in states.items():
        actual = index.state(ledger_id)
        if actual != state:
            states_text = f"{_describe_state(actual)} here, {_describe_state(state)} in {origin}"
            raise CorruptionError(path, None, f"ledger {ledger_id} is {states_text}")


def _describe_state(state: LedgerState) -> str:
    explicit_lac = None if state.explicit_lac is None else state.explicit_lac.hex()
    flags = f"fenced={state.fenced}, limbo={state.limbo}"
    return f"({flags}, explicit LAC {explicit_lac}, key of {len(state.master_key)} bytes)"
