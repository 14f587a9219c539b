"""JournalWriter: its bytes against an oracle of the format, its promises against a failing disk.

The oracle builds files from the rules on `docs/formats/journal.md`; the disk is a `Files` that
counts calls, fails one of them, or remembers what was made durable.

Over 500 lines because it is one family: bytes, threads and failures share the oracle and the disk.
"""

from __future__ import annotations

import errno
import struct
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkstore.errors import BkstoreError, IllegalOperation, InvalidArgument, SyncFailed, WriteFailed
from bkstore.index.files import Files
from bkstore.storage.journaling import (
    NO_MARK,
    JournalWriter,
    LogMark,
    delete_journals_before,
    journal_files,
    read_last_mark,
    scan_journal,
    write_last_mark,
)

HEADERS = {
    4: bytes.fromhex("424b4c47 00000004"),
    5: bytes.fromhex("424b4c47 00000005") + bytes(504),
    6: bytes.fromhex("424b4c47 00000006") + bytes(504),
}
WAIT = 60  # seconds until a test that hangs fails; nothing waits for time to pass


class Oracle:
    """The files that a journal of such records and flushes has, by the rules of the format."""

    def __init__(self, version: int, step: int, max_size: int, alignment: int) -> None:
        self.version, self.step, self.max_size = version, step, max_size
        self.alignment = alignment
        self.files = [HEADERS[version]]

    def append(self, record: bytes) -> tuple[int, int]:
        """Return (file number from 0, position behind the record)."""
        self.files[-1] += struct.pack(">i", len(record)) + record
        return len(self.files) - 1, len(self.files[-1])

    def flush(self, roll: bool = True) -> None:
        """Pad as far as the version does, then go on in another file if this one is too large."""
        gap = -len(self.files[-1]) % self.alignment
        if self.version >= 5 and gap:
            gap += self.alignment if gap < 8 else 0
            self.files[-1] += b"\xff\xff\xff\x00" + struct.pack(">i", gap - 8) + bytes(gap - 8)
        if roll and len(self.files[-1]) > self.max_size:
            self.files.append(HEADERS[self.version])

    def on_disk(self) -> list[bytes]:
        """Return the files with the zeros of whole preallocation steps behind their data."""
        if not self.step:
            return self.files
        return [data.ljust(-(-len(data) // self.step) * self.step, b"\0") for data in self.files]


def _record(number: int, size: int = 16) -> bytes:
    return number.to_bytes(8, "big").ljust(size, b"\xee")


def _records(current: Path) -> list[bytes]:
    """Return the records of all files of a directory; nothing odd may be found on the way."""
    found = []
    for _, path in journal_files(current):
        scan = scan_journal(path)
        found.extend(data for _, data in scan)

        assert [] == scan.findings
    return found


# -- bytes


@given(
    steps=st.lists(st.none() | st.integers(16, 700) | st.integers(2000, 5000), max_size=40),
    version=st.sampled_from([4, 5, 6]),
    preallocate=st.sampled_from([0, 1, 2, 7]),
    alignment=st.sampled_from([512, 1024]),
    max_size=st.integers(512, 12000),
    write_buffer=st.integers(0, 4000),
)
def test_bytes_are_those_of_the_format(
    steps: list[int | None],
    version: int,
    preallocate: int,
    alignment: int,
    max_size: int,
    write_buffer: int,
) -> None:
    """Header, records, padding, rolls and zeros are the oracle's; a scan gives the records."""
    oracle = Oracle(version, preallocate * alignment, max_size, alignment)
    written = []
    with tempfile.TemporaryDirectory() as name:
        with JournalWriter(
            Path(name),
            version=version,
            preallocate=preallocate * alignment,
            alignment=alignment,
            max_size=max_size,
            write_buffer=write_buffer,
            first_id=1,
        ) as writer:
            for number, size in enumerate(steps):
                if size is None:
                    writer.flush(sync=bool(number % 2))
                    oracle.flush()
                else:
                    written.append(_record(number, size))
                    place = writer.append(written[-1])
                    file, position = oracle.append(written[-1])

                    assert LogMark(file + 1, position) == place == writer.position
        oracle.flush(roll=False)

        assert list(range(1, len(oracle.files) + 1)) == [n for n, _ in journal_files(Path(name))]
        assert oracle.on_disk() == [path.read_bytes() for _, path in journal_files(Path(name))]
        assert written == _records(Path(name))


@pytest.mark.parametrize("version", [4, 5, 6])
def test_every_small_gap(tmp_path: Path, version: int) -> None:
    """Whatever gap a record leaves before the boundary, the next one is found behind it."""
    written = [_record(size, size) for size in range(480, 512) for _ in range(2)]
    with JournalWriter(tmp_path, version=version, preallocate=0) as writer:
        for record in written:
            writer.append(record)
            position = writer.flush(sync=False).position

            assert version == 4 or position % 512 == 0

    assert written == _records(tmp_path)


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5])
def test_space_left_without_padding(tmp_path: Path, left: int) -> None:
    """In version 4 a record may end any few bytes before the preallocated space does."""
    with JournalWriter(tmp_path, version=4, preallocate=1024, first_id=1) as writer:
        writer.append(_record(1, 1024 - 8 - 4 - left))

    assert 1024 == (tmp_path / "1.txn").stat().st_size
    assert [_record(1, 1012 - left)] == _records(tmp_path)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_special_records(tmp_path: Path, version: int) -> None:
    """Master keys and fences are in every version; explicit LACs leave no trace below 6."""
    with JournalWriter(tmp_path, version=version, preallocate=0, first_id=1) as writer:
        header = len(HEADERS[version])

        assert LogMark(1, header + 27) == writer.append_special("master_key", 7, b"key")
        lac = writer.append_special("explicit_lac", 7, bytes(16))
        assert (None if version < 6 else LogMark(1, header + 67)) == lac
        writer.append_special("fence", 7)
    ((_, path),) = journal_files(tmp_path)
    kinds = [record.kind for _, record in scan_journal(path).records()]

    assert ["master_key", *["explicit_lac"] * (version == 6), "fence"] == kinds


def test_append_many_is_all_or_nothing(tmp_path: Path) -> None:
    """One record that cannot be written keeps the others out too."""
    with JournalWriter(tmp_path, preallocate=0) as writer:
        before = writer.position
        with pytest.raises(InvalidArgument, match="15 bytes"):
            writer.append_many([_record(1), bytes(15)])

        assert before == writer.position == writer.append_many([])


@pytest.mark.parametrize(
    "options",
    [
        {"version": 3},
        {"version": 7},
        {"alignment": 0},
        {"alignment": 700},
        {"preallocate": -512},
        {"preallocate": 700},
        {"preallocate": 512, "alignment": 1024},
        {"first_id": -1},
    ],
    ids=str,
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, int]) -> None:
    """What no format has is refused before a file is made."""
    with pytest.raises(InvalidArgument):
        JournalWriter(tmp_path, **options)  # type: ignore[arg-type]

    assert [] == list(tmp_path.iterdir())


