"""JournalWriter: its promises, to many threads and on a disk that fails, call by call."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import IllegalOperation, InvalidArgument, SyncFailed, WriteFailed
from bkstore.formats.entry import RecordBatch
from bkstore.storage.journal import (
    NO_MARK,
    JournalWriter,
    LogMark,
    delete_journals_before,
    list_journal_files,
    read_last_mark,
    scan_journal,
    write_last_mark,
)
from tests.storage.journal.journal_disk import Disk, record_of, records_in

WAIT = 60  # seconds until a test that hangs fails; nothing waits for time to pass


def _holds(disk: Disk, place: LogMark, record: bytes) -> bool:
    """Return whether the record that ends at `place` is among what is durable."""
    data = disk.durable.get(f"{place.journal_id:x}.txn", b"")
    return data[place.position - len(record) : place.position] == record


def test_durable_when_sync_returns(tmp_path: Path) -> None:
    """When `sync` returns, the record and its file's name survive a power cut, at rolls too."""
    disk = Disk()
    with JournalWriter(tmp_path, files=disk, preallocate=1024, max_size=2000) as writer:
        for number in range(50):
            record = record_of(number, 300)
            place = writer.append(record)
            mark = writer.sync(place)

            assert _holds(disk, place, record)
            assert place <= mark == writer.mark
            assert f"{mark.journal_id:x}.txn" in disk.durable


def test_nothing_is_durable_before_sync(tmp_path: Path) -> None:
    """Appending, and flushing without sync, leave the mark where it was."""
    disk = Disk()
    with JournalWriter(tmp_path, files=disk, write_buffer=0) as writer:
        mark = writer.mark
        writer.append(record_of(1))

        assert mark == writer.mark
        assert mark < writer.flush(sync=False) == writer.position
        assert mark == writer.mark
        assert writer.position == writer.sync() == writer.mark


def test_a_close_makes_durable(tmp_path: Path) -> None:
    """What was appended is durable when `close` returns; a second close does nothing."""
    disk = Disk()
    writer = JournalWriter(tmp_path, files=disk, preallocate=0)
    place = writer.append(record_of(1))
    writer.close()
    calls = list(disk.calls)
    writer.close()

    assert _holds(disk, place, record_of(1))
    assert place <= writer.mark == writer.sync()
    assert (calls, {}) == (disk.calls, disk.open_files)
    for refused in (lambda: writer.append(record_of(2)), writer.flush):
        with pytest.raises(IllegalOperation, match="closed"):
            refused()


def test_one_fsync_for_many_appends(tmp_path: Path) -> None:
    """A sync costs one fsync for all that was appended, and none where nothing was."""
    disk = Disk()
    with JournalWriter(tmp_path, files=disk, preallocate=0) as writer:
        places = [writer.append(record_of(number)) for number in range(100)]
        before = disk.calls.count("fsync")
        for place in [*places, None]:
            writer.sync(place)

        assert 1 == disk.calls.count("fsync") - before


def test_a_place_that_nothing_was_appended_up_to(tmp_path: Path) -> None:
    """`sync` does not say that something is durable that was never appended."""
    with JournalWriter(tmp_path, preallocate=0) as writer:
        place = writer.append(record_of(1))
        with pytest.raises(InvalidArgument, match="no append ended"):
            writer.sync(place._replace(position=place.position + 512))


# -- threads


def test_syncs_share_an_fsync(tmp_path: Path) -> None:
    """All who append while an fsync runs are made durable by the next one together."""
    disk, followers = Disk(), 30
    appended = threading.Semaphore(0)
    with (
        JournalWriter(tmp_path, files=disk, preallocate=0) as writer,
        ThreadPoolExecutor(followers) as pool,
    ):

        def follow(number: int) -> bool:
            place = writer.append(record_of(number))
            appended.release()
            writer.sync(place)
            return _holds(disk, place, record_of(number))

        def meanwhile() -> None:
            running.extend(pool.submit(follow, number) for number in range(followers))
            for _ in range(followers):
                assert appended.acquire(timeout=WAIT)

        running: list[Any] = []
        before = disk.calls.count("fsync")
        place = writer.append(record_of(followers))
        disk.during_fsync = meanwhile
        writer.sync(place)

        assert [True] * followers == [future.result(WAIT) for future in running]
        assert 2 == disk.calls.count("fsync") - before


