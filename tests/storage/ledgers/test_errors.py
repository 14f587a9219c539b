"""Bad input, full disks, failing writes and syncs: the named error, and nothing stored is lost.

What a storage refuses is in the conformance suite; here the bookie stands beside the three
storages, and faults are planned at every write and every sync of a scripted life.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    ReadOnlyError,
    SyncFailed,
    UnauthorizedAccess,
    WriteFailed,
)
from bkstore.files.disk_changes import Files
from bkstore.formats.entry import encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import JournalOptions
from bkstore.testing.factories import BookieFactory, StorageFactory
from bkstore.testing.faults import FaultPlan
from bkstore.testing.suites.storage.base import KEY, LEDGERS, OTHER_KEY, read_content, record
from bkstore.testing.suites.storage.errors import BAD_RECORDS

KINDS: tuple[Any, ...] = ("sorted", "interleaved", "db")
FAULTS = (WriteFailed, ReadOnlyError)  # SyncFailed is a WriteFailed
DOOMED = LedgerId(0, 1000)

Content = dict[LedgerId, dict[int, bytes]]


class Target(ABC):
    """A storage or a bookie through a scripted life: what was sent, what was acknowledged."""

    def __init__(self, top: Path, kind: Any, plan: Files) -> None:
        self.path = top / "target"
        self.kind = kind
        self.plan = plan
        self.sent: Content = {}
        self.acknowledged: Content = {}

    @abstractmethod
    def live(self) -> None:
        """Open, add, make durable, delete, collect, close; ends with an error if one comes."""

    @abstractmethod
    def reopened(self) -> Iterator[LedgerStorage]:
        """Yield the storage that is found by the next one to open it."""

    def records(self, round_: int) -> Iterator[bytes]:
        """Yield the records of one round, and note them as sent."""
        for name in map(LedgerId.of, LEDGERS):
            for entry in range(4 * round_, 4 * round_ + 4):
                data = record(name, entry, bytes([entry]) * (20 + 60 * entry))
                self.sent.setdefault(name, {})[entry] = data
                yield data

    def acknowledge(self) -> None:
        """Take all that was sent for acknowledged."""
        self.acknowledged = {name: dict(rows) for name, rows in self.sent.items()}

    def compare(self) -> None:
        """What was acknowledged is there; what is there was sent."""
        for storage in self.reopened():
            found = read_content(storage)
            found.pop(DOOMED, None)

            assert {} == {
                (name, entry): "lost"
                for name, rows in self.acknowledged.items()
                for entry, data in rows.items()
                if found.get(name, {}).get(entry) != data
            }
            assert {} == {
                (name, entry): "never sent"
                for name, rows in found.items()
                for entry, data in rows.items()
                if self.sent.get(name, {}).get(entry) != data
            }
            assert 90 == storage.add_entry(record(7, 90), master_key=KEY, recovery=True)


class StorageTarget(Target):
    """A storage: a flush acknowledges."""

    def live(self) -> None:
        """Three rounds of adds and a flush each, a deleted ledger and garbage between."""
        make = StorageFactory(self.path, self.kind, self.plan)
        try:
            storage = make(path=self.path, entry_log_size=2500)
            storage.add_entry(record(DOOMED, 0, bytes(800)), master_key=KEY)
            for round_ in range(3):
                storage.add_entries(self.records(round_), master_key=KEY)
                storage.flush()
                self.acknowledge()
                if round_ == 1:
                    storage.delete_ledger(DOOMED)
                    storage.checkpoint()
                    storage.collect_garbage(transactional=True)
            storage.close()
        finally:
            make.close_all()

    def reopened(self) -> Iterator[LedgerStorage]:
        """Yield the storage, opened with nothing planned."""
        with LedgerStorage.open(self.path / "ledgers", self.kind) as storage:
            yield storage


class BookieTarget(Target):
    """A bookie: an add with a sync acknowledges."""

    def live(self) -> None:
        """Three rounds of adds, checkpoints and garbage between, a close without a checkpoint."""
        make = BookieFactory(self.path, self.kind, self.plan)
        try:
            bookie = make(path=self.path, entry_log_size=2500)
            bookie.add_entry(record(DOOMED, 0, bytes(800)), KEY)
            for round_ in range(3):
                bookie.add_entries(self.records(round_), KEY)
                self.acknowledge()
                if round_ == 1:
                    bookie.delete_ledger(DOOMED)
                    bookie.checkpoint()
                    bookie.collect_garbage()
            bookie.close(checkpoint=False)
        finally:
            make.close_all()

    def reopened(self) -> Iterator[LedgerStorage]:
        """Yield the storage of the bookie after a replay with nothing planned."""
        make = BookieFactory(self.path, self.kind)
        yield make(path=self.path).storage

        assert [] == make.close_all()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    """Return each storage in turn."""
    return request.param


class _NoSync(Files):
    """Files whose syncs do nothing: what reached the operating system is enough here."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def sync_dir(self, path: Any) -> None:
        """Do nothing."""