def test_missing_directory(tmp_path: Path) -> None:
    """The directory must be there; its name is in the error."""
    with pytest.raises(BkstoreError, match="gone: cannot be read"):
        JournalWriter(tmp_path / "gone")


# -- ids


def test_first_id_is_the_clock_and_one(tmp_path: Path) -> None:
    """In an empty directory the first id is the clock's milliseconds plus 1."""
    with JournalWriter(tmp_path, preallocate=0, clock=lambda: 1795244360.5) as writer:
        assert LogMark(1795244360501, 512) == writer.mark == writer.position
    assert [tmp_path / "1a1fce70335.txn"] == [path for _, path in journal_files(tmp_path)]


def test_ids_go_up_by_one(tmp_path: Path) -> None:
    """Each roll and each start takes the next id, whatever the clock or the caller says."""
    for start in range(3):
        with JournalWriter(tmp_path, preallocate=0, max_size=600, first_id=9 - start) as writer:
            writer.append(_record(start, 500))
            writer.sync()

    assert [9, 10, 11, 12, 13, 14] == [number for number, _ in journal_files(tmp_path)]
    assert [_record(start, 500) for start in range(3)] == _records(tmp_path)


def test_a_torn_file_is_left_alone(tmp_path: Path) -> None:
    """A start behind a crash begins a file of its own: nothing goes behind half a record."""
    torn = HEADERS[6] + struct.pack(">i", 100) + bytes(50)
    (tmp_path / "3.txn").write_bytes(torn)
    with JournalWriter(tmp_path, preallocate=0) as writer:
        writer.append(_record(1))

    assert torn == (tmp_path / "3.txn").read_bytes()
    assert [_record(1)] == [data for _, data in scan_journal(tmp_path / "4.txn")]


