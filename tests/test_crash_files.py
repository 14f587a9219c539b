"""The file layer of the crash tests, held against first principles of files and names."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkstore.errors import InvalidArgument
from bkstore.index.files import Files
from bkstore.index.rocks import RocksIndex
from bkstore.testing.crash import CrashFiles, PowerLoss

CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL
SEEDS = 60


class Disk:
    """A directory written through a `CrashFiles`; descriptors are closed at the end."""

    def __init__(self, top: Path) -> None:
        self.root = top / "disk"
        self.root.mkdir()
        self.top = top
        self.files = CrashFiles()
        self.fds: list[int] = []
        self._crashes = 0

    def open(self, name: str, flags: int = CREATE) -> int:
        """Return a descriptor for a file below the root."""
        fd = self.files.open(self.root / name, flags)
        self.fds.append(fd)
        return fd

    def durable(self, name: str, data: bytes) -> int:
        """Make a file whose bytes and name are durable."""
        fd = self.open(name)
        self.files.pwrite(fd, data, 0)
        self.files.fsync(fd)
        self.files.sync_dir((self.root / name).parent)
        return fd

    def after_crash(self, keep: random.Random | None = None) -> dict[str, bytes]:
        """Return the files that a power loss leaves, and their bytes; a folder is b"/"."""
        self._crashes += 1
        left = self.files.crash(self.root, self.top / f"crash-{self._crashes}", keep)
        return {
            str(path.relative_to(left)): b"/" if path.is_dir() else path.read_bytes()
            for path in sorted(left.rglob("*"))
        }

    def outcomes(self) -> list[dict[str, bytes]]:
        """Return what many power losses leave, each choosing by itself."""
        return [self.after_crash(random.Random(seed)) for seed in range(SEEDS)]

    def contents(self, name: str) -> set[bytes | None]:
        """Return every content that a file has in `outcomes`; None where it is gone."""
        return {left.get(name) for left in self.outcomes()}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Return a directory written through a `CrashFiles`."""
    made = Disk(tmp_path)
    yield made
    for fd in made.fds:
        made.files.close(fd)


