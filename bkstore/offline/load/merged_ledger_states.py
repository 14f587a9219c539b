"""Ledger states of a dump, read from its `ledgers` table."""

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

    The states of several rows of one ledger (of dumps at different times) are merged: fenced or in
    limbo if any row is, the highest explicit LAC, the known master key. Raises `InvalidArgument`
    for two different keys. A ledger whose state could not be dumped is fenced, as its fence may be
    lost, and has no master key; this is a finding.
    """
    states: dict[LedgerId, LedgerState] = {}
    # Lost states of ledgers that follow each other are one finding.
    runs = DamageRuns(findings, noun="ledgers")
    for row in read_ledgers(source):
        ledger = row["name"]
        if row["fenced"] is None:  # null if the state could not be dumped
            detail = (
                f"the state of ledger {ledger} is not in the dump: fenced, without a master key"
            )
            runs.add(Finding("damage", detail, None, None, ledger))
        else:
            runs.end_runs()
        state = _state_of_row(row)
        states[ledger] = _merge_states(ledger, states[ledger], state) if ledger in states else state
    return {ledger: states[ledger] for ledger in sorted(states)}


def _state_of_row(row: Mapping[str, Any]) -> LedgerState:
    key, lac = row["master_key"] or b"", row["explicit_lac"]
    is_fenced = row["fenced"] is None or row["fenced"]  # null: a fence may be lost
    return LedgerState(key, is_fenced, bool(row["limbo"]), lac)


def _merge_states(ledger_id: LedgerId, one: LedgerState, other: LedgerState) -> LedgerState:
    """Return one state for two of the same ledger: fenced if one of them is, and in limbo (entries
    may be lost) if one is, with the higher explicit LAC and the master key that is known."""
    keys = {key for key in (one.master_key, other.master_key) if key}
    if len(keys) > 1:
        raise InvalidArgument(f"ledger {ledger_id} has two master keys: rows of different bookies?")
    fenced, limbo = one.fenced or other.fenced, one.limbo or other.limbo
    explicit_lac = max(one.explicit_lac, other.explicit_lac, key=_lac_sort_key)
    return LedgerState(keys.pop() if keys else b"", fenced, limbo, explicit_lac)


def _lac_sort_key(body: bytes | None) -> tuple[int, bytes]:
    """Return the sort key of explicit LACs: the LAC (-1 or more), then the bytes; None is first."""
    if body is None:
        return -2, b""
    try:
        _ledger, lac = decode_explicit_lac(body)
        return lac, body
    except CorruptionError:  # a client may have sent anything
        return -2, body
