"""Ledger states of a dump: its `ledgers` table as values of an index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument, NoSuchLedger, UnsupportedLayout
from bkstore.formats.entry import decode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, Finding, LedgerState
from bkstore.index.damage_runs import DamageRuns
from bkstore.offline.load.dump_rows import LoadSource, read_ledgers


def read_states(source: LoadSource, findings: list[Finding]) -> dict[LedgerId, LedgerState]:
    """Return the state of each ledger of the bookie, in unsigned order; some 300 bytes a ledger.

    Of several rows of one ledger (dumps of different times) the states are joined: fenced or in
    limbo if any says so, the explicit LAC that is highest, the master key that is known; two
    different keys are an `InvalidArgument`. A state that could not be dumped is a finding, and
    an empty one.
    """
    states: dict[LedgerId, LedgerState] = {}
    runs = DamageRuns(findings, noun="ledgers")
    for row in read_ledgers(source):
        name = row["name"]
        if row["fenced"] is None:
            detail = f"the state of ledger {name} is not in the dump: it gets an empty one"
            runs.add(Finding("damage", detail, None, None, name))
        else:
            runs.end()
        state = _state(row)
        states[name] = _joined(name, states[name], state) if name in states else state
    return {name: states[name] for name in sorted(states)}


def _state(row: Mapping[str, Any]) -> LedgerState:
    return LedgerState(
        row["master_key"] or b"", bool(row["fenced"]), bool(row["limbo"]), row["explicit_lac"]
    )


def _joined(name: LedgerId, one: LedgerState, other: LedgerState) -> LedgerState:
    keys = {key for key in (one.master_key, other.master_key) if key}
    if len(keys) > 1:
        raise InvalidArgument(f"ledger {name} has two master keys: rows of different bookies?")
    return LedgerState(
        keys.pop() if keys else b"",
        one.fenced or other.fenced,
        one.limbo or other.limbo,
        max(one.explicit_lac, other.explicit_lac, key=_lac),
    )


def _lac(body: bytes | None) -> tuple[int, bytes]:
    """Return what orders explicit LACs: the LAC itself, then the bytes; none comes first."""
    if body is None:
        return -2, b""
    try:
        return decode_explicit_lac(body)[1], body
    except CorruptionError:  # a client may have sent anything
        return -2, body


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