# -- a disk that counts, fails and remembers


class Disk(Files):
    """Counts calls; the call numbered `failing` raises, a write after half of its bytes.

    `durable` has each file's bytes as they were when its last fsync began, for names that a
    directory sync has covered. `during_fsync` is called once, in the next fsync.
    """

    def __init__(self, failing: int | None = None) -> None:
        self.failing = failing
        self.error: BaseException = OSError(errno.ENOSPC, "No space left on device")
        self.calls: list[str] = []
        self.open_files: dict[int, Path] = {}
        self.during_fsync: Callable[[], object] | None = None
        self._synced: dict[Path, bytes] = {}
        self._named: set[Path] = set()

    @property
    def durable(self) -> dict[str, bytes]:
        """What is left after the power went."""
        synced = dict(self._synced)  # other threads go on
        return {path.name: data for path, data in synced.items() if path in self._named}

    def _count(self, call: str) -> bool:
        self.calls.append(call)
        return len(self.calls) - 1 == self.failing

    def open(self, path: Any, flags: int) -> int:
        """Open, and remember by which name."""
        if self._count("open"):
            raise self.error
        fd = super().open(path, flags)
        self.open_files[fd] = Path(path)
        return fd

    def close(self, fd: int) -> None:
        """Close, failing or not."""
        fails = self._count("close")
        del self.open_files[fd]
        super().close(fd)
        if fails:
            raise self.error

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all, or half and fail."""
        fails = self._count("pwrite")
        super().pwrite(fd, data[: len(data) // 2] if fails else data, offset)
        if fails:
            raise self.error

    def fsync(self, fd: int) -> None:
        """Keep what the file has now as durable."""
        if self._count("fsync"):
            raise self.error
        data = self.open_files[fd].read_bytes()
        hook, self.during_fsync = self.during_fsync, None
        if hook is not None:
            hook()
        self._synced[self.open_files[fd]] = data

    def sync_dir(self, path: Any) -> None:
        """Keep the names that the directory has now."""
        if self._count("sync_dir"):
            raise self.error
        self._named.update(Path(path).iterdir())

    def unlink(self, path: Any) -> None:
        """Remove a name."""
        if self._count("unlink"):
            raise self.error
        super().unlink(path)

    def replace(self, source: Any, target: Any) -> None:
        """Rename."""
        if self._count("replace"):
            raise self.error
        super().replace(source, target)


def _holds(disk: Disk, place: LogMark, record: bytes) -> bool:
    """Return whether the record that ends at `place` is among what is durable."""
    data = disk.durable.get(f"{place.journal_id:x}.txn", b"")
    return data[place.position - len(record) : place.position] == record


def test_durable_when_sync_returns(tmp_path: Path) -> None:
    """When `sync` returns, the record and its file's name survive a power cut, at rolls too."""
    disk = Disk()
    with JournalWriter(tmp_path, files=disk, preallocate=1024, max_size=2000) as writer:
        for number in range(50):
            record = _record(number, 300)
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
        writer.append(_record(1))

        assert mark == writer.mark
        assert mark < writer.flush(sync=False) == writer.position
        assert mark == writer.mark
        assert writer.position == writer.sync() == writer.mark


