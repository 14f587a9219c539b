"""Faults on demand: what a plan does to calls, and what the functions do to files at rest."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bkstore.errors import (
    CorruptionError,
    DirectoryInUse,
    InvalidArgument,
    NoSuchEntry,
    SyncFailed,
    WriteFailed,
)
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.testing.crash import CrashFiles
from bkstore.testing.faults import Fault, FaultPlan, drop_index_row, flip_byte, tear_tail, zero

LAYOUTS = [HierarchicalIndex, RocksIndex]
WIDE = LedgerId(5, 7)


@pytest.fixture
def plan() -> FaultPlan:
    """Return a plan over the operating system's files."""
    return FaultPlan()


@pytest.fixture
def fd(plan: FaultPlan, tmp_path: Path) -> Iterator[int]:
    """Return a descriptor of the file "a", opened through the plan."""
    opened = plan.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    yield opened
    plan.close(opened)


class TestPlan:
    """Calls that fail as planned."""

    def test_nth_write_fails(self, plan: FaultPlan, fd: int, tmp_path: Path) -> None:
        """Just the n-th write from now on fails, writes nothing, and is noted."""
        plan.pwrite(fd, b"0", 0)
        plan.fail_write(2, errno.EDQUOT)
        plan.pwrite(fd, b"1", 1)
        with pytest.raises(OSError, match="quota") as caught:
            plan.pwrite(fd, b"2", 2)
        plan.pwrite(fd, b"3", 3)

        assert b"01\x003" == (tmp_path / "a").read_bytes()
        assert errno.EDQUOT == caught.value.errno
        assert str(tmp_path / "a") == caught.value.filename
        assert [Fault("fail_write", str(tmp_path / "a"), 2)] == plan.done
        assert 4 == plan.writes

    def test_torn_write(self, plan: FaultPlan, fd: int, tmp_path: Path) -> None:
        """A torn write keeps its first bytes, fails, and says where the rest was to begin."""
        plan.tear_write(1, 3)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            plan.pwrite(fd, memoryview(b"abcdef"), 10)

        assert bytes(10) + b"abc" == (tmp_path / "a").read_bytes()
        assert [Fault("tear_write", str(tmp_path / "a"), 13)] == plan.done

    def test_full_disk(self, plan: FaultPlan, fd: int, tmp_path: Path) -> None:
        """Files grow as far as there is room; what is there is written over; `free` helps."""
        plan.pwrite(fd, b"old", 0)
        plan.disk_full(4)
        plan.pwrite(fd, b"newer", 0)  # two bytes more
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
            plan.pwrite(fd, b"longer", 4)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            plan.truncate(fd, 8)

        assert b"newelon" == (tmp_path / "a").read_bytes()
        assert errno.ENOSPC == caught.value.errno
        assert [("disk_full", 7), ("disk_full", 7)] == [(f.what, f.offset) for f in plan.done]

        plan.pwrite(fd, b"NEW", 0)
        plan.free(3)
        plan.pwrite(fd, b"longer", 4)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            plan.pwrite(fd, b"x", 10)

        assert b"NEWelonger" == (tmp_path / "a").read_bytes()

    def test_full_disk_counts_gaps(self, plan: FaultPlan, fd: int, tmp_path: Path) -> None:
        """A write far behind the end needs room for the gap; none of it is written."""
        plan.disk_full(100)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            plan.pwrite(fd, b"x", 100)

        assert b"" == (tmp_path / "a").read_bytes()

        plan.pwrite(fd, b"x", 99)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            plan.pwrite(fd, b"x", 100)

        assert 100 == (tmp_path / "a").stat().st_size

    def test_free_without_a_full_disk(self, plan: FaultPlan, fd: int) -> None:
        """`free` does not limit a disk that is not full."""
        plan.free(1)
        plan.pwrite(fd, b"more than one", 0)

        assert [] == plan.done

    def test_nth_sync_fails(self, plan: FaultPlan, fd: int, tmp_path: Path) -> None:
        """Syncs of files, directories and databases are counted together."""
        calls = [
            lambda: plan.fsync(fd),
            lambda: plan.sync_dir(tmp_path),
            lambda: plan.database_synced(tmp_path),
        ]
        for n, call in enumerate(calls):
            plan.fail_sync(n + 1)
            for before in calls[:n]:
                before()
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                call()

        assert [
            Fault("fail_sync", str(tmp_path / "a"), None),
            Fault("fail_sync", str(tmp_path), None),
            Fault("fail_sync", str(tmp_path), None),
        ] == plan.done

    def test_wrappers_go_through_the_plan(self, plan: FaultPlan, tmp_path: Path) -> None:
        """A fault hits `write_file` at its write or its syncs; the old content stays."""
        plan.write_file(tmp_path / "a", b"old")
        for fault in (plan.fail_write, plan.fail_sync):
            fault(1)
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                plan.write_file(tmp_path / "a", b"new")

        assert b"old" == (tmp_path / "a").read_bytes()
        assert 2 == len(plan.done)

    def test_everything_reaches_the_layer_below(self, tmp_path: Path) -> None:
        """Over a `CrashFiles` each call is known there; a sync that failed is none."""
        below = CrashFiles()
        plan = FaultPlan(below)
        root = tmp_path / "disk"
        root.mkdir()
        plan.makedirs(root / "d")
        fd = plan.open(root / "a", os.O_RDWR | os.O_CREAT)
        plan.pwrite(fd, b"onetwo", 0)
        plan.truncate(fd, 3)
        plan.fsync(fd)
        plan.link(root / "a", root / "b")
        plan.replace(root / "a", root / "c")
        plan.sync_dir(root)
        plan.unlink(root / "b")
        plan.pwrite(fd, b"two", 0)
        plan.fail_sync(1)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            plan.fsync(fd)
        plan.close(fd)
        left = below.crash(root, tmp_path / "left")

        assert ["b", "c", "d"] == sorted(os.listdir(left))
        assert b"one" == (left / "c").read_bytes()
        assert b"two" == (root / "c").read_bytes()
        site = f"{__name__}:TestPlan.test_everything_reaches_the_layer_below"
        assert {f"{site}:makedirs.sync_dir", f"{site}:fsync", f"{site}:sync_dir"} == (
            below.sync_sites
        )

    def test_databases_reach_the_layer_below(self, tmp_path: Path) -> None:
        """A RocksDB index over a plan over a `CrashFiles` loses what it did not sync."""
        below = CrashFiles()
        with RocksIndex(tmp_path / "b", writable=True, files=FaultPlan(below)) as index:
            index.put(1, 0, 1028)
            index.flush()
            index.put(1, 1, 1028)
            left = below.crash(tmp_path / "b", tmp_path / "left")
            with RocksIndex(left) as reopened:
                assert [0] == reopened.entries(1).tolist()

    @pytest.mark.parametrize("call", ["fail_write", "fail_sync"])
    def test_bad_numbers(self, plan: FaultPlan, call: str) -> None:
        """A plan for no call is refused."""
        with pytest.raises(InvalidArgument, match="n must be a whole number, 1 or more"):
            getattr(plan, call)(0)

    def test_bad_sizes(self, plan: FaultPlan) -> None:
        """Negative sizes are refused."""
        with pytest.raises(InvalidArgument, match=r"keep_bytes must be .* not -1"):
            plan.tear_write(1, -1)
        with pytest.raises(InvalidArgument, match=r"after_bytes must be .* not -1"):
            plan.disk_full(-1)


