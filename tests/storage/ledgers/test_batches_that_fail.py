"""Writes and syncs that fail in the middle of a batch: what is said, kept, and done next.

Writes and syncs of a run are made to fail, each in a run of its own, by their number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore import Bookie, LedgerStorage
from bkstore.errors import BkstoreError, ReadOnlyError, SyncFailed, WriteFailed
from bkstore.files.disk_changes import OS_FILES
from bkstore.formats.entry import Entry, RecordBatch, encode
from bkstore.ids import LedgerId
from bkstore.storage.entry_log.scan import scan_log
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from bkstore.testing.crash import CrashFiles, PowerLoss
from bkstore.testing.faults import FaultPlan

KEY = b"k" * 20
NAMES = [LedgerId(0, 7), LedgerId(0, 8), LedgerId(3, 7)]

Content = dict[tuple[LedgerId, int], bytes]
"""Records by ledger and entry."""


class Kind(NamedTuple):
    """One kind of storage, and what it sets."""

    storage: StorageKind
    options: dict[str, Any]


ROLLING = {"entry_log_size": 8000}
KINDS = {
    "sorted": Kind("sorted", {**ROLLING, "write_cache": 25_000}),
    "interleaved": Kind("interleaved", {**ROLLING, "pending_locations": 70}),
    "large-batches": Kind("interleaved", {"pending_locations": 1000}),
    "log-per-ledger": Kind("interleaved", {**ROLLING, "entry_log_per_ledger": True}),
    "db": Kind("db", {**ROLLING, "write_cache": 50_000}),
}


@cache
def record(name: LedgerId, entry: int) -> bytes:
    """Return the one record that an entry ever has."""
    payload = random.Random(f"{name}/{entry}").randbytes(100 + entry % 300)
    return encode(Entry(name, entry, entry - 1, 100 * entry, payload), "CRC32C", "pw")


def batches(kind: str) -> Iterator[list[tuple[LedgerId, int]]]:
    """Yield what each batch has: one ledger, then all in turns, then late entries."""
    count = 500 if kind == "large-batches" else 60
    yield [(NAMES[0], entry) for entry in range(count)]
    yield [(name, entry) for entry in range(100, 130) for name in NAMES]
    yield [(NAMES[1], entry) for entry in range(60, 20, -1)]
    yield [(NAMES[2], entry) for entry in range(200, 200 + count)]


def batch_of(ids: list[tuple[LedgerId, int]]) -> RecordBatch:
    """Return the records of these ledgers and entries."""
    return RecordBatch.of([record(*at) for at in ids], [entry for _, entry in ids])


def content_of(store: Any) -> Content:
    """Return every record, as single reads give them; as batches give them they are the same."""
    found: Content = {}
    for name in NAMES:
        entries, at = store.entries(name).tolist(), 0
        while at < len(entries):
            batch = store.read_entries(name, entries[at])
            for entry, data in zip(batch.entries.tolist(), batch.records()):
                assert entries[at] == entry
                assert data == store.read_entry(name, entry)
                found[name, entry] = data
                at += 1
    return found


def what_was_stored(ids: list[tuple[LedgerId, int]]) -> Content:
    """Return the records of these ledgers and entries."""
    return {at: record(*at) for at in ids}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return the name of each kind in turn."""
    name: str = request.param
    return name


def _open(kind: str, top: Path, files: Any = OS_FILES, **more: Any) -> LedgerStorage:
    options = StorageOptions(**{**KINDS[kind].options, **more})
    return LedgerStorage.open([top], KINDS[kind].storage, options=options, files=files)


in_parts = pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2, 3))]
)
"""A quarter of the failures each; the long run has all."""


# -- writes