def test_a_close_makes_durable(tmp_path: Path) -> None:
    """What was appended is durable when `close` returns; a second close does nothing."""
    disk = Disk()
    writer = JournalWriter(tmp_path, files=disk, preallocate=0)
    place = writer.append(_record(1))
    writer.close()
    calls = list(disk.calls)
    writer.close()

    assert _holds(disk, place, _record(1))
    assert place <= writer.mark == writer.sync()
    assert (calls, {}) == (disk.calls, disk.open_files)
    for refused in (lambda: writer.append(_record(2)), writer.flush):
        with pytest.raises(IllegalOperation, match="closed"):
            refused()


def test_one_fsync_for_many_appends(tmp_path: Path) -> None:
    """A sync costs one fsync for all that was appended, and none where nothing was."""
    disk = Disk()
    with JournalWriter(tmp_path, files=disk, preallocate=0) as writer:
        places = [writer.append(_record(number)) for number in range(100)]
        before = disk.calls.count("fsync")
        for place in [*places, None]:
            writer.sync(place)

        assert 1 == disk.calls.count("fsync") - before


def test_a_place_that_nothing_was_appended_up_to(tmp_path: Path) -> None:
    """`sync` does not say that something is durable that was never appended."""
    with JournalWriter(tmp_path, preallocate=0) as writer:
        place = writer.append(_record(1))
        with pytest.raises(InvalidArgument, match="nothing was appended"):
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
            place = writer.append(_record(number))
            appended.release()
            writer.sync(place)
            return _holds(disk, place, _record(number))

        def meanwhile() -> None:
            running.extend(pool.submit(follow, number) for number in range(followers))
            for _ in range(followers):
                assert appended.acquire(timeout=WAIT)

        running: list[Any] = []
        before = disk.calls.count("fsync")
        place = writer.append(_record(followers))
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
            writer.append(_record(waiting))  # what a needless flush would find to write

        running: list[Any] = []
        before = disk.calls.count("fsync")
        places = [writer.append(_record(number)) for number in range(waiting)]
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
            mine = [_record(thread * rounds + n, 16 + 37 * n % 400) for n in range(rounds)]
            for record in mine:
                place = writer.append(record)
                writer.sync(place)

                assert _holds(disk, place, record)
            return mine

        with ThreadPoolExecutor(threads) as pool:
            lists = list(pool.map(work, range(threads), timeout=WAIT))
    found = _records(tmp_path)

    assert sorted(record for mine in lists for record in mine) == sorted(found)
    for mine in lists:
        assert mine == [record for record in found if record in set(mine)]
    assert 5 <= len(journal_files(tmp_path))


def test_appended_during_the_last_fsync_of_a_file(tmp_path: Path) -> None:
    """A roll makes durable what others appended since the flush, and puts it in the old file."""
    disk, places = Disk(), []
    with JournalWriter(tmp_path, files=disk, preallocate=0, max_size=600, first_id=1) as writer:
        writer.append(_record(1, 500))
        disk.during_fsync = lambda: places.append(writer.append(_record(2)))
        writer.sync()

        assert [1] == [place.journal_id for place in places]
        assert _holds(disk, places[0], _record(2))
        assert LogMark(2, 512) == writer.mark == writer.position


# -- failures


def _session(current: Path, disk: Disk, durable: list[bytes]) -> JournalWriter:
    """Append, sync and roll; note what a sync said is durable. Return the writer, closed."""
    writer = JournalWriter(
        current, files=disk, preallocate=1024, max_size=2000, write_buffer=700, first_id=1
    )
    with writer:
        for number in range(12):
            records = [_record(number * 10 + n, 200 + 90 * n) for n in range(3)]
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