class TestIndexUnderFaults:
    """What the indexes make of faults: the named error, nothing stored is lost."""

    @pytest.mark.parametrize("kept", [0, 4, 1001, 8190])
    def test_torn_slot_is_put_back(self, plan: FaultPlan, tmp_path: Path, kept: int) -> None:
        """A page write that tears inside a slot leaves the old locations, and no half slot."""
        with HierarchicalIndex(tmp_path, writable=True, files=plan) as index:
            index.put_many(1, range(1000), range(2000, 3000))
            plan.tear_write(1, kept)
            with pytest.raises(WriteFailed) as caught:
                index.put_many(1, range(3000), np.arange(3000) + (1 << 40))

            assert errno.EIO == caught.value.errno
            assert [1024 + kept] == [fault.offset for fault in plan.done]
            entries, locations = index.items(1)

            assert list(range(1000)) == entries.tolist()
            assert list(range(2000, 3000)) == locations.tolist()

    @pytest.mark.parametrize("kept", [0, 6, 26, 900])
    def test_torn_header_is_put_back(self, plan: FaultPlan, tmp_path: Path, kept: int) -> None:
        """A header write that tears leaves the old state."""
        old = LedgerState(b"k" * 20, False, False, None)
        with HierarchicalIndex(tmp_path, writable=True, files=plan) as index:
            index.set_state(1, old)
            plan.tear_write(1, kept)
            with pytest.raises(WriteFailed):
                index.set_state(1, LedgerState(b"other key", True, False, b"l" * 40))

            assert old == index.state(1)
            assert 1 == len(plan.done)

    def test_full_disk(self, plan: FaultPlan, tmp_path: Path) -> None:
        """On a full disk puts are refused, what is there stays, and room makes them work."""
        with HierarchicalIndex(tmp_path, writable=True, files=plan) as index:
            index.put_many(1, range(1000), range(2000, 3000))
            for room in (0, 5, 3000, 9000):
                plan.disk_full(room)
                with pytest.raises(WriteFailed, match=os.strerror(errno.ENOSPC)):
                    index.put_many(1, range(500, 5000), range(5500, 10_000))

                assert list(range(2000, 3000)) == index.items(1)[1].tolist()
            with pytest.raises(WriteFailed):
                index.put(2, 0, 1028)
            plan.free(1 << 20)
            index.put_many(1, range(500, 5000), range(5500, 10_000))
            index.put(2, 0, 1028)
            index.flush()

            assert [*range(2000, 2500), *range(5500, 10_000)] == index.items(1)[1].tolist()
        with HierarchicalIndex(tmp_path) as index:
            assert 5000 == index.entries(1).size
            assert [LedgerId(0, 1), LedgerId(0, 2)] == index.ledgers()

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_failed_sync_ends_the_writer(
        self, layout: type[EntryIndex], plan: FaultPlan, tmp_path: Path
    ) -> None:
        """After `SyncFailed` there are no writes and no flush, reads go on; a reopen is whole."""
        index = layout(tmp_path, writable=True, files=plan)
        index.put(1, 0, 1028)
        index.flush()
        index.put(1, 1, 1028)
        plan.fail_sync(1)
        attempts = [
            index.flush,
            lambda: index.put(1, 2, 1028),
            lambda: index.put_many(LedgerId(0, 2), [0], [1028]),
            lambda: index.set_state(1, LedgerState(b"", True, False, None)),
            lambda: index.delete(1),
            index.flush,
            index.close,
        ]
        for attempt in attempts[:-1]:
            with pytest.raises(SyncFailed):
                attempt()

        assert [0, 1] == index.entries(1).tolist()
        with pytest.raises(SyncFailed):
            attempts[-1]()
        assert 1 == len(plan.done)
        with layout(tmp_path, writable=True) as again:
            again.put(1, 2, 1028)
            again.flush()
            assert [0, 1, 2] == again.entries(1).tolist()

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_failing_first_sync(self, layout: type[EntryIndex], tmp_path: Path) -> None:
        """An index that cannot make its own directory durable does not open, and can later."""
        plan = FaultPlan()
        for n in range(1, 3):
            plan.fail_sync(n)
            with pytest.raises((WriteFailed, SyncFailed)):
                layout(tmp_path / str(n), writable=True, files=plan).close()
            layout(tmp_path / str(n), writable=True, files=plan).close()

            assert n == len(plan.done)

    def test_rocksdb_refusal(self, tmp_path: Path) -> None:
        """What RocksDB cannot write is `WriteFailed`, then `SyncFailed`; closing lets go."""
        script = """
import os, resource, sys
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is compiled would be cut off, and stay so
sys.dont_write_bytecode = True
from bkstore.errors import SyncFailed, WriteFailed
from bkstore.index.rocks import RocksIndex
index = RocksIndex(sys.argv[1], writable=True)
index.put_many(1, range(100), range(1028, 1128))
index.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
for call in (lambda: [index.put(1, e, 1028) for e in range(100, 10_000)], index.flush,
             lambda: index.put(2, 0, 1028), index.close):
    try:
        call()
    except WriteFailed as error:
        print(type(error).__name__, error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with RocksIndex(sys.argv[1], writable=True) as index:
    print(100 <= index.entries(1).size < 10_000, index.get(1, 99))
"""
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True
        )

        assert "" == done.stderr
        assert [
            f"WriteFailed {errno.EFBIG}",
            "SyncFailed None",  # RocksDB says no more than "Writer has previous error"
            "SyncFailed None",
            f"WriteFailed {errno.EFBIG}",
            "True 1127",
        ] == done.stdout.splitlines()