def test_no_fsync_for_what_another_covers(tmp_path: Path) -> None:
    """Those who wait while an fsync makes their records durable cost none of their own."""
    disk, waiting = Disk(), 8
    about_to = threading.Semaphore(0)
    with (
        JournalWriter(tmp_path, files=disk, preallocate=0) as writer,
        ThreadPoolExecutor(waiting) as pool,
    ):

        def wait(place: LogMark) -> LogMark:
            about_to.release()
            return writer.sync(place)

        def meanwhile() -> None:
            running.extend(pool.submit(wait, place) for place in places)
            for _ in places:
                assert about_to.acquire(timeout=WAIT)
            writer.append(record_of(waiting))  # what a needless flush would find to write

        running: list[Any] = []
        before = disk.calls.count("fsync")
        places = [writer.append(record_of(number)) for number in range(waiting)]
        disk.during_fsync = meanwhile
        mark = writer.sync(places[-1])

        assert [mark] * waiting == [future.result(WAIT) for future in running]
        assert 1 == disk.calls.count("fsync") - before


@pytest.mark.parametrize("version", [4, 6])
def test_many_threads(tmp_path: Path, version: int) -> None:
    """Each thread's sync returns only when its record is durable, with rolls in between."""
    disk, threads, rounds = Disk(), 8, 40
    with JournalWriter(
        tmp_path,
        files=disk,
        version=version,
        preallocate=1024,
        max_size=8000,
        write_buffer=500,
    ) as writer:

        def work(thread: int) -> list[bytes]:
            mine = [record_of(thread * rounds + n, 16 + 37 * n % 400) for n in range(rounds)]
            for record in mine:
                place = writer.append(record)
                writer.sync(place)

                assert _holds(disk, place, record)
            return mine

        with ThreadPoolExecutor(threads) as pool:
            lists = list(pool.map(work, range(threads), timeout=WAIT))
    found = records_in(tmp_path)

    assert sorted(record for mine in lists for record in mine) == sorted(found)
    for mine in lists:
        assert mine == [record for record in found if record in set(mine)]
    assert 5 <= len(list_journal_files(tmp_path))


def test_appended_during_the_last_fsync_of_a_file(tmp_path: Path) -> None:
    """A roll makes durable what others appended since the flush, and puts it in the old file."""
    disk, places = Disk(), []
    with JournalWriter(tmp_path, files=disk, preallocate=0, max_size=600, first_id=1) as writer:
        writer.append(record_of(1, 500))
        disk.during_fsync = lambda: places.append(writer.append(record_of(2)))
        writer.sync()

        assert [1] == [place.journal_id for place in places]
        assert _holds(disk, places[0], record_of(2))
        assert LogMark(2, 512) == writer.mark == writer.position


# -- failures


def _session(current: Path, disk: Disk, durable: list[bytes], batches: bool) -> JournalWriter:
    """Append, sync and roll; note what a sync said is durable. Return the writer, closed."""
    writer = JournalWriter(
        current, files=disk, preallocate=1024, max_size=2000, write_buffer=700, first_id=1
    )
    with writer:
        for number in range(12):
            records = [record_of(number * 10 + n, 200 + 90 * n) for n in range(3)]
            if batches:
                place = writer.append_batch(RecordBatch.of(records, range(3)))
            else:
                place = writer.append_many(records)
            writer.append(records[0])
            if number % 3:
                writer.sync(place)
                durable.extend(records)
            else:
                writer.sync()
                durable.extend([*records, records[0]])
    return writer


