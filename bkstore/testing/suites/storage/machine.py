"""Hypothesis state machines over a ledger storage and over a bookie, checked against dicts.

They run random sequences of adds (late ones, copies, other scopes), reads, fences, deletes,
flushes, checkpoints, garbage collections and reopens; after each step the storage must agree with
`StorageModel`. Bookies crash as well. `bkstore.testing.StorageSuite` tests the rules one by one.

    TestMine = storage_machine(lambda path: MyStorage(path), duplicates="last").TestCase
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bkstore.errors import LedgerFenced, NoSuchEntry, NoSuchLedger, UnauthorizedAccess
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerState
from bkstore.index.rocks.files.running_copies import copy_running_tree
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.index.machine import DirectoryMachine
from bkstore.testing.suites.storage.model import (
    Duplicates,
    StorageModel,
    count_batch_records,
    master_key_of,
)

_PAIRS = ((0, 0), (0, 7), (0, 2**63 - 1), (1, 7), (2**64 - 1, 2**63))
LEDGER_IDS = [LedgerId(scope, ledger) for scope, ledger in _PAIRS]
"""In unsigned order; few, so that rules often hit the same ledger."""

_M = TypeVar("_M", bound="_StorageRules")
_OpenStorage = Callable[[Path], LedgerStorage]
_OpenBookie = Callable[[Path], Bookie]

_ledger_ids = st.sampled_from(LEDGER_IDS)
_entries = st.integers(0, 12) | st.sampled_from([1022, 1023, 1024, 1025]) | st.integers(0, 3000)
_sizes = st.integers(0, 60) | st.integers(0, 400)


class _StorageRules(DirectoryMachine):
    """The rules that storage and bookie have in common."""

    duplicates: ClassVar[Duplicates]
    never_flushes_alone: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.model = StorageModel(self.duplicates, self.never_flushes_alone)

    @abstractmethod
    def store(self) -> LedgerStorage:
        """Return the open ledger storage."""

    @abstractmethod
    def add_records(self, ledger_id: LedgerId, records: list[bytes], recovery: bool) -> list[int]:
        """Add records; return the entry ids that the adds returned."""

    def add_all(self, ledger_id: LedgerId, entries: list[int], size: int, recovery: bool) -> None:
        """Add a record for each entry; a fenced ledger takes recovery adds only."""
        ledger = self.model.ledgers.get(ledger_id)
        records = [self.model.record(ledger_id, entry, size) for entry in entries]
        try:
            entry_ids = self.add_records(ledger_id, records, recovery)
        except LedgerFenced:
            assert ledger is not None
            assert ledger.fenced
            assert not recovery
        else:
            assert entries == entry_ids
            assert recovery or ledger is None or not ledger.fenced or not entries

            for entry, record in zip(entries, records):
                self.model.add(ledger_id, entry, record)

    @rule(ledger_id=_ledger_ids, entry=_entries, size=_sizes, recovery=st.booleans())
    def add(self, ledger_id: LedgerId, entry: int, size: int, recovery: bool) -> None:
        self.add_all(ledger_id, [entry], size, recovery)

    @rule(
        ledger_id=_ledger_ids,
        first=st.integers(0, 30) | st.just(1000),
        count=st.integers(1, 40),
        step=st.integers(1, 3),
        size=_sizes,
        rng=st.none() | st.randoms(use_true_random=False),
    )
    def add_stripe(
        self, ledger_id: LedgerId, first: int, count: int, step: int, size: int, rng: Any
    ) -> None:
        """Add entries at equal distances, in order or shuffled; recovery adds are always taken."""
        entries = [first + step * i for i in range(count)]
        if rng is not None:
            rng.shuffle(entries)
        self.add_all(ledger_id, entries, size, recovery=True)

    @rule()
    def flush(self) -> None:
        """Flush the storage; a bookie does not notice, as when a full cache is flushed."""
        self.store().flush()
        self.model.flush()

    @rule(ledger_id=_ledger_ids)
    def delete(self, ledger_id: LedgerId) -> None:
        self.instance.delete_ledger(ledger_id)
        self.model.delete(ledger_id)

    @rule(
        keep=st.none() | st.sets(_ledger_ids, min_size=3),
        threshold=st.sampled_from([None, 0.2, 0.8, 1.0]),
        transactional=st.booleans(),
    )
    def collect_garbage(
        self, keep: set[LedgerId] | None, threshold: float | None, transactional: bool
    ) -> None:
        """Delete ledgers that are not in `keep`, and compact logs below the threshold."""
        limits = {"threshold": threshold, "transactional": transactional}
        report = self.instance.collect_garbage(keep, **limits)
        deleted = [] if keep is None else self.model.keep_only(keep)
        self.model.flush()

        assert deleted == report.deleted_ledgers
        assert [] == report.findings

        self.read_all()

    @rule(ledger_id=_ledger_ids, entry=_entries)
    def read_entry(self, ledger_id: LedgerId, entry: int) -> None:
        """Read one entry, and ask whether it exists; the model knows which copies may be read."""
        ledger = self.model.ledgers.get(ledger_id)
        copies = [] if ledger is None else self.model.readable_copies(ledger, entry)

        self.read_one(ledger_id, entry, copies)
        if ledger is not None:
            assert bool(copies) == self.store().entry_exists(ledger_id, entry)

    def read_one(self, ledger_id: LedgerId, entry: int, copies: list[bytes]) -> None:
        """Read one entry: any of the `copies` the model has of it may be returned; without one the
        read raises."""
        outcome: object
        try:
            outcome = self.instance.read_entry(ledger_id, entry)
        except (NoSuchEntry, NoSuchLedger) as error:
            outcome = type(error)
        error_type = NoSuchEntry if ledger_id in self.model.ledgers else NoSuchLedger
        expected: list[object] = [*copies] if copies else [error_type]

        assert outcome in expected

    @rule(
        ledger_id=_ledger_ids,
        start=_entries,
        max_count=st.sampled_from([0, 1, 2, 7, 1000]),
        max_size=st.sampled_from([0, 1, 150, 400, 3000, 1 << 20]),
    )
    def read_entries(self, ledger_id: LedgerId, start: int, max_count: int, max_size: int) -> None:
        """Read a batch; the contract says how many records it has, and which."""
        readable = self.model.readable_run(ledger_id, start)
        if not readable:
            self.read_missing(ledger_id, start, max_count, max_size)
            return
        sizes = [len(copies[0]) for copies in readable]
        # A `max_size` of 0 stands for the storage's own limit.
        count = count_batch_records(sizes, max_count, max_size or 5 << 20)
        batch = self.instance.read_entries(ledger_id, start, max_count, max_size)

        assert list(range(start, start + count)) == batch.entries.tolist()
        for copies, record in zip(readable, batch.records()):
            assert record in copies

    def read_missing(self, ledger_id: LedgerId, start: int, max_count: int, max_size: int) -> None:
        """Read a batch that starts at a missing entry, which raises."""
        error_type = NoSuchEntry if ledger_id in self.model.ledgers else NoSuchLedger
        try:
            self.instance.read_entries(ledger_id, start, max_count, max_size)
        except error_type:
            return
        raise AssertionError(f"a batch from entry {start}, which is not here")

    @rule(ledger_id=_ledger_ids)
    def read_last(self, ledger_id: LedgerId) -> None:
        ledger = self.model.ledgers.get(ledger_id)
        last = ledger.entries()[-1:] if ledger is not None else []
        copies = self.model.readable_copies(ledger, last[0]) if ledger is not None and last else []

        self.read_one(ledger_id, -1, copies)

    @rule(ledger_id=_ledger_ids, entry=_entries)
    def add_with_another_key(self, ledger_id: LedgerId, entry: int) -> None:
        """Add with a wrong master key, which is refused."""
        if ledger_id in self.model.ledgers:
            record = self.model.record(ledger_id, entry, size=10)
            try:
                self.instance.add_entry(record, master_key=b"another" + bytes(13))
            except UnauthorizedAccess:
                return
            raise AssertionError("an add with another master key was taken")

    def read_all(self) -> None:
        for ledger_id, ledger in self.model.ledgers.items():
            for entry in ledger.entries():
                record = self.instance.read_entry(ledger_id, entry)

                assert record in self.model.readable_copies(ledger, entry), (ledger_id, entry)

    @invariant()
    def same_as_model(self) -> None:
        """Storage and model know the same ledgers, entries and states."""
        if self.instance is None:  # not opened yet
            return
        assert sorted(self.model.ledgers) == self.instance.ledgers()
        for ledger_id in LEDGER_IDS:
            ledger = self.model.ledgers.get(ledger_id)
            expected = [] if ledger is None else ledger.entries()

            assert expected == self.instance.entries(ledger_id).tolist(), ledger_id
            assert expected == self.instance.availability(ledger_id).entries().tolist()
            assert (ledger is not None) == self.store().ledger_exists(ledger_id)
        listing = self.instance.availability_many()
        listed = [(key, availability.entries().tolist()) for key, availability in listing]

        assert sorted((key, model.entries()) for key, model in self.model.ledgers.items()) == listed
        for ledger_id, ledger in self.model.ledgers.items():
            state = self.instance.state(ledger_id)

            last = max(ledger.entries(), default=None)
            assert last == self.instance.last_entry(ledger_id)
            lac_body = ledger.encoded_explicit_lac
            expected_state = LedgerState(ledger.key, ledger.fenced, explicit_lac=lac_body)
            assert expected_state == state, ledger_id
            lac = self.instance.last_add_confirmed(ledger_id)
            assert ledger.lowest_lac <= lac <= ledger.highest_lac, (ledger_id, lac)


class StorageMachine(_StorageRules):
    """One `LedgerStorage` and its model; `storage_machine` makes the class for a kind of it."""

    def store(self) -> LedgerStorage:
        """Inherited."""
        assert isinstance(self.instance, LedgerStorage)
        return self.instance

    def add_records(self, ledger_id: LedgerId, records: list[bytes], recovery: bool) -> list[int]:
        """Set the master key, then add records, a single one by `add_entry`; return the entry ids
        that the storage returned."""
        self.store().set_master_key(ledger_id, master_key_of(ledger_id))
        self.model.open(ledger_id)
        if len(records) == 1:
            return [self.store().add_entry(records[0], recovery=recovery)]
        key = master_key_of(ledger_id)
        added = self.store().add_entries(records, master_key=key, recovery=recovery)
        return list(map(int, added))

    @rule(ledger_id=_ledger_ids)
    def fence(self, ledger_id: LedgerId) -> None:
        """Fence a ledger; `NoSuchLedger` for an unknown one."""
        ledger = self.model.ledgers.get(ledger_id)
        try:
            newly_fenced = self.store().fence(ledger_id)
        except NoSuchLedger:
            assert ledger is None
            return
        assert ledger is not None
        assert (not ledger.fenced) == newly_fenced

        ledger.fenced = True

    @rule(ledger_id=_ledger_ids, lac=st.integers(-1, 20))
    def set_explicit_lac(self, ledger_id: LedgerId, lac: int) -> None:
        """Set an explicit LAC, lower or higher than the previous one."""
        if ledger_id in self.model.ledgers:
            body = self.model.set_explicit_lac(ledger_id, lac)
            self.store().set_explicit_lac(ledger_id, body)

            assert body == self.store().explicit_lac(ledger_id)

    @rule()
    def checkpoint(self) -> None:
        """Checkpoint."""
        self.store().checkpoint()
        self.model.flush()

    @rule()
    def reopen(self) -> None:
        """Close and open again: everything is kept."""
        self.store().close()
        self.model.flush()
        self.model.reopen()
        self.open()
        self.read_all()

    @precondition(lambda self: self.never_flushes_alone)
    @rule()
    def reopen_without_flush(self) -> None:
        """Close without a flush and open again: only what was flushed is kept."""
        self.store().close(flush=False)
        self.model.reopen()
        self.open()
        self.read_all()


class BookieMachine(_StorageRules):
    """One `Bookie` and its model; `bookie_machine` makes the class for a kind of it."""

    def __init__(self) -> None:
        super().__init__()
        self.model.journaled = True
        self.copy_count = 0
        self.unsynced_ledgers: set[LedgerId] = set()

    def bookie(self) -> Bookie:
        """Return the open bookie."""
        assert isinstance(self.instance, Bookie)
        return self.instance

    def store(self) -> LedgerStorage:
        """Inherited."""
        return self.bookie().storage

    def add_records(self, ledger_id: LedgerId, records: list[bytes], recovery: bool) -> list[int]:
        """Add records, and return the entry ids that the bookie returned. A single record, unless
        it is a recovery add, is added without a sync, so that such adds are tested too; `crash`
        syncs it by `force` beforehand."""
        bookie, key = self.bookie(), master_key_of(ledger_id)
        if len(records) == 1:
            entry_id = bookie.add_entry(records[0], key, recovery=recovery, sync=recovery)
            if not recovery:
                self.unsynced_ledgers.add(ledger_id)
            return [entry_id]
        return list(map(int, bookie.add_entries(records, key, recovery=recovery)))

    @rule(ledger_id=_ledger_ids)
    def fence(self, ledger_id: LedgerId) -> None:
        """Fence a ledger; an unknown one is created."""
        ledger = self.model.open(ledger_id)

        assert (not ledger.fenced) == self.bookie().fence(ledger_id, master_key_of(ledger_id))

        ledger.fenced = True
        self.model.checkpoint_if_recreated(ledger_id)

    @rule(ledger_id=_ledger_ids, lac=st.integers(-1, 20))
    def set_explicit_lac(self, ledger_id: LedgerId, lac: int) -> None:
        """Set an explicit LAC; an unknown ledger is created."""
        body = self.model.set_explicit_lac(ledger_id, lac)
        self.bookie().set_explicit_lac(ledger_id, body, master_key_of(ledger_id))
        self.model.checkpoint_if_recreated(ledger_id)

        assert body == self.bookie().explicit_lac(ledger_id)

    @rule()
    def checkpoint(self) -> None:
        """Checkpoint: the journal is no longer needed."""
        self.bookie().checkpoint()
        self.model.checkpoint()
        self.unsynced_ledgers.clear()

    @rule()
    def reopen(self) -> None:
        """Close and open again: everything is kept, and nothing is replayed."""
        self.bookie().close()
        self.model.checkpoint()
        self.model.reopen()
        self.unsynced_ledgers.clear()
        self.open()

        assert not self.bookie().unclean

        self.read_all()

    @rule(copy=st.booleans())
    def crash(self, copy: bool) -> None:
        """Go on with a copy of the files as they are, or after a close without a checkpoint."""
        for ledger_id in self.unsynced_ledgers:  # else the model could not say what is lost
            self.bookie().force(ledger_id)
        self.unsynced_ledgers.clear()
        old_path = self.path
        if copy:
            self.copy_count += 1
            self.path = old_path.with_name(f"life-{self.copy_count}")
            copy_running_tree(old_path, self.path)
        self.bookie().close(checkpoint=False)
        if copy:
            shutil.rmtree(old_path)
        self.open()

        assert self.bookie().unclean

        self.collect_ghosts(self.model.crash())
        self.read_all()

    def collect_ghosts(self, ghosts: dict[LedgerId, dict[int, set[bytes]]]) -> None:
        """Check that of the `ghosts`, deleted ledgers that a replay of the journal may bring back,
        only former records came back; delete those as garbage."""
        for ledger_id, former_records in ghosts.items():
            for entry in self.bookie().entries(ledger_id).tolist():
                assert self.bookie().read_entry(ledger_id, entry) in former_records[entry]
        report = self.bookie().collect_garbage(list(self.model.ledgers))
        self.model.deleted.update(report.deleted_ledgers)
        self.model.flush()


def storage_machine(
    make_storage: _OpenStorage, *, duplicates: Duplicates, flushes_alone: bool = False
) -> type[StorageMachine]:
    """Return the state machine class of one kind of storage; pytest collects its `TestCase`.

    `make_storage(path)` opens a storage in `path`, new or with the data of an earlier one.
    `duplicates` says which copy of an unflushed entry is kept: "first" for sorted storage, else
    "last". `flushes_alone` means that its caches are so small that it flushes by itself.
    """
    return _make_machine(StorageMachine, make_storage, duplicates, flushes_alone)


def bookie_machine(
    open_bookie: _OpenBookie, *, duplicates: Duplicates, flushes_alone: bool = False
) -> type[BookieMachine]:
    """Return the state machine class of one kind of bookie; otherwise as `storage_machine`."""
    return _make_machine(BookieMachine, open_bookie, duplicates, flushes_alone)


def _make_machine(
    machine: type[_M], open_at: Callable[[Path], Any], duplicates: Duplicates, flushes_alone: bool
) -> type[_M]:
    """Return a machine class for one kind of storage."""
    members: dict[str, Any] = {"open_at": staticmethod(open_at), "duplicates": duplicates}
    members["never_flushes_alone"] = not flushes_alone
    return type(f"{machine.__name__}OfKind", (machine,), members)
