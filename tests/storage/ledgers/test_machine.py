"""Every storage and the bookie against a model of dicts, through random sequences of operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from bkstore.testing.suites.storage.machine import BookieMachine, bookie_machine, storage_machine
from tests.rounds import rounds

ROLLING: dict[str, Any] = {"entry_log_size": 6000}


class Kind(NamedTuple):
    """One kind of storage: how it is opened, which examples it gets of a hundred."""

    storage: StorageKind
    storage_examples: int
    bookie_examples: int
    directories: int = 1
    flushes_alone: bool = False
    options: dict[str, Any] = ROLLING

    @property
    def duplicates(self) -> Literal["first", "last"]:
        """Which of equal unflushed entries stays."""
        return "first" if self.storage == "sorted" else "last"

    def paths(self, top: Path) -> list[Path]:
        """Return the ledger directories below `top`."""
        return [top / f"ledgers{at}" for at in range(self.directories)]


KINDS = {
    "sorted": Kind("sorted", 20, 15),
    "interleaved": Kind("interleaved", 20, 15),
    "db": Kind("db", 10, 10),
    "sorted-tiny": Kind(
        "sorted", 15, 8, 2, flushes_alone=True, options={**ROLLING, "write_cache": 3000}
    ),
    "interleaved-tiny": Kind(
        "interleaved", 15, 8, 3, flushes_alone=True, options={**ROLLING, "pending_locations": 5}
    ),
    "db-tiny": Kind("db", 4, 4, 3, flushes_alone=True, options={**ROLLING, "write_cache": 12000}),
    "index-first": Kind(
        "interleaved",
        10,
        8,
        flushes_alone=True,
        options={**ROLLING, "pending_locations": 5, "flush_order": "index-first"},
    ),
    "log-per-ledger": Kind(
        "interleaved", 10, 5, 2, options={**ROLLING, "entry_log_per_ledger": True}
    ),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return each kind of storage in turn."""
    found: Kind = request.param
    return found


def _run(machine: Any, share: int) -> None:
    profile = settings()
    examples = max(3, round(profile.max_examples * share / 100))
    for _ in rounds():
        run_state_machine_as_test(machine, settings=settings(profile, max_examples=examples))


def test_storage_follows_the_model(kind: Kind) -> None:
    """Whatever is done in whatever order, storage and model tell the same, reopens included."""
    options = StorageOptions(**kind.options)

    def make(path: Path) -> LedgerStorage:
        return LedgerStorage.open(kind.paths(path), kind.storage, options=options)

    machine = storage_machine(make, duplicates=kind.duplicates, flushes_alone=kind.flushes_alone)
    _run(machine, kind.storage_examples)


def _bookie_machine(kind: Kind) -> type[BookieMachine]:
    options = StorageOptions(**kind.options)
    journal = JournalOptions(preallocate=1 << 14, max_size=1 << 14)

    def open_bookie(path: Path) -> Bookie:
        return Bookie.open(
            None,
            kind.storage,
            ledger_dirs=kind.paths(path),
            journal_dirs=[path / f"journal{at}" for at in range(kind.directories)],
            bookie_id="bookie-1:3181",
            options=options,
            journal=journal,
        )

    return bookie_machine(open_bookie, duplicates=kind.duplicates, flushes_alone=kind.flushes_alone)


def test_bookie_follows_the_model(kind: Kind) -> None:
    """The same with a journal in front; a crash at any time loses nothing acknowledged."""
    _run(_bookie_machine(kind), kind.bookie_examples)


@pytest.mark.parametrize("remake", ["add", "add_stripe", "fence", "set_explicit_lac"])
def test_a_deleted_ledger_is_made_again(kind: Kind, remake: str) -> None:
    """A bookie checkpoints behind the first that it takes for it: the next copy is a later one."""
    ledger_id = LedgerId(0, 7)
    add = {"ledger_id": ledger_id, "entry": 3, "size": 9, "recovery": True}
    steps = {
        "add": add,
        "add_stripe": {
            "ledger_id": ledger_id,
            "first": 0,
            "count": 5,
            "step": 1,
            "size": 9,
            "rng": None,
        },
        "fence": {"ledger_id": ledger_id},
        "set_explicit_lac": {"ledger_id": ledger_id, "lac": 2},
    }
    machine = _bookie_machine(kind)()
    try:
        machine.open()
        for known in (False, True):
            machine.delete(ledger_id=ledger_id)
            getattr(machine, remake)(**steps[remake])
            machine.add(**add)
            machine.add(**add)
            machine.same_as_model()
            machine.read_all()
            machine.crash(copy=known)
            machine.same_as_model()
    finally:
        machine.teardown()