class TestAtRest:
    """Damage to files that nobody has open."""

    def test_flip_byte(self, tmp_path: Path) -> None:
        """One byte changes by exclusive or, from the begin or the end; twice is never."""
        path = tmp_path / "a"
        path.write_bytes(b"\x00\x01\x02")

        assert 1 == flip_byte(path, 1)
        assert b"\x00\xfe\x02" == path.read_bytes()
        assert 2 == flip_byte(path, -1, 0x80)
        assert b"\x00\xfe\x82" == path.read_bytes()

        for offset, mask in ((3, 1), (-4, 1), (0, 0), (0, 256)):
            with pytest.raises(InvalidArgument):
                flip_byte(path, offset, mask)

        assert b"\x00\xfe\x82" == path.read_bytes()

    def test_tear_tail(self, tmp_path: Path) -> None:
        """The last bytes are gone, the length that is left is returned."""
        path = tmp_path / "a"
        path.write_bytes(b"abcdef")

        assert 4 == tear_tail(path, 2)
        assert b"abcd" == path.read_bytes()
        for size in (0, 5, -1):
            with pytest.raises(InvalidArgument, match="cannot be cut off"):
                tear_tail(path, size)

        assert 0 == tear_tail(path, 4)

    def test_zero(self, tmp_path: Path) -> None:
        """The bytes of an inclusive range become zero."""
        path = tmp_path / "a"
        path.write_bytes(b"abcdef")
        zero(path, 1, 3)

        assert b"a\0\0\0ef" == path.read_bytes()
        for first, last in ((-1, 2), (3, 2), (0, 6)):
            with pytest.raises(InvalidArgument, match="outside of 6 bytes"):
                zero(path, first, last)

    @pytest.mark.parametrize("ledger", [LedgerId(0, 7), WIDE])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_drop_index_row(
        self, layout: type[EntryIndex], ledger: LedgerId, tmp_path: Path
    ) -> None:
        """One entry is gone from the index, the others and the state stay."""
        for folder in ("one", "two"):
            with layout(tmp_path / folder, writable=True) as index:
                entries = [0, 1, 2] if folder == "two" else [9]
                index.put_many(ledger, entries, [5000] * len(entries))
        state = LedgerState(b"key", True, False, None)
        with layout(tmp_path / "two", writable=True) as index:
            index.set_state(ledger, state)
        folders = [tmp_path / "one", tmp_path / "two" / "current"]
        changed = drop_index_row(folders, ledger, 1)

        assert changed.is_relative_to(tmp_path / "two" / "current")
        with layout(tmp_path / "two") as index:
            assert [0, 2] == index.entries(ledger).tolist()
            assert state == index.state(ledger)
        with layout(tmp_path / "one") as index:
            assert [9] == index.entries(ledger).tolist()
        for missing, entry in ((ledger, 1), (ledger, 1 << 40), (LedgerId(0, 8), 0)):
            with pytest.raises(NoSuchEntry):
                drop_index_row(folders, missing, entry)

    def test_drop_index_row_at_work(self, tmp_path: Path) -> None:
        """A database that is open is refused."""
        with RocksIndex(tmp_path, writable=True) as index:
            index.put(7, 0, 1028)
            with pytest.raises(DirectoryInUse):
                drop_index_row(tmp_path, 7, 0)

            assert 1028 == index.get(7, 0)

    def test_damage_is_found(self, tmp_path: Path) -> None:
        """The functions do what corruption tests need: a torn index file is corrupt."""
        with HierarchicalIndex(tmp_path, writable=True) as index:
            index.put(7, 0, 1028)
            path = index.path(7)
        assert path is not None
        tear_tail(path, 3)
        with (
            HierarchicalIndex(tmp_path) as index,
            pytest.raises(CorruptionError, match="inside a slot"),
        ):
            index.entries(7)


def test_imports() -> None:
    """Neither module loads pytest, numpy's test tools, RocksDB or hypothesis by itself."""
    script = "import sys, bkstore.testing.crash, bkstore.testing.faults; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert set() == {"pytest", "hypothesis", "rocksdict", "sortedcontainers"} & set(
        done.stdout.split()
    )
