"""The file layer of the crash tests: the power loss itself, sync sites, databases."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import Rdict

from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import Files
from bkstore.ids import LedgerId
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import entry_key
from bkstore.index.rocks.options import location_options
from bkstore.testing.crash import CrashFiles, PowerLoss
from tests.testing.crash_disk import CREATE, SEEDS, Disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Return a directory written through a `CrashFiles`."""
    made = Disk(tmp_path)
    yield made
    for fd in made.fds:
        made.files.close(fd)


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
        with pytest.raises(InvalidArgument, match="1 or more, not 0"):
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
            f"{Disk.__module__}:Disk.durable:fsync",
            f"{Disk.__module__}:Disk.durable:sync_dir",
            f"{me}:write_file.fsync",
            f"{me}:write_file.sync_dir",
            f"{me}:fsync_paths.sync_file.fsync",
            f"{me}:fsync_paths.sync_dir",
        } == disk.files.sync_sites

    def test_ignored_site(self, disk: Disk) -> None:
        """The syncs of an ignored site do nothing, those of others count."""
        disk.files.ignore_site(f"{Disk.__module__}:Disk.durable:fsync")
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

    def test_only_syncs_of_the_database_itself_count(self, tmp_path: Path) -> None:
        """To be told of a sync is not enough: rows survive when RocksDB did sync its log."""
        RocksIndex(tmp_path / "b", writable=True).close()
        place, options = tmp_path / "b" / "current" / "locations", location_options()
        files = CrashFiles()
        files.database_opened(place, options)
        database = Rdict(str(place), options)
        found = []
        for entry, synced in enumerate([False, True, False, True]):
            database[entry_key(LedgerId.of(1), entry)] = (1028).to_bytes(8, "big")
            database.flush_wal(synced)
            files.database_synced(place)
            found.append(self.rows(files, tmp_path))
        database.close()

        assert [set(), {0, 1}, {0, 1}, {0, 1, 2, 3}] == found

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
