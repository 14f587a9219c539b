"""Rules of storages and bookies under bad luck: failed syncs, retries, races, deletes, forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, CorruptionError, LedgerId, LedgerStorage
from bkstore.errors import (
    BkstoreError,
    DataUnknown,
    DirectoryInUse,
    IllegalOperation,
    InvalidArgument,
    ReadOnlyError,
    SyncFailed,
    TooManyRequests,
    UnsupportedLayout,
    WriteFailed,
)
from bkstore.formats.entry import Coder
from bkstore.storage.options import StorageOptions
from bkstore.testing.faults import FaultPlan, flip_byte

KEY = b"k" * 20
CODER = Coder("CRC32C", "pw")
STORAGES = ["sorted", "interleaved", "db"]


def records(ledger: int | LedgerId, entries: range, size: int = 100) -> list[bytes]:
    """Return records of a ledger, each with bytes of its own."""
    return CODER.encode_many(ledger, entries, [b"%06d" % e + bytes(size) for e in entries])


@pytest.mark.parametrize("storage", STORAGES)
def test_failed_sync_of_a_full_cache(storage: Any, tmp_path: Path) -> None:
    """After a sync that failed while an add made room, no checkpoint says that all is well."""
    faults = FaultPlan()
    options = StorageOptions(write_cache=8000, pending_locations=20)
    bookie = Bookie.open(tmp_path, storage, options=options, files=faults)
    faults.fail_sync(2)  # the first is that of the journal
    many = records(7, range(200))
    bookie.add_entry(many[0], KEY)
    with pytest.raises(SyncFailed):
        bookie.add_entries(many[1:], KEY, sync=False)
    with pytest.raises(ReadOnlyError):
        bookie.checkpoint()
    with pytest.raises(BkstoreError):
        bookie.add_entries(records(7, range(300, 400)), KEY)
    with pytest.raises(BkstoreError):
        bookie.close()


@pytest.mark.parametrize("storage", STORAGES)
def test_full_disk_again_and_again(storage: Any, tmp_path: Path) -> None:
    """Each retry of a flush goes on where the last one failed: nothing is written twice."""
    faults = FaultPlan()
    options = StorageOptions(write_cache=1 << 20)
    with LedgerStorage.open(tmp_path, storage, options=options, files=faults) as opened:
        opened.add_entries(records(99, range(20), 1000), master_key=KEY)
        opened.flush()  # now there is a log, whose buffer takes some of what follows
        for ledger in range(20):
            opened.set_master_key(ledger, KEY)
            opened.add_entries(records(ledger, range(20), 1000))
        faults.disk_full()
        for _ in range(20):
            with pytest.raises(WriteFailed):
                opened.flush()
        faults.free(1 << 30)
        opened.flush()
        (log,) = (tmp_path / "current").glob("?.log")

        assert 1024 + 21 * 20 * (4 + 36 + 1006) == log.stat().st_size
        for ledger in range(20):
            assert records(ledger, range(20), 1000) == opened.read_entries(ledger, 0).records()


def test_deleted_ledgers_make_room(tmp_path: Path) -> None:
    """A full cache whose ledger was deleted takes entries again, without a flush too."""
    options = StorageOptions(write_cache=4000, auto_flush=False)
    with LedgerStorage.open(tmp_path, "sorted", options=options) as opened:
        opened.add_entries(records(9, range(1)), master_key=KEY)
        opened.set_master_key(7, KEY)
        with pytest.raises(TooManyRequests):
            opened.add_entries(records(7, range(100)))
        opened.delete_ledger(7)
        opened.set_master_key(8, KEY)
        opened.add_entries(records(8, range(3)))

        assert [0, 1, 2] == opened.entries(8).tolist()


@pytest.mark.parametrize("storage", STORAGES)
def test_deleted_and_made_again(storage: Any, tmp_path: Path) -> None:
    """A ledger that is made again under another key has its new entries after a crash."""
    bookie = Bookie.open(tmp_path, storage)
    bookie.add_entries(records(7, range(3)), KEY)
    bookie.delete_ledger(7)
    new = CODER.encode(_entry(7, 0, b"new"))
    bookie.add_entry(new, b"q" * 20)
    bookie.close(checkpoint=False)
    with Bookie.open(tmp_path, storage) as again:
        assert b"q" * 20 == again.master_key(7)
        assert [0] == again.entries(7).tolist()
        assert new == again.read_entry(7, 0)


def _entry(ledger: int, entry_id: int, payload: bytes) -> Any:
    from bkstore.formats.entry import Entry

    return Entry(LedgerId.of(ledger), entry_id, entry_id - 1, len(payload), payload)


def test_retried_fence_is_durable_or_fails(tmp_path: Path) -> None:
    """A fence whose record could not be written is not acknowledged when it is asked for again."""
    faults = FaultPlan()
    bookie = Bookie.open(tmp_path, files=faults)
    bookie.add_entries(records(7, range(1)), KEY)
    faults.fail_sync(1)
    with pytest.raises(SyncFailed):
        bookie.fence(7, KEY)
    with pytest.raises(BkstoreError):
        bookie.fence(7, KEY)
    bookie.close(checkpoint=False)


def test_fences_of_two_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence that another thread has begun is durable before it is called old."""
    bookie = Bookie.open(tmp_path)
    bookie.add_entries(records(7, range(1)), KEY)
    journal = bookie.journals[0]
    append, begun, go_on = journal.append_special, threading.Event(), threading.Event()

    def slow(kind: Any, ledger: Any, body: bytes = b"") -> Any:
        if kind == "fence" and not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        return append(kind, ledger, body)

    monkeypatch.setattr(journal, "append_special", slow)
    first = threading.Thread(target=bookie.fence, args=(7, KEY))
    second = threading.Thread(target=bookie.fence, args=(7, KEY))
    first.start()
    assert begun.wait(60)
    second.start()
    second.join(0.05)

    assert second.is_alive()  # it waits for the record of the first

    go_on.set()
    first.join(60)
    second.join(60)
    bookie.close(checkpoint=False)
    with Bookie.open(tmp_path) as again:
        assert again.is_fenced(7)