class TestBytes:
    """What becomes of the bytes of a file whose name is durable."""

    def test_synced_bytes_stay(self, disk: Disk) -> None:
        """Bytes and name that were synced survive every power loss."""
        disk.durable("a", b"one")

        assert [{"a": b"one"}] * SEEDS == disk.outcomes()
        assert {"a": b"one"} == disk.after_crash()

    def test_unsynced_bytes_vanish(self, disk: Disk) -> None:
        """Without fsync an appended byte is gone, and so is a replaced one's replacement."""
        fd = disk.durable("a", b"one")
        disk.files.pwrite(fd, b"two", 0)
        disk.files.pwrite(fd, b"three", 3)

        assert {"a": b"one"} == disk.after_crash()
        assert b"twothree" == (disk.root / "a").read_bytes()

    def test_file_of_a_synced_name_only(self, disk: Disk) -> None:
        """A synced name does not bring the bytes along: the file is there, and empty."""
        fd = disk.open("a")
        disk.files.pwrite(fd, b"one", 0)
        disk.files.sync_dir(disk.root)

        assert {"a": b""} == disk.after_crash()

    def test_fsync_of_one_descriptor_counts_for_the_file(self, disk: Disk) -> None:
        """Bytes written through one descriptor are durable by the fsync of another."""
        fd = disk.durable("a", b"one")
        disk.files.pwrite(fd, b"two", 0)
        disk.files.fsync(disk.open("a", os.O_RDONLY))

        assert {"a": b"two"} == disk.after_crash()

    def test_truncate_is_undone(self, disk: Disk) -> None:
        """A cut that was not synced brings all cut bytes back, also after new ones behind it."""
        data = bytes(range(256)) * 9
        fd = disk.durable("a", data)
        disk.files.truncate(fd, 100)
        disk.files.pwrite(fd, b"x" * 1000, 90)
        disk.files.truncate(disk.open("a", os.O_RDWR), 2000)

        assert {"a": data} == disk.after_crash()

    def test_open_with_truncation_is_a_change(self, disk: Disk) -> None:
        """What O_TRUNC cut comes back, also where the file was opened for writing only."""
        disk.durable("a", b"one" * 500)
        fd = disk.open("a", os.O_WRONLY | os.O_TRUNC)
        disk.files.pwrite(fd, b"new", 0)

        assert {"a": b"one" * 500} == disk.after_crash()

        disk.files.fsync(fd)

        assert {"a": b"new"} == disk.after_crash()

    def test_holes_stay_holes(self, disk: Disk) -> None:
        """A sparse file's copy has the bytes and takes no more room."""
        fd = disk.durable("a", b"one")
        disk.files.pwrite(fd, b"end", 1 << 26)
        disk.files.fsync(fd)
        left = disk.files.crash(disk.root, disk.top / "left") / "a"

        assert (1 << 26) + 3 == left.stat().st_size
        assert 1 << 20 > left.stat().st_blocks * 512

    def test_torn_write(self, disk: Disk) -> None:
        """A write that was not synced survives by sectors of 512: whole, in part, or not."""
        old, new = b"o" * 2048, b"n" * 2048
        disk.files.pwrite(disk.durable("a", old), new, 0)
        found = disk.contents("a")

        assert {old, new} <= found
        assert 5 < len(found)
        for content in found:
            assert content is not None
            sectors = [content[at : at + 512] for at in range(0, 2048, 512)]
            assert {b"o" * 512, b"n" * 512} >= set(sectors)

    def test_sectors_are_those_of_the_file(self, disk: Disk) -> None:
        """A write across a sector's edge tears there, not at 512 bytes from its own begin."""
        disk.files.pwrite(disk.durable("a", b"o" * 1024), b"n" * 200, 412)
        first, second = b"o" * 412 + b"n" * 100, b"n" * 100 + b"o" * 412

        assert {
            b"o" * 1024,
            first + b"o" * 512,
            b"o" * 512 + second,
            first + second,
        } == disk.contents("a")

    def test_a_sector_has_what_some_write_left(self, disk: Disk) -> None:
        """Of two writes to one sector the second survives only with the first."""
        fd = disk.durable("a", b"....")
        disk.files.pwrite(fd, b"11", 0)
        disk.files.pwrite(fd, b"22", 2)

        assert {b"....", b"11..", b"1122"} == disk.contents("a")

    def test_writes_to_other_sectors_are_independent(self, disk: Disk) -> None:
        """Of two writes to two sectors either survives without the other."""
        fd = disk.durable("a", b"." * 1024)
        disk.files.pwrite(fd, b"1", 0)
        disk.files.pwrite(fd, b"2", 512)
        found = {content[::512] for content in disk.contents("a") if content is not None}

        assert {b"..", b"1.", b".2", b"12"} == found

    def test_length_without_bytes(self, disk: Disk) -> None:
        """An append's length may survive without its bytes: zeros, never anything else."""
        disk.files.pwrite(disk.durable("a", b"one"), b"two", 3)

        assert {b"one", b"onetwo", b"one\0\0\0"} == disk.contents("a")

    def test_truncate_survives_or_not(self, disk: Disk) -> None:
        """A cut that does not survive takes the later write with it."""
        fd = disk.durable("a", b"old old")
        disk.files.truncate(fd, 0)
        disk.files.pwrite(fd, b"new", 0)

        assert {b"old old", b"", b"new", b"\0\0\0"} == disk.contents("a")