def _plans(kind: str) -> Iterator[tuple[str, Callable[[FaultPlan], object]]]:
    """Yield ways in which writes fail, at many points of a run."""
    large = kind == "large-batches"
    for number in range(1, 30):
        yield f"write {number}", lambda plan, n=number: plan.fail_write(n)  # type: ignore[misc]
        yield (  # type: ignore[misc]
            f"half of write {number}",
            lambda plan, n=number: plan.tear_write(n, 150 * n),
        )
    for room in range(0, 200_000 if large else 60_000, 20_000 if large else 2500):
        yield f"{room} bytes", lambda plan, room=room: plan.disk_full(room)  # type: ignore[misc]


@in_parts
def test_writes_that_fail(kind: str, part: int, tmp_path: Path) -> None:
    """`stored` is what is stored, all of it reads, and a retry from there on loses nothing."""
    failed = set()
    for number, (what, plan) in enumerate(list(_plans(kind))[part::4]):
        top, faults = tmp_path / str(number), FaultPlan()
        storage = _open(kind, top, faults)
        for name in NAMES:
            storage.set_master_key(name, KEY)
        plan(faults)
        done: list[tuple[LedgerId, int]] = []
        for ids in batches(kind):
            left = ids
            while left:
                left = _add_some(storage, faults, left, done, failed)
        assert what_was_stored(done) == content_of(storage), what
        faults.free(1 << 30)
        while not _flushed(storage):
            failed.add(0)
        storage.close()
        with _open(kind, top) as again:
            assert what_was_stored(done) == content_of(again), what
            assert [] == again.findings
    assert failed - {0}, "no write failed in the middle of a batch"


def _flushed(storage: LedgerStorage) -> bool:
    """Flush; return whether all of it could be written."""
    try:
        storage.flush()
    except WriteFailed:
        return False
    return True


def _add_some(
    storage: LedgerStorage,
    faults: FaultPlan,
    ids: list[tuple[LedgerId, int]],
    done: list[tuple[LedgerId, int]],
    failed: set[int],
) -> list[tuple[LedgerId, int]]:
    """Add a batch; return what is left of it. Where a write fails, the disk is repaired."""
    try:
        storage.add_batch(batch_of(ids))
    except WriteFailed as error:
        stored = _stored(error)
    else:
        done += ids
        return []
    done += ids[:stored]
    failed.add(stored)

    assert what_was_stored(done) == content_of(storage)
    assert _highest_lacs(done) == [storage.last_add_confirmed(name) for name in NAMES]

    faults.free(1 << 30)
    return ids[stored:]


def _stored(error: BkstoreError) -> int:
    """Return how many records an error says are stored."""
    assert error.stored is not None
    return error.stored


def _highest_lacs(done: list[tuple[LedgerId, int]]) -> list[int]:
    """Return the highest LAC said of each ledger: the entry before the highest."""
    return [max((entry - 1 for who, entry in done if who == name), default=-1) for name in NAMES]


def test_nothing_is_written_twice(kind: str, tmp_path: Path) -> None:
    """However many writes of flushes failed, the logs have each record once.

    A copy that storages keep out of their caches is in no log either.
    """
    for nth in range(1, 12, 2):
        top, faults = tmp_path / str(nth), FaultPlan()
        storage = _open(kind, top, faults, write_cache=1 << 20)
        expected = 0
        for ids in batches(kind):
            storage.add_batch(batch_of(ids), master_key=KEY)
            expected += len(ids)
        if KINDS[kind].storage != "interleaved":
            expected = len(content_of(storage))
        for again in (0, 1, 2, 0, 1):
            faults.fail_write(nth + again)
            _flushed(storage)
        while not _flushed(storage):
            pass
        (path,) = storage.write_paths
        logs = [path.logger.path(log_id) for log_id in path.logger.log_ids]

        assert expected == sum(len(batch) for log in logs for batch in scan_log(log))

        faults.fail_write(1 << 30)
        storage.close()


# -- syncs


