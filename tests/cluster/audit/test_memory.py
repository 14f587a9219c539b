"""Audits of many ledgers: memory grows with ledgers and groups, never with entries."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.paths import ROOT

MIB = 1 << 20


def _audited(ledgers: int, entries: int) -> Any:
    """Audit a cluster in a process of its own; it checks that what was taken out is found."""
    command = [sys.executable, "-m", "tools.bench.inputs.audit_cluster", str(ledgers), str(entries)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_a_billion_entries_take_no_more_than_a_million() -> None:
    """A thousand times the entries in as many ledgers: the same memory, and the losses found."""
    few, many = _audited(1000, 1000), _audited(1000, 1_000_000)

    assert (10, 10) == (few["missing"], many["missing"])
    assert many["peak"] - many["start"] < 24 * MIB


@pytest.mark.long
@pytest.mark.parametrize("ledgers", [20_000, 100_000])
def test_many_ledgers(ledgers: int) -> None:
    """An audit of all of them adds some hundred bytes a ledger to what the metadata take."""
    found = _audited(ledgers, 500)

    assert ledgers // 100 == found["missing"]
    assert found["peak"] - found["start"] < 24 * MIB + 400 * ledgers