class TestNames:
    """What becomes of names."""

    def test_synced_file_of_an_unsynced_directory(self, disk: Disk) -> None:
        """fsync of a new file does not make its name durable: the file is gone."""
        disk.files.fsync(disk.open("a"))

        assert {} == disk.after_crash()
        assert {None, b""} == disk.contents("a")

    def test_directory_without_a_durable_name(self, disk: Disk) -> None:
        """A directory whose own name was not synced is gone with everything synced in it."""
        disk.files.mkdir(disk.root / "d")
        disk.durable("d/a", b"one")

        assert {} == disk.after_crash()

        disk.files.sync_dir(disk.root)

        assert {"d": b"/", "d/a": b"one"} == disk.after_crash()

    def test_makedirs_is_durable(self, disk: Disk) -> None:
        """`makedirs` makes every level durable."""
        disk.files.makedirs(disk.root / "d" / "e" / "f")

        assert {"d": b"/", "d/e": b"/", "d/e/f": b"/"} == disk.after_crash()

    def test_makedirs_over_an_unsynced_directory(self, disk: Disk) -> None:
        """`makedirs` also makes the name of a directory durable that is there, but not durably."""
        disk.files.mkdir(disk.root / "d")
        disk.files.makedirs(disk.root / "d")

        assert {"d": b"/"} == disk.after_crash()

        disk.files.mkdir(disk.root / "e")
        disk.files.makedirs(disk.root / "e" / "f")

        assert {"d": b"/", "e": b"/", "e/f": b"/"} == disk.after_crash()

    def test_rename_is_old_or_new(self, disk: Disk) -> None:
        """A rename without sync_dir leaves the old name or the new one, never both or none."""
        disk.durable("a", b"one")
        disk.files.replace(disk.root / "a", disk.root / "b")

        assert {"a": b"one"} == disk.after_crash()

        left = disk.outcomes()

        assert {"a", "b"} == {name for names in left for name in names}
        assert [1] * SEEDS == [len(names) for names in left]

    def test_rename_over_a_file(self, disk: Disk) -> None:
        """The name has the old file or the new one; the old one is kept for that."""
        disk.durable("a", b"old")
        disk.durable("a.tmp", b"new")
        disk.files.replace(disk.root / "a.tmp", disk.root / "a")

        assert {"a": b"old", "a.tmp": b"new"} == disk.after_crash()

        left = disk.outcomes()

        assert {b"old", b"new"} == {names["a"] for names in left}
        assert [names["a"] == b"old" for names in left] == ["a.tmp" in names for names in left]

        disk.files.sync_dir(disk.root)

        assert {"a": b"new"} == disk.after_crash()

    def test_rename_does_not_bring_bytes(self, disk: Disk) -> None:
        """A renamed file whose bytes were not synced can be empty under its new name."""
        disk.durable("a", b"old")
        disk.files.pwrite(disk.open("a.tmp"), b"new", 0)
        disk.files.replace(disk.root / "a.tmp", disk.root / "a")
        disk.files.sync_dir(disk.root)

        assert {"a": b""} == disk.after_crash()

    def test_rename_between_directories(self, disk: Disk) -> None:
        """It is one change: a sync of either directory makes it durable, with what was before."""
        for name in ("d", "e"):
            disk.files.makedirs(disk.root / name)
        disk.durable("d/a", b"one")
        disk.open("d/before")
        disk.files.replace(disk.root / "d" / "a", disk.root / "e" / "a")
        disk.open("d/after")

        assert {"d": b"/", "e": b"/", "d/a": b"one"} == disk.after_crash()
        assert [1] * SEEDS == [("d/a" in left) + ("e/a" in left) for left in disk.outcomes()]

        disk.files.sync_dir(disk.root / "e")

        assert {"d": b"/", "e": b"/", "d/before": b"", "e/a": b"one"} == disk.after_crash()

    def test_write_file_is_old_or_new(self, disk: Disk) -> None:
        """Wherever the power goes in `write_file`, readers find the old content or the new."""
        found = set()
        for stop in range(1, 7):
            disk.files = CrashFiles()
            disk.files.write_file(disk.root / "a", b"old")
            disk.files.stop_after(stop)
            try:
                disk.files.write_file(disk.root / "a", b"new")
            except PowerLoss:
                found |= disk.contents("a") | {disk.after_crash()["a"]}

        assert {b"old", b"new"} == found

        disk.files = CrashFiles()
        disk.files.write_file(disk.root / "a", b"newest")

        assert {"a": b"newest"} == disk.after_crash()

    def test_unlink_is_undone(self, disk: Disk) -> None:
        """A removed file comes back, with its durable bytes, until the directory is synced."""
        fd = disk.durable("a", b"one")
        disk.files.pwrite(fd, b"two", 0)
        disk.files.unlink(disk.root / "a")

        assert {"a": b"one"} == disk.after_crash()
        assert {None, b"one", b"two"} == disk.contents("a")

        disk.files.sync_dir(disk.root)

        assert {} == disk.after_crash()

    def test_removed_and_made_again(self, disk: Disk) -> None:
        """A name that was removed and given to a new file has the old file, the new, or none."""
        disk.durable("a", b"old")
        disk.files.unlink(disk.root / "a")
        fd = disk.open("a")
        disk.files.pwrite(fd, b"new", 0)
        disk.files.fsync(fd)

        assert {"a": b"old"} == disk.after_crash()
        assert {b"old", b"new", None} == disk.contents("a")

    def test_link(self, disk: Disk) -> None:
        """A second name is durable by itself, and the file stays one file."""
        disk.durable("a", b"one")
        disk.files.link(disk.root / "a", disk.root / "b")

        assert {"a": b"one"} == disk.after_crash()

        disk.files.sync_dir(disk.root)
        left = disk.files.crash(disk.root, disk.top / "left")

        assert os.path.samefile(left / "a", left / "b")

    def test_removal_waits_for_the_link(self, disk: Disk) -> None:
        """A file that got a second name before its first was removed is never without one."""
        disk.durable("a", b"one")
        disk.files.link(disk.root / "a", disk.root / "b")
        disk.files.unlink(disk.root / "a")

        assert {("a",), ("a", "b"), ("b",)} == {tuple(left) for left in disk.outcomes()}

    def test_rename_onto_a_second_name(self, disk: Disk) -> None:
        """Renaming a file onto another name of itself changes nothing, as POSIX has it."""
        disk.durable("a", b"one")
        disk.files.link(disk.root / "a", disk.root / "b")
        disk.files.sync_dir(disk.root)
        disk.files.replace(disk.root / "a", disk.root / "b")

        assert [{"a": b"one", "b": b"one"}] * SEEDS == disk.outcomes()

    def test_what_was_there_before(self, disk: Disk) -> None:
        """Files that other ways wrote, and what the layer found, are durable."""
        (disk.root / "lock").write_bytes(b"x")
        fd = disk.open("lock", os.O_RDWR)
        disk.files.pwrite(fd, b"y", 0)
        (disk.root / "other").write_bytes(b"z")

        assert {"lock": b"x", "other": b"z"} == disk.after_crash()

    def test_number_of_a_removed_file(self, disk: Disk) -> None:
        """A new file that gets the inode number of one removed by another way begins empty."""
        numbers = set()
        for number in range(50):
            fd = disk.files.open(disk.root / f"old-{number}", CREATE)
            disk.files.pwrite(fd, b"unsynced", 0)
            numbers.add(os.fstat(fd).st_ino)
            disk.files.close(fd)
            os.unlink(disk.root / f"old-{number}")
        again = {os.fstat(disk.open(f"new-{number}")).st_ino for number in range(50)}
        if not numbers & again:
            pytest.skip("this file system does not use numbers again")
        disk.files.sync_dir(disk.root)

        assert {f"new-{number}": b"" for number in range(50)} == disk.after_crash()
        assert {b""} == {data for left in disk.outcomes() for data in left.values()}

    def test_held_descriptors_are_let_go(self, disk: Disk) -> None:
        """Files without a name are held open only until their directory is synced."""
        held = disk.files._state.held
        for number in range(5):
            disk.files.write_file(disk.root / "a", b"%d" % number)

        assert {} == held

        disk.files.unlink(disk.root / "a")

        assert 1 == len(held)

        disk.files.sync_dir(disk.root)

        assert {} == held
        assert {} == disk.files._state.unsynced


