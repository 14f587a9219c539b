"""Every backend against a model of plain dicts, through random sequences of operations."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from bkstore.testing.suites.index.machine import index_machine
from tests.rounds import rounds

EXAMPLES = {"memtable": 40, "idx": 25, "idx2": 15, "rocks": 12, "rocks3": 6}
"""Examples of the default profile; opening several databases takes its time."""


def test_backend_follows_the_model(backend: Any) -> None:
    """Whatever is done in whatever order, index and model list the same, reopens included."""
    profile = settings()
    share = EXAMPLES[backend.name] / 100
    examples = max(5, round(profile.max_examples * share))
    machine = index_machine(backend.make, backend.reopen)
    for _ in rounds():
        run_state_machine_as_test(machine, settings=settings(profile, max_examples=examples))