@in_parts
def test_syncs_that_fail(kind: str, part: int, tmp_path: Path) -> None:
    """After a sync that failed nothing more is taken; what was flushed before is there again."""
    refused = 0
    for number in range(1 + part, 24, 4):
        top, faults = tmp_path / str(number), FaultPlan()
        storage = _open(kind, top, faults)
        first, *others = batches(kind)
        storage.add_batch(batch_of(first), master_key=KEY)
        storage.flush()
        faults.fail_sync(number)
        done, safe = list(first), list(first)
        try:
            for ids in others:
                storage.add_batch(batch_of(ids), master_key=KEY)
                done += ids
                storage.flush()
                safe = list(done)
        except WriteFailed as error:
            done += ids[: error.stored or 0]
            refused += 1
            if isinstance(error, SyncFailed):
                _takes_no_more(storage)
        for at, data in content_of(storage).items():
            assert record(*at) == data
        try:
            storage.close()
        except BkstoreError:
            assert faults.done
        with _open(kind, top) as again:
            there = content_of(again)

            assert what_was_stored(safe).items() <= there.items()
            assert all(record(*at) == data for at, data in there.items())
    assert refused


def _takes_no_more(storage: LedgerStorage) -> None:
    """A batch is refused as a whole, and says so."""
    with pytest.raises(ReadOnlyError) as refused:
        storage.add_batch(batch_of([(NAMES[0], entry) for entry in range(900, 940)]))

    assert 0 == refused.value.stored
    assert storage.entries(NAMES[0], 900).size == 0


# -- a bookie


def _bookie(storage: StorageKind, top: Path, files: Any = OS_FILES, journals: int = 2) -> Bookie:
    return Bookie.open(
        storage=storage,
        ledger_dirs=[top / "ledgers"],
        journal_dirs=[top / f"journal{at}" for at in range(journals)],
        options=StorageOptions(entry_log_size=8000, write_cache=50_000, pending_locations=70),
        journal=JournalOptions(preallocate=4096, write_buffer=700, max_size=20_000),
        files=files,
    )


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
@pytest.mark.parametrize("what", ["write", "sync"])
@in_parts
def test_bookie_whose_disk_fails(
    storage: StorageKind, what: str, part: int, tmp_path: Path
) -> None:
    """What was acknowledged before, and what `stored` says, is there after a power loss."""
    _judge_failing_disk(storage, what, part, tmp_path, "add_batch")


@pytest.mark.parametrize("what", ["write", "sync"])
@in_parts
def test_records_in_several_batches(
    what: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where one call is several batches, with one sync for all: what an earlier one
    stored is not acknowledged where the journal fails in a later one."""
    monkeypatch.setattr("bkstore.storage.ledgers.ledger_adds._MAX_BATCH_RECORDS", 5)
    _judge_failing_disk("sorted", what, part, tmp_path, "add_entries")


def _judge_failing_disk(
    storage: StorageKind, what: str, part: int, tmp_path: Path, way: str
) -> None:
    failed = 0
    for number in range(1 + part, 40, 4):
        top, disk = tmp_path / str(number), CrashFiles()
        bookie = _bookie(storage, top / "b", faults := FaultPlan(disk))
        if what == "write":
            faults.fail_write(number)
        else:
            faults.fail_sync(number)
        safe: list[tuple[LedgerId, int]] = []
        for ids in batches("bookie"):
            try:
                if way == "add_batch":
                    bookie.add_batch(batch_of(ids), KEY)
                else:
                    bookie.add_entries([record(*at) for at in ids], KEY)
            except BkstoreError as error:
                failed += 1
                safe += ids[: _stored(error)]
                break
            safe += ids
        left = disk.crash(top / "b", top / "left", random.Random(number))
        with _bookie(storage, left) as again:
            there = content_of(again)

            assert what_was_stored(safe).items() <= there.items(), number
            # Of a ledger that is new nothing tells that its first entry, not acknowledged, is torn.
            names = {name for name, _ in safe}
            assert all(record(*at) == data for at, data in there.items() if at[0] in names)
        disk.stop_after(1)
        with suppress(PowerLoss, BkstoreError):
            bookie.close()
    assert failed
