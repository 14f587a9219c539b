"""Ledger states of a dump: its `ledgers` table as the states of an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry import decode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, LedgerState
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