def _contained(found: list[bytes], wanted: list[bytes]) -> bool:
    """Return whether `wanted` are there in order, others between them or not."""
    rest = iter(found)
    return all(record in rest for record in wanted)


@pytest.mark.parametrize("batches", [False, True], ids=["append_many", "append_batch"])
def test_any_call_may_fail(tmp_path: Path, batches: bool) -> None:
    """Whichever call fails: the named error, no handle left, all that was durable is read."""
    for failing in count():
        disk = Disk(failing)
        current = tmp_path / str(failing)
        current.mkdir()
        durable: list[bytes] = []
        try:
            _session(current, disk, durable, batches)
        except WriteFailed as error:
            call = disk.calls[failing]
            found = (type(error), error.errno, Path(error.file).parent)
            synced = call in ("fsync", "sync_dir")

            assert (SyncFailed if synced else WriteFailed, errno.ENOSPC, current) == found, call
        else:
            break
        left = [data for _, path in list_journal_files(current) for _, data in scan_journal(path)]

        assert _contained(left, durable), f"call {failing}, {call}"
        assert {} == disk.open_files, f"call {failing}, {call}"
        there = [number for number, _ in list_journal_files(current)]
        with JournalWriter(current, preallocate=0, first_id=1) as writer:
            assert 1 + max(there, default=0) == writer.mark.journal_id

    assert 60 < failing
    assert {"open", "pwrite", "fsync", "sync_dir", "close"} == set(disk.calls)


def _writer(current: Path, disk: Disk, **options: int) -> JournalWriter:
    return JournalWriter(current, files=disk, **{"preallocate": 0, "first_id": 1} | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("skipped", "error"), [(0, WriteFailed), (1, SyncFailed)], ids=["write", "fsync"]
)
def test_a_failure_ends_the_writer(tmp_path: Path, skipped: int, error: type[WriteFailed]) -> None:
    """After a failed write or fsync nothing is appended, nothing is synced again, marks stay."""
    disk = Disk()
    writer = _writer(tmp_path, disk)
    writer.append(record_of(1))
    mark = writer.sync()
    lost = writer.append(record_of(2))
    assert not writer.has_failed
    disk.failing = len(disk.calls) + skipped
    with pytest.raises(error, match=r"1\.txn"):
        writer.sync()
    calls = list(disk.calls)
    refused: list[Callable[[], object]] = [
        lambda: writer.append(record_of(3)),
        lambda: writer.append_batch(RecordBatch.of([record_of(3)], [0])),
        lambda: writer.append_special("fence", 7),
        lambda: writer.sync(lost),
        writer.flush,
    ]
    for call in refused:
        with pytest.raises(IllegalOperation, match="an earlier write failed"):
            call()

    assert writer.has_failed
    assert mark == writer.mark == writer.sync(mark)
    assert calls == disk.calls
    writer.close()
    assert [*calls, "close"] == disk.calls
    assert [record_of(1)] == [data for _, data in scan_journal(tmp_path / "1.txn")][:1]


@pytest.mark.parametrize(
    "options", [{"write_buffer": 0}, {"preallocate": 512}], ids=["buffer", "preallocation"]
)
def test_an_append_that_writes_may_fail(tmp_path: Path, options: dict[str, int]) -> None:
    """An append that fills the buffer or the preallocated space meets the full disk itself."""
    disk = Disk()
    with _writer(tmp_path, disk, **options) as writer:
        mark = writer.mark
        disk.failing = len(disk.calls)
        with pytest.raises(WriteFailed, match="No space left"):
            writer.append(record_of(1))
        with pytest.raises(IllegalOperation, match="No space left"):
            writer.flush()

        assert mark == writer.mark