class TestStops:
    """The power loss itself."""

    def test_every_changing_call_counts(self, disk: Disk) -> None:
        """From the n-th changing call on each raises and changes nothing; closing works."""
        root = disk.root
        fd = disk.durable("a", b"one")
        calls: list[Callable[[Files], object]] = [
            lambda files: files.open(root / "b", CREATE),
            lambda files: files.open(root / "a", os.O_RDWR | os.O_TRUNC),
            lambda files: files.pwrite(fd, b"two", 0),
            lambda files: files.truncate(fd, 1),
            lambda files: files.fsync(fd),
            lambda files: files.mkdir(root / "d"),
            lambda files: files.replace(root / "a", root / "c"),
            lambda files: files.link(root / "a", root / "c"),
            lambda files: files.unlink(root / "a"),
            lambda files: files.sync_dir(root),
        ]
        for call in calls:
            disk.files = CrashFiles()
            disk.files.stop_after(1)
            for again in (call, *calls):
                with pytest.raises(PowerLoss):
                    again(disk.files)

            assert 1 == disk.files.calls
            assert disk.files.stopped
            assert {"a": b"one"} == disk.after_crash()
            assert ["a"] == os.listdir(root)
            assert b"one" == (root / "a").read_bytes()

    def test_stop_after_counts_from_now(self, disk: Disk) -> None:
        """`stop_after(3)` lets two more changing calls pass; reading calls are not counted."""
        fd = disk.durable("a", b"one")
        before = disk.files.calls
        disk.files.stop_after(3)
        disk.files.pwrite(fd, b"1", 0)
        disk.open("a", os.O_RDONLY)
        disk.files.mkdir(disk.root)
        disk.files.fsync(fd)
        with pytest.raises(PowerLoss):
            disk.files.pwrite(fd, b"2", 0)

        assert before + 3 == disk.files.calls
        assert {"a": b"1ne"} == disk.after_crash()

    def test_power_loss_is_no_exception(self) -> None:
        """`except Exception` does not take a power loss for an error."""
        assert not issubclass(PowerLoss, Exception)

    def test_bad_arguments(self, disk: Disk) -> None:
        """A stop before the next call, a target not empty or in the source, are refused."""
        with pytest.raises(InvalidArgument, match="number 1"):
            disk.files.stop_after(0)
        (disk.top / "full" / "x").mkdir(parents=True)
        with pytest.raises(InvalidArgument, match="full is not empty"):
            disk.files.crash(disk.root, disk.top / "full")
        for inside in (disk.root, disk.root / "left"):
            with pytest.raises(InvalidArgument, match="is inside of"):
                disk.files.crash(disk.root, inside)

    def test_source_is_only_read(self, disk: Disk) -> None:
        """A crash in the middle of a run changes nothing: the run goes on."""
        fd = disk.durable("a", b"one")
        disk.files.pwrite(fd, b"two", 0)
        disk.outcomes()

        assert b"two" == (disk.root / "a").read_bytes()

        disk.files.fsync(fd)

        assert {"a": b"two"} == disk.after_crash()