def test_garbage_is_told_apart_from_new_ledgers(tmp_path: Path) -> None:
    """A ledger that is made while the metadata store is asked is not taken for deleted."""
    with LedgerStorage.open(tmp_path) as opened:
        opened.set_master_key(7, KEY)

        def live() -> Iterator[int]:
            opened.set_master_key(8, KEY)
            yield 7

        report = opened.collect_garbage(live)

        assert [] == report.deleted_ledgers
        assert [7, 8] == [name.ledger for name in opened.ledgers()]


@pytest.mark.parametrize("threads", [4])
def test_collections_take_turns(threads: int, tmp_path: Path) -> None:
    """Garbage collections of several threads at once end as one after the other would."""
    options = StorageOptions(entry_log_size=4000)
    with LedgerStorage.open(tmp_path, "db", options=options) as opened:
        for ledger in range(8):
            opened.set_master_key(ledger, KEY)
            opened.add_entries(records(ledger, range(20)))
            opened.flush()
        for ledger in range(0, 8, 2):
            opened.delete_ledger(ledger)
        errors: list[BaseException] = []

        def collect() -> None:
            try:
                opened.collect_garbage(threshold=0.9)
            except (BkstoreError, OSError) as error:
                errors.append(error)

        running = [threading.Thread(target=collect) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(60)

        assert [] == errors
        for ledger in range(1, 8, 2):
            assert records(ledger, range(20)) == opened.read_entries(ledger, 0).records()


def test_limbo_takes_recovery_adds_only(tmp_path: Path) -> None:
    """In limbo nobody knows whether a ledger is fenced, so plain adds are refused."""
    first, second = records(7, range(2))
    with LedgerStorage.open(tmp_path, "db") as opened:
        opened.add_entry(first, master_key=KEY)
        opened.set_limbo(7)
        with pytest.raises(DataUnknown):
            opened.add_entry(second)
        opened.add_entry(second, recovery=True)

        assert [0, 1] == opened.entries(7).tolist()


def test_batch_of_newer_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a cache is being flushed, a batch has an entry's newest record, as a single read."""
    old = records(7, range(5))
    new = CODER.encode(_entry(7, 2, b"newer"))
    with LedgerStorage.open(tmp_path, "db") as opened:
        opened.set_master_key(7, KEY)
        opened.add_entries(old)
        (path,) = opened.write_paths
        assert path.take_snapshot()  # type: ignore[attr-defined]
        opened.add_entry(new)

        assert new == opened.read_entry(7, 2)
        assert [*old[:2], new, *old[3:]] == opened.read_entries(7, 0).records()


def test_batch_beside_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose log a compaction removes in between is read from the new log."""
    options = StorageOptions(entry_log_size=3000)
    with LedgerStorage.open(tmp_path, "interleaved", options=options) as opened:
        for ledger in (7, 8):
            opened.set_master_key(ledger, KEY)
        for pair in zip(records(7, range(40)), records(8, range(40))):
            opened.add_entries(pair)
        opened.flush()
        (path,) = opened.write_paths
        found, once = path.get_location_run, [True]

        def looked_up(*args: Any) -> Any:
            locations = found(*args)
            if once:
                once.clear()
                opened.delete_ledger(8)
                opened.collect_garbage(threshold=0.9)
            return locations

        monkeypatch.setattr(path, "get_location_run", looked_up)
        batch = opened.read_entries(7, 0)

        assert batch.stopped is None
        assert records(7, range(40)) == batch.records()


def test_db_directories_in_another_order(tmp_path: Path) -> None:
    """Db directories in another order are refused: every look-up would say "not here"."""
    places = [tmp_path / "a", tmp_path / "b"]
    with LedgerStorage.open(places, "db") as opened:
        for ledger in (4, 7):
            opened.add_entries(records(ledger, range(2)), master_key=KEY)
    with pytest.raises(UnsupportedLayout, match="another order"):
        LedgerStorage.open(places[::-1], "db")
    with LedgerStorage.open(places, "db") as opened:
        assert [4, 7] == [name.ledger for name in opened.ledgers()]


@pytest.mark.parametrize("storage", ["sorted", "interleaved"])
def test_states_that_no_header_takes(storage: Any, tmp_path: Path) -> None:
    """A key that the index file's header could not take is refused when it is set."""
    with Bookie.open(tmp_path, storage) as bookie:
        with pytest.raises(InvalidArgument, match="2000"):
            bookie.add_entries(records(7, range(1)), b"k" * 2000)
        with pytest.raises(InvalidArgument, match="not an explicit LAC"):
            bookie.set_explicit_lac(8, b"short", KEY)
        bookie.checkpoint()

        assert [] == bookie.entries(7).tolist()


def test_closing_goes_on_after_an_error(tmp_path: Path) -> None:
    """A directory that fails to close keeps no other one open."""
    places = [tmp_path / "a", tmp_path / "b"]
    faults = FaultPlan()
    opened = LedgerStorage.open(places, "db", files=faults)
    for ledger in (0, 1):
        opened.add_entries(records(ledger, range(2)), master_key=KEY)
    faults.disk_full()
    with pytest.raises(WriteFailed):
        opened.close()
    with LedgerStorage.open(places, "db") as again:
        assert [] == again.ledgers()


def test_many_logs_of_their_own(tmp_path: Path) -> None:
    """With one log a ledger only so many stay open, and a deleted ledger's is collected."""
    options = StorageOptions(entry_log_per_ledger=True, max_active_logs=4)
    with LedgerStorage.open(tmp_path, "interleaved", options=options) as opened:
        for ledger in range(30):
            opened.add_entries(records(ledger, range(3)), master_key=KEY)
        (path,) = opened.write_paths

        assert 4 == len(path.logger.active_ids)
        assert len([log for log in range(30) if path.logger.metadata_of(log)]) <= 2 * 4
        for ledger in range(20, 30):
            opened.delete_ledger(ledger)
        report = opened.collect_garbage()

        assert 10 == len(report.removed_logs)
        for ledger in range(20):
            assert records(ledger, range(3)) == opened.read_entries(ledger, 0).records()


def test_damaged_compaction_output(tmp_path: Path) -> None:
    """Output of a compaction that cannot be finished is a finding; both logs stay."""
    options = StorageOptions(entry_log_size=3000)
    with LedgerStorage.open(tmp_path, "interleaved", options=options) as opened:
        opened.add_entries(records(7, range(40)), master_key=KEY)
    current = tmp_path / "current"
    (current / "63.log.0.compacted").write_bytes((current / "0.log").read_bytes())
    flip_byte(current / "63.log.0.compacted", 1025)
    with LedgerStorage.open(tmp_path, "interleaved", options=options) as opened:
        assert opened.findings
        assert records(7, range(40)) == opened.read_entries(7, 0).records()


@pytest.mark.parametrize("storage", STORAGES)
def test_finished_compaction_brings_nothing_back(storage: Any, tmp_path: Path) -> None:
    """A compaction of log 0 that is finished twice leaves entries deleted that were in between."""
    options = StorageOptions(entry_log_size=3000, write_cache=8000)
    with LedgerStorage.open(tmp_path, storage, options=options) as opened:
        for ledger in (7, 8):
            opened.set_master_key(ledger, KEY)
        for pair in zip(records(7, range(40)), records(8, range(40))):
            opened.add_entries(pair)
        opened.flush()
        opened.checkpoint()
        opened.delete_ledger(8)
        report = opened.collect_garbage(threshold=0.9, transactional=True)

        assert (0, 0) in report.compacted_logs
        opened.delete_ledger(7)
        opened.add_entries(records(7, range(3)), master_key=KEY)
    (new, *_) = sorted((tmp_path / "current").glob("?.log"))
    (tmp_path / "current" / f"{new.name}.0.compacted").hardlink_to(new)
    with LedgerStorage.open(tmp_path, storage, options=options) as opened:
        assert [0, 1, 2] == opened.entries(7).tolist()
        assert [] == list((tmp_path / "current").glob("*.compacted"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(tmp_path: Path) -> None:
    """A forked child has a closed storage, and does not keep the parent's lock."""
    opened = LedgerStorage.open(tmp_path, "interleaved")
    opened.add_entries(records(7, range(2)), master_key=KEY)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        told = b"?"
        try:
            opened.add_entries(records(7, range(2, 3)))
        except IllegalOperation:
            told = b"closed"
        try:
            LedgerStorage.open(tmp_path, "interleaved")
        except DirectoryInUse:
            told += b", in use"
        os.write(ready[1], told)
        os.read(done[0], 1)
        os._exit(0)
    try:
        assert b"closed, in use" == os.read(ready[0], 100)

        opened.close()
        with LedgerStorage.open(tmp_path, "interleaved") as again:  # the child still runs
            assert [0, 1] == again.entries(7).tolist()
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for fd in (*ready, *done):
            os.close(fd)


def test_directory_where_a_file_should_be(tmp_path: Path) -> None:
    """A folder with the name of a file of ours is a named error."""
    (tmp_path / "current" / "lastId").mkdir(parents=True)
    with pytest.raises(CorruptionError, match="lastId"):
        LedgerStorage.open(tmp_path)