def test_any_call_may_fail(tmp_path: Path) -> None:
    """Whichever call fails: the named error, no handle left, all that was durable is read."""
    for failing in count():
        disk = Disk(failing)
        current = tmp_path / str(failing)
        current.mkdir()
        durable: list[bytes] = []
        try:
            _session(current, disk, durable)
        except WriteFailed as error:
            call = disk.calls[failing]
            found = (type(error), error.errno, Path(error.file).parent)
            synced = call in ("fsync", "sync_dir")

            assert (SyncFailed if synced else WriteFailed, errno.ENOSPC, current) == found, call
        else:
            break
        left = [data for _, path in journal_files(current) for _, data in scan_journal(path)]

        assert _contained(left, durable), f"call {failing}, {call}"
        assert {} == disk.open_files, f"call {failing}, {call}"
        there = [number for number, _ in journal_files(current)]
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
    writer.append(_record(1))
    mark = writer.sync()
    lost = writer.append(_record(2))
    assert not writer.failed
    disk.failing = len(disk.calls) + skipped
    with pytest.raises(error, match=r"1\.txn"):
        writer.sync()
    calls = list(disk.calls)
    refused: list[Callable[[], object]] = [
        lambda: writer.append(_record(3)),
        lambda: writer.append_special("fence", 7),
        lambda: writer.sync(lost),
        writer.flush,
    ]
    for call in refused:
        with pytest.raises(IllegalOperation, match="writing failed before"):
            call()

    assert writer.failed
    assert mark == writer.mark == writer.sync(mark)
    assert calls == disk.calls
    writer.close()
    assert [*calls, "close"] == disk.calls
    assert [_record(1)] == [data for _, data in scan_journal(tmp_path / "1.txn")][:1]


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
            writer.append(_record(1))
        with pytest.raises(IllegalOperation, match="No space left"):
            writer.flush()

        assert mark == writer.mark


def test_a_roll_that_fails(tmp_path: Path) -> None:
    """The flush that asked for the roll raises; its records are durable, and `mark` says so."""
    disk = Disk()
    with _writer(tmp_path, disk, max_size=600) as writer:
        place = writer.append(_record(1, 500))
        disk.failing = len(disk.calls) + 2  # write, fsync, then the next file
        with pytest.raises(WriteFailed, match=r"2\.txn"):
            writer.sync(place)

        assert "open" == disk.calls[disk.failing]
        assert place <= writer.mark == writer.sync(place)
        assert _holds(disk, place, _record(1, 500))
        with pytest.raises(IllegalOperation):
            writer.append(_record(2))


def test_an_append_fails_during_an_fsync(tmp_path: Path) -> None:
    """The fsync's own records are durable all the same; no roll follows the failed append."""
    disk = Disk()

    def fail() -> None:
        disk.failing = len(disk.calls)
        with pytest.raises(WriteFailed):
            writer.append(_record(2))

    with _writer(tmp_path, disk, max_size=600, write_buffer=0) as writer:
        place = writer.append(_record(1, 500))
        disk.during_fsync = fail

        assert place <= writer.sync(place) == writer.mark
        assert _holds(disk, place, _record(1, 500))
        assert [1] == [number for number, _ in journal_files(tmp_path)]
        with pytest.raises(IllegalOperation):
            writer.append(_record(3))


def test_an_interrupt_ends_the_writer_too(tmp_path: Path) -> None:
    """Ctrl-C in a write may leave half a record as well; it comes out as it is."""
    disk = Disk()
    with _writer(tmp_path, disk) as writer:
        writer.append(_record(1))
        disk.failing, disk.error = len(disk.calls), KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            writer.sync()
        with pytest.raises(IllegalOperation):
            writer.append(_record(2))


def test_a_file_of_the_next_name(tmp_path: Path) -> None:
    """A file that turns up under the next name is not overwritten."""
    with _writer(tmp_path, Disk(), max_size=600) as writer:
        (tmp_path / "2.txn").write_bytes(b"another's")
        writer.append(_record(1, 500))
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

    assert [3, 4, 5, 6, 7] == [number for number, _ in journal_files(tmp_path)]
    disk = Disk()
    delete_journals_before(tmp_path, LogMark(6, 0), 1, files=disk)
    delete_journals_before(tmp_path, NO_MARK, 0, files=disk)

    assert ["unlink", "unlink"] == disk.calls