class TestSites:
    """Which places in the code synced."""

    def test_sites_are_the_callers(self, disk: Disk) -> None:
        """A site is the function that called the layer, and the call, wrappers named."""
        me = f"{__name__}:TestSites.test_sites_are_the_callers"
        disk.durable("a", b"one")
        disk.files.write_file(disk.root / "b", b"two")
        disk.files.fsync_paths([disk.root / "a", disk.root])

        assert {
            f"{__name__}:Disk.durable:fsync",
            f"{__name__}:Disk.durable:sync_dir",
            f"{me}:write_file.fsync",
            f"{me}:write_file.sync_dir",
            f"{me}:fsync_paths.fsync",
            f"{me}:fsync_paths.sync_dir",
        } == disk.files.sync_sites

    def test_ignored_site(self, disk: Disk) -> None:
        """The syncs of an ignored site do nothing, those of others count."""
        disk.files.ignore_site(f"{__name__}:Disk.durable:fsync")
        fd = disk.durable("a", b"one")

        assert {"a": b""} == disk.after_crash()

        disk.files.fsync(fd)

        assert {"a": b"one"} == disk.after_crash()


class TestDatabases:
    """What is modelled of RocksDB: how much of the write-ahead logs is durable."""

    def rows(self, files: CrashFiles, top: Path, keep: random.Random | None = None) -> set[int]:
        """Return the entries of ledger 1 that a power loss leaves."""
        number = len(list(top.glob("left-*")))
        left = files.crash(top / "b", top / f"left-{number}", keep)
        with RocksIndex(left) as index:
            return set(index.entries(1).tolist())

    def test_rows_are_durable_from_the_sync_on(self, tmp_path: Path) -> None:
        """Rows put before `flush` survive, of later ones a first part does, or none."""
        files = CrashFiles()
        with RocksIndex(tmp_path / "b", writable=True, files=files) as index:
            for entry in range(10):
                index.put(1, entry, 1028)
                if entry == 4:
                    index.flush()

            assert set(range(5)) == self.rows(files, tmp_path)

            counts = set()
            for seed in range(30):
                rows = self.rows(files, tmp_path, random.Random(seed))
                counts.add(len(rows))

                assert set(range(len(rows))) == rows
            assert {5, 10} <= counts <= {5, 6, 7, 8, 9, 10}
            assert 2 < len(counts)

    def test_power_loss_puts_the_database_aside(self, tmp_path: Path) -> None:
        """What closing writes after the power went is not in the crash; before it, it is."""
        files = CrashFiles()
        index = RocksIndex(tmp_path / "b", writable=True, files=files)
        index.put(1, 0, 1028)
        index.flush()
        index.put(1, 1, 1028)
        files.stop_after(1)
        with pytest.raises(PowerLoss):
            index.close()

        assert {0} == self.rows(files, tmp_path)
        with RocksIndex(tmp_path / "b") as closed:
            assert [0, 1] == closed.entries(1).tolist()
        with pytest.raises(PowerLoss):
            RocksIndex(tmp_path / "b", writable=True, files=files)
        with pytest.raises(PowerLoss):
            files.database_opened(tmp_path / "b" / "current" / "locations")

        assert {0} == self.rows(files, tmp_path)

    def test_database_that_was_there(self, tmp_path: Path) -> None:
        """Rows of an earlier life are durable, in a log or in tables, also before any sync."""
        with RocksIndex(tmp_path / "a", writable=True) as index:
            index.put(1, 0, 1028)
            index.flush()
            left = CrashFiles().crash(tmp_path / "a", tmp_path / "b")
        files = CrashFiles()

        assert 0 < next((left / "current" / "locations").glob("*.log")).stat().st_size
        with RocksIndex(tmp_path / "b", writable=True, files=files) as index:
            index.put(1, 1, 1028)

            assert {0} == self.rows(files, tmp_path)

    def test_later_log_behind_a_cut_one(self, tmp_path: Path) -> None:
        """A log keeps bytes that were not synced only where those before it are whole."""
        (tmp_path / "b").mkdir()
        files, first, second = CrashFiles(), tmp_path / "b" / "01.log", tmp_path / "b" / "02.log"
        files.database_opened(tmp_path / "b")
        first.write_bytes(b"one")
        files.database_synced(tmp_path / "b")
        first.write_bytes(b"one and more")
        second.write_bytes(b"two")
        seen = set()
        for seed in range(SEEDS):
            left = files.crash(tmp_path / "b", tmp_path / f"left-{seed}", random.Random(seed))
            seen.add(tuple(path.read_bytes() for path in sorted(left.iterdir())))

        assert {b"one", b"one and more"} < {logs[0] for logs in seen}
        assert all(b"one and more".startswith(logs[0]) for logs in seen)
        assert {b"one and more"} == {before for before, after in seen if after}
        assert {b"", b"two"} < {after for _, after in seen} <= {b"", b"t", b"tw", b"two"}
