"""The file layer of the crash tests, held against first principles of files and names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.testing.crash import CrashFiles, PowerLoss
from tests.testing.crash_disk import CREATE, SEEDS, Disk


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
        held = disk.files._state.nameless_fds
        for number in range(5):
            disk.files.write_file(disk.root / "a", b"%d" % number)

        assert {} == held

        disk.files.unlink(disk.root / "a")

        assert 1 == len(held)

        disk.files.sync_dir(disk.root)

        assert {} == held
        assert {} == disk.files._state.bytes_of_file