def test_a_roll_that_fails(tmp_path: Path) -> None:
    """The flush that asked for the roll raises; its records are durable, and `mark` says so."""
    disk = Disk()
    with _writer(tmp_path, disk, max_size=600) as writer:
        place = writer.append(record_of(1, 500))
        disk.failing = len(disk.calls) + 2  # write, fsync, then the next file
        with pytest.raises(WriteFailed, match=r"2\.txn"):
            writer.sync(place)

        assert "open" == disk.calls[disk.failing]
        assert place <= writer.mark == writer.sync(place)
        assert _holds(disk, place, record_of(1, 500))
        with pytest.raises(IllegalOperation):
            writer.append(record_of(2))


def test_an_append_fails_during_an_fsync(tmp_path: Path) -> None:
    """The fsync's own records are durable all the same; no roll follows the failed append."""
    disk = Disk()

    def fail() -> None:
        disk.failing = len(disk.calls)
        with pytest.raises(WriteFailed):
            writer.append(record_of(2))

    with _writer(tmp_path, disk, max_size=600, write_buffer=0) as writer:
        place = writer.append(record_of(1, 500))
        disk.during_fsync = fail

        assert place <= writer.sync(place) == writer.mark
        assert _holds(disk, place, record_of(1, 500))
        assert [1] == [number for number, _ in list_journal_files(tmp_path)]
        with pytest.raises(IllegalOperation):
            writer.append(record_of(3))


def test_an_interrupt_ends_the_writer_too(tmp_path: Path) -> None:
    """Ctrl-C in a write may leave half a record as well; it comes out as it is."""
    disk = Disk()
    with _writer(tmp_path, disk) as writer:
        writer.append(record_of(1))
        disk.failing, disk.error = len(disk.calls), KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            writer.sync()
        with pytest.raises(IllegalOperation):
            writer.append(record_of(2))


def test_a_file_of_the_next_name(tmp_path: Path) -> None:
    """A file that turns up under the next name is not overwritten."""
    with _writer(tmp_path, Disk(), max_size=600) as writer:
        (tmp_path / "2.txn").write_bytes(b"another's")
        writer.append(record_of(1, 500))
        with pytest.raises(WriteFailed, match=r"2\.txn.*exists"):
            writer.sync()

    assert b"another's" == (tmp_path / "2.txn").read_bytes()


# -- marks and deleting on such a disk


def test_a_mark_that_cannot_be_written(tmp_path: Path) -> None:
    """Whichever call fails, the error names the file, and each directory has one of the marks."""
    for failing in count():
        top = tmp_path / str(failing)
        directories = [top / "a", top / "b"]
        for path in directories:
            path.mkdir(parents=True)
        write_last_mark(directories, LogMark(3, 512))
        disk = Disk(failing)
        try:
            write_last_mark(directories, LogMark(4, 1024), files=disk)
        except WriteFailed as error:
            file = error.file
        else:
            break

        assert Path(file).name in ("lastMark", "lastMark.tmp")
        assert {read_last_mark([path]) for path in directories} <= {(3, 512), (4, 1024)}
        assert {} == disk.open_files

    assert ["open", "pwrite", "fsync", "close", "replace", "sync_dir"] * 2 == disk.calls
    assert LogMark(4, 1024) == read_last_mark(directories[:1]) == read_last_mark(directories[1:])


def test_deleting_fails_without_a_gap(tmp_path: Path) -> None:
    """Files go oldest first, so that a failure in between leaves no gap; nothing is synced."""
    for number in range(1, 8):
        (tmp_path / f"{number}.txn").touch()
    with pytest.raises(WriteFailed, match=r"3\.txn"):
        delete_journals_before(tmp_path, LogMark(6, 0), 0, files=Disk(2))

    assert [3, 4, 5, 6, 7] == [number for number, _ in list_journal_files(tmp_path)]
    disk = Disk()
    delete_journals_before(tmp_path, LogMark(6, 0), 1, files=disk)
    delete_journals_before(tmp_path, NO_MARK, 0, files=disk)

    assert ["unlink", "unlink"] == disk.calls