@pytest.fixture
def plan() -> FaultPlan:
    """Return a plan, nothing planned yet."""
    return FaultPlan(_NoSync())


# -- a fault at every write and sync of a life

TARGETS: dict[str, type[Target]] = {"storage": StorageTarget, "bookie": BookieTarget}

PLANS: dict[str, tuple[Callable[[FaultPlan, int], None], str]] = {
    "fail_write": (FaultPlan.fail_write, "writes"),
    "tear_write": (lambda plan, n: plan.tear_write(n, 13 * n % 50), "writes"),
    "fail_sync": (FaultPlan.fail_sync, "syncs"),
    "disk_full": (lambda plan, n: plan.disk_full(n * 150), ""),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", PLANS)
@pytest.mark.parametrize(
    "every", [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
)
def test_fault_at_any_time(kind: Any, target: str, what: str, every: int, tmp_path: Path) -> None:
    """Whichever write or sync fails, the error has a name, and what was acknowledged is there."""
    fails, counted = PLANS[what]
    whole = FaultPlan(_NoSync())
    TARGETS[target](tmp_path / "whole", kind, whole).live()
    last = getattr(whole, counted) if counted else 100
    assert last >= 25
    for n in range(1 + every // 2, last + 1, every):
        plan = FaultPlan(_NoSync())
        life = TARGETS[target](tmp_path / str(n), kind, plan)
        fails(plan, n)
        with pytest.raises(FAULTS):
            life.live()

        assert what == plan.done[0].what

        life.compare()


# -- going on after a fault


@pytest.mark.parametrize("what", ["disk_full", "fail_write", "tear_write"])
def test_storage_goes_on_after_a_failed_write(
    kind: Any, what: str, plan: FaultPlan, tmp_path: Path
) -> None:
    """A failed write is told, loses nothing in memory, and is made up for by the next flush."""
    make = StorageFactory(tmp_path, kind, plan)
    storage = make()
    expected: Content = {}
    for entry in range(6):
        for name in map(LedgerId.of, LEDGERS):
            expected.setdefault(name, {})[entry] = record(name, entry, bytes(100))
            storage.add_entry(expected[name][entry], master_key=KEY)
        if entry == 2:
            storage.flush()
            {"disk_full": plan.disk_full, "fail_write": plan.fail_write}.get(
                what, lambda: plan.tear_write(1, 40)
            )()
    with pytest.raises(WriteFailed) as caught:
        storage.flush()

    assert not isinstance(caught.value, SyncFailed)
    assert (errno.ENOSPC if what == "disk_full" else errno.EIO) == caught.value.errno
    assert str(tmp_path) in str(caught.value)

    assert expected == read_content(storage)

    plan.free(1 << 30)
    storage.flush()

    assert expected == read_content(storage)

    storage = make.reopen(storage, flush=False)

    assert expected == read_content(storage)
    assert [] == make.close_all()


def test_storage_after_a_failed_sync(kind: Any, plan: FaultPlan, tmp_path: Path) -> None:
    """After a failed sync nothing is written any more; what was flushed before is there."""
    make = StorageFactory(tmp_path, kind, plan)
    storage = make()
    storage.add_entries([record(7, entry) for entry in range(3)], master_key=KEY)
    storage.flush()
    storage.add_entry(record(7, 3))
    plan.fail_sync()
    with pytest.raises(SyncFailed):
        storage.flush()
    for write in (
        storage.flush,
        storage.checkpoint,
        storage.collect_garbage,
        lambda: storage.add_entry(record(7, 4)),
        lambda: storage.set_master_key(8, KEY),
        lambda: storage.fence(7),
        lambda: storage.delete_ledger(7),
    ):
        with pytest.raises(ReadOnlyError):
            write()

    assert [record(7, entry) for entry in range(3)] == storage.read_entries(7, 0, 3).records()

    storage = make.reopen(storage, flush=False)

    assert [record(7, entry) for entry in range(3)] == storage.read_entries(7, 0, 3).records()
    assert 4 == storage.add_entry(record(7, 4))


@pytest.mark.parametrize("what", ["disk_full", "fail_write", "tear_write", "fail_sync"])
def test_bookie_after_a_failed_journal(
    kind: Any, what: str, plan: FaultPlan, tmp_path: Path
) -> None:
    """An add that the journal failed is not acknowledged, nor is any after it until a reopen."""
    make = BookieFactory(tmp_path, kind, plan)
    bookie = make(journal=JournalOptions(preallocate=4096))
    bookie.add_entries([record(7, entry) for entry in range(3)], KEY)
    if what == "tear_write":
        plan.tear_write(1, 40)
    else:
        getattr(plan, what)()
    with pytest.raises(SyncFailed if what == "fail_sync" else WriteFailed):
        bookie.add_entry(record(7, 3, bytes(6000)), KEY)
    with pytest.raises(IllegalOperation, match="reopen the bookie"):
        bookie.add_entry(record(7, 4), KEY)

    assert [record(7, entry) for entry in range(3)] == bookie.read_entries(7, 0, 3).records()

    plan.free(1 << 30)
    bookie = make.reopen(bookie, checkpoint=False)

    assert [record(7, entry) for entry in range(3)] == bookie.read_entries(7, 0, 3).records()
    assert 4 == bookie.add_entry(record(7, 4), KEY)

    bookie = make.crash(bookie)

    assert record(7, 4) == bookie.read_entry(7, 4)


# -- bad input to a bookie

REFUSED: dict[str, tuple[type[BkstoreError], Callable[[Bookie], object]]] = {
    "key": (UnauthorizedAccess, lambda bookie: bookie.add_entry(record(7, 9), OTHER_KEY)),
    "scoped key": (
        UnauthorizedAccess,
        lambda bookie: bookie.add_entry(record(LEDGERS[2], 9), OTHER_KEY, recovery=True),
    ),
    "fenced": (LedgerFenced, lambda bookie: bookie.add_entry(record(LEDGERS[1], 9), KEY)),
    "too large": (
        InvalidArgument,
        lambda bookie: bookie.add_entry(record(7, 9, bytes(5000)), KEY),
    ),
    "too large, new ledger": (
        InvalidArgument,
        lambda bookie: bookie.add_entry(record(99, 0, bytes(5000)), KEY),
    ),
    "fence with another key": (UnauthorizedAccess, lambda bookie: bookie.fence(7, OTHER_KEY)),
    "LAC with another key": (
        UnauthorizedAccess,
        lambda bookie: bookie.set_explicit_lac(7, encode_explicit_lac(7, 3, "DUMMY"), OTHER_KEY),
    ),
    "LAC of another ledger": (
        InvalidArgument,
        lambda bookie: bookie.set_explicit_lac(7, encode_explicit_lac(8, 3, "DUMMY"), KEY),
    ),
    "LAC that is none": (
        InvalidArgument,
        lambda bookie: bookie.set_explicit_lac(7, b"short", KEY),
    ),
    "unknown ledger": (NoSuchLedger, lambda bookie: bookie.read_entry(99, 0)),
    "absent entry": (NoSuchEntry, lambda bookie: bookie.read_entry(7, 5)),
    "absent start": (NoSuchEntry, lambda bookie: bookie.read_entries(7, 5)),
    "entry -2": (InvalidArgument, lambda bookie: bookie.read_entry(7, -2)),
    "ledger -1": (InvalidArgument, lambda bookie: bookie.read_entry(-1, 0)),
    "fencing read, other key": (
        UnauthorizedAccess,
        lambda bookie: bookie.read_entries(7, 0, fence=True, master_key=OTHER_KEY),
    ),
    "fencing read without key": (
        InvalidArgument,
        lambda bookie: bookie.read_entries(7, 0, fence=True),
    ),
} | {
    f"record: {what}": (InvalidArgument, lambda bookie, bad=bad: bookie.add_entry(bad, KEY))
    for what, bad in BAD_RECORDS.items()
}


def test_bookie_refuses(kind: Any, tmp_path: Path) -> None:
    """A refused call has its error's name and leaves no trace, in storage or journal."""
    make = BookieFactory(tmp_path, kind)
    bookie = make(max_entry_size=4000)
    expected: Content = {}
    for name in map(LedgerId.of, LEDGERS):
        expected[name] = {entry: record(name, entry) for entry in range(4)}
        bookie.add_entries(expected[name].values(), KEY)
    bookie.fence(LEDGERS[1], KEY)
    states = {name: bookie.state(name) for name in expected}
    journal = _journal_bytes(make.path_of(bookie))
    for what, (error, call) in REFUSED.items():
        with pytest.raises(error):
            call(bookie)

        assert expected == read_content(bookie.storage), what
    bookie.force(7)

    assert journal == _journal_bytes(make.path_of(bookie))
    assert states == {name: bookie.state(name) for name in expected}

    bookie = make.crash(bookie)

    assert expected == read_content(bookie.storage)
    assert states == {name: bookie.state(name) for name in expected}
    assert [] == make.close_all()


def _journal_bytes(path: Path) -> bytes:
    (file,) = (path / "journal" / "current").glob("*.txn")
    return file.read_bytes()


def test_adds_before_a_refused_one_are_durable(kind: Any, tmp_path: Path) -> None:
    """Many adds stop at the first that is refused; those before it survive a kill."""
    make = BookieFactory(tmp_path, kind)
    bookie = make()
    with pytest.raises(InvalidArgument):
        bookie.add_entries([record(7, 0), record(7, 1), b"bad", record(7, 3)], KEY)
    bookie = make.crash(bookie)

    assert {LedgerId.of(7): {at: record(7, at) for at in (0, 1)}} == read_content(bookie.storage)


def test_closed_bookie_does_not_answer(kind: Any, tmp_path: Path) -> None:
    """Whatever is asked of a closed bookie is `IllegalOperation`."""
    bookie = BookieFactory(tmp_path, kind)()
    bookie.add_entry(record(7, 0), KEY)
    bookie.close()
    bookie.close()
    for call in (
        lambda: bookie.read_entry(7, 0),
        lambda: bookie.read_entries(7, 0),
        lambda: bookie.entries(7),
        lambda: bookie.availability(7),
        lambda: bookie.last_entry(7),
        bookie.ledgers,
        lambda: bookie.state(7),
        lambda: bookie.add_entry(record(7, 1), KEY),
        lambda: bookie.add_entry(record(7, 1), KEY, sync=False),
        lambda: bookie.fence(7, KEY),
        lambda: bookie.set_explicit_lac(7, encode_explicit_lac(7, 3, "DUMMY"), KEY),
        lambda: bookie.delete_ledger(7),
        lambda: bookie.force(7),
        bookie.checkpoint,
        bookie.collect_garbage,
    ):
        with pytest.raises(IllegalOperation):
            call()
