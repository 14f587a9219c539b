"""Both indexes through power losses: what was flushed is there, the rest is right or absent.

A run is a few lives of a writer over `CrashFiles`. Each does random changes until the power
goes at a random call, or in between; what is left is read, held against what may be there, and
is what the next life begins with.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from bkstore.errors import BkstoreError, NoSuchLedger, SyncFailed, WriteFailed
from bkstore.files.disk_changes import Files
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.scope_marker import check_marker
from bkstore.testing.crash import CrashFiles, PowerLoss
from bkstore.testing.faults import FaultPlan

Layout = type[HierarchicalIndex] | type[RocksIndex]
LAYOUTS = [HierarchicalIndex, RocksIndex]
LEDGERS = [LedgerId(0, number) for number in (0, 1, 300, 1 << 40)] + [LedgerId(5, 7)]
LIVES = 3
EMPTY = LedgerState(b"", False, False, None)


class Expected:
    """What may be there after a power loss: for each row and state the values it may have.

    None stands for absent. The last value in order is the one that a living reader sees.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[LedgerId, int], list[int | None]] = {}
        self.states: dict[LedgerId, list[LedgerState | None]] = {}
        self.ever_flushed = False

    def put(self, ledger: LedgerId, rows: dict[int, int]) -> None:
        """Note rows that are about to be put; the ledger becomes known."""
        states = self.states.setdefault(ledger, [None])
        if states[-1] is None:
            states.append(EMPTY)
        for entry, location in rows.items():
            self.rows.setdefault((ledger, entry), [None]).append(location)

    def set_state(self, ledger: LedgerId, state: LedgerState) -> None:
        """Note a state that is about to be set; on its way a new ledger has an empty one."""
        self.put(ledger, {})
        self.states[ledger].append(state)

    def delete(self, ledger: LedgerId) -> None:
        """Note that a ledger is about to be deleted."""
        self.states.setdefault(ledger, [None]).append(None)
        for (owner, _), values in self.rows.items():
            if owner == ledger:
                values.append(None)

    def flushed(self) -> None:
        """Note that a flush returned: the last values are the only ones."""
        self.ever_flushed = True
        for values in (*self.rows.values(), *self.states.values()):
            del values[:-1]

    def check(self, left: Path, layout: Layout, restart: bool) -> None:
        """Read what a power loss left, assert that it may be so, and go on from there.

        A reader needs an index that was flushed once; with `restart`, or where there is none
        for a reader, a new writer on a copy has to find the same.
        """
        if restart or not self.ever_flushed:
            restarted = left.with_name(f"{left.name}-restarted")
            shutil.copytree(left, restarted)
            with layout(restarted / "bookie", writable=True) as index:
                self._check_index(index)
        if self.ever_flushed:
            with layout(left / "bookie") as index:
                self._check_index(index)
        current = left / "bookie" / "current"
        if any(current.glob(8 * "[0-9a-f]")):  # the first folder of a scope's index files
            assert check_marker(current)

    def _check_index(self, index: EntryIndex) -> None:
        listed = index.ledgers()

        assert set() == set(listed) - set(self.states)
        for ledger in LEDGERS:
            states = self.states.setdefault(ledger, [None])
            state = state_of(index, ledger)

            assert state in states, (ledger, state, states)
            assert (state is not None) == (ledger in listed), ledger
            states[:] = [state]
            self._check_rows(index, ledger)

        assert [] == [found for found in index.findings() if found.severity != "oddity"]

    def _check_rows(self, index: EntryIndex, ledger: LedgerId) -> None:
        entries, locations = index.items(ledger)
        found: dict[int, int | None] = dict(zip(entries.tolist(), locations.tolist()))

        assert set() == {entry for entry in found if (ledger, entry) not in self.rows}
        for (owner, entry), values in self.rows.items():
            if owner == ledger:
                location = found.get(entry)

                assert location in values, (ledger, entry, location, values)
                values[:] = [location]


def state_of(index: EntryIndex, ledger: LedgerId) -> LedgerState | None:
    """Return a ledger's state, None if it is unknown."""
    try:
        return index.state(ledger)
    except NoSuchLedger:
        return None


def change(index: EntryIndex, rnd: random.Random, expected: Expected) -> None:
    """Do one random change, or a flush."""
    ledger = rnd.choice(LEDGERS)
    what = rnd.choices(("put", "state", "delete", "flush"), (8, 3, 1, 5))[0]
    if what == "put":
        first = rnd.choice((0, 0, 60, 1000, 5000))
        entries = range(first, first + rnd.choice((1, 3, 100)))
        rows = {entry: rnd.randint(1028, 1 << 60) for entry in entries}
        expected.put(ledger, rows)
        index.put_many(ledger, list(rows), list(rows.values()))
    elif what == "state":
        lac = rnd.choice((None, rnd.randbytes(40)))
        state = LedgerState(rnd.randbytes(20), rnd.random() < 0.5, False, lac)
        expected.set_state(ledger, state)
        index.set_state(ledger, state)
    elif what == "delete":
        expected.delete(ledger)
        index.delete(ledger)
    else:
        index.flush()
        expected.flushed()


def live(layout: Layout, root: Path, rnd: random.Random, files: CrashFiles, seen: Expected) -> None:
    """Change things until the power goes, or until here; some writers close and open again."""
    index = None
    try:
        for _ in range(rnd.randint(1, 3)):
            index = layout(root / "bookie", writable=True, files=files)
            for _ in range(rnd.randint(0, 12)):
                change(index, rnd, seen)
            if rnd.random() < 0.5:
                return
            index.close()
            seen.flushed()
            index = None
    except PowerLoss:
        pass
    finally:
        # Taken before the writer is closed, which would flush.
        files.crash(root, root.with_name(f"{root.name}+"), rnd.choice((None, rnd)))
        if index is not None:
            if not files.stopped:
                files.stop_after(1)
            with suppress(PowerLoss):
                index.close()


def run(layout: Layout, top: Path, seed: int) -> None:
    """Live and crash a few times; fails where data are lost or wrong."""
    rnd, expected = random.Random(seed), Expected()
    root = top / f"{layout.__name__}-{seed}"
    root.mkdir(parents=True)
    for number in range(LIVES):
        files = CrashFiles()
        if rnd.random() < 0.8:
            files.stop_after(rnd.randint(1, rnd.choice((10, 60))))
        live(layout, root, rnd, files, expected)
        root = root.with_name(f"{root.name}+")
        expected.check(root, layout, restart=number == seed % LIVES)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_power_losses(layout: Layout, tmp_path: Path, seed: int) -> None:
    """Whatever survives of what was not synced: flushed rows are there, no row is wrong."""
    run(layout, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(6))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_power_losses(layout: Layout, tmp_path: Path, block: int) -> None:
    """The same, 300 times for each layout."""
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        run(layout, tmp_path, seed)


def short_life(layout: Layout, root: Path, files: CrashFiles, expected: Expected) -> None:
    """Put and flush a row of either kind of scope, unless the power goes."""
    root.mkdir(parents=True)
    with suppress(PowerLoss), layout(root / "bookie", writable=True, files=files) as index:
        for ledger in (LEDGERS[0], LEDGERS[-1]):
            expected.put(ledger, {0: 1028})
            index.put(ledger, 0, 1028)
            index.flush()
            expected.flushed()


def stop_everywhere(layout: Layout, top: Path, seed: int, ignored: str = "") -> int:
    """Cut the power at each call of a short life; return at how many. Seed 0 keeps nothing."""
    stop = 0
    while True:
        stop += 1
        files, expected, root = CrashFiles(), Expected(), top / f"{layout.__name__}-{stop}"
        files.ignore_site(ignored)
        files.stop_after(stop)
        short_life(layout, root, files, expected)
        left = files.crash(root, top / f"left-{stop}", random.Random(seed) if seed else None)
        expected.check(left, layout, restart=not ignored)
        if not files.stopped:
            return stop - 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_power_loss_at_each_call(layout: Layout, tmp_path: Path, seed: int) -> None:
    """The power may go at any call from the first opening on, for both kinds of scopes."""
    assert 20 <= stop_everywhere(layout, tmp_path, seed)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_sync_is_needed(layout: Layout, tmp_path: Path) -> None:
    """Taking out any one sync loses data at some call, so no sync may go, nor is one idle."""
    files = CrashFiles()
    short_life(layout, tmp_path / "all", files, Expected())

    assert {"HierarchicalIndex": 5, "RocksIndex": 4}[layout.__name__] == len(files.sync_sites)
    for number, site in enumerate(sorted(files.sync_sites)):
        assert loses(layout, tmp_path / str(number), site), f"{site} is not needed"


def loses(layout: Layout, top: Path, site: str) -> bool:
    """Return whether some short life loses data without the syncs of one site."""
    try:
        for seed in range(20):
            stop_everywhere(layout, top / str(seed), seed, site)
    except (AssertionError, BkstoreError):
        return True
    return False


# -- one by one, what the runs meet by chance


def flushed_by(layout: Layout, root: Path, files: Files) -> None:
    """Put one more row into ledger 1 and flush, as a writer that goes away does."""
    index = layout(root / "b", writable=True, files=files)
    try:
        entry = index.entries(1).size
        index.put(1, entry, 1028 + entry)
        index.flush()
    finally:
        index.close()


@pytest.mark.parametrize("sync", range(1, 9))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_writer_after_a_failed_sync(layout: Layout, tmp_path: Path, sync: int) -> None:
    """What a writer leaves unsynced that met a failing sync, the next one's flush makes durable."""
    files = CrashFiles()
    root = tmp_path / "root"
    root.mkdir()
    plan = FaultPlan(files)
    plan.fail_sync(sync)
    try:
        flushed_by(layout, root, plan)
    except (SyncFailed, WriteFailed):
        assert 1 == len(plan.done)
    flushed_by(layout, root, files)
    with layout(root / "b") as index:
        expected = index.entries(1).tolist()
    left = files.crash(root, tmp_path / "left")

    assert [] != expected
    with layout(left / "b") as index:
        assert expected == index.entries(1).tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_deleted_stays_deleted(layout: Layout, tmp_path: Path) -> None:
    """A delete that was flushed survives; one that was not leaves the ledger known.

    Its entries are there too in index files; a database makes their removal durable first, so
    that no entries are left of a ledger that is not known.
    """
    files = CrashFiles()
    state = LedgerState(b"key", True, False, None)
    with layout(tmp_path / "b", writable=True, files=files) as index:
        for ledger in LEDGERS:
            index.set_state(ledger, state)
            index.put(ledger, 3, 1028)
        index.flush()
        index.delete(LEDGERS[0])
        index.delete(LEDGERS[-1])
        before = files.crash(tmp_path / "b", tmp_path / "before")
        index.flush()
        after = files.crash(tmp_path / "b", tmp_path / "after")

    with layout(before) as index:
        assert LEDGERS == index.ledgers()
        gone = [] if layout is RocksIndex else [3]
        expected = [gone, *([[3]] * (len(LEDGERS) - 2)), gone]
        assert expected == [index.entries(ledger).tolist() for ledger in LEDGERS]
        assert [state] * len(LEDGERS) == [index.state(ledger) for ledger in LEDGERS]
    with layout(after) as index:
        assert LEDGERS[1:-1] == index.ledgers()
        assert [] == index.entries(LEDGERS[-1]).tolist()


def test_second_file_of_a_folder(tmp_path: Path) -> None:
    """A ledger whose file comes into a folder that was synced before is as durable as the first."""
    files = CrashFiles()
    first, second = LedgerId(0, 7), LedgerId(0, 7 + (1 << 16))
    with HierarchicalIndex(tmp_path / "b", writable=True, files=files) as index:
        for ledger in (first, second):
            index.put(ledger, 0, 1028)
            index.flush()
        folders = {Path(index.path(ledger) or "").parent for ledger in (first, second)}
        left = files.crash(tmp_path / "b", tmp_path / "left")

    assert 1 == len(folders)
    with HierarchicalIndex(left) as index:
        assert [first, second] == index.ledgers()


def test_new_file_has_no_name_until_it_is_whole(tmp_path: Path) -> None:
    """No .idx file appears before the flush that makes it durable; the writer knows it."""
    top = tmp_path / "b"
    with HierarchicalIndex(top, writable=True) as index:
        index.put(7, 0, 1028)

        assert [] == list(top.rglob("*.idx"))
        assert [LedgerId(0, 7)] == index.ledgers()
        assert 1028 == index.get(7, 0)
        with HierarchicalIndex(top) as reader:
            assert [] == reader.ledgers()
            assert [] == reader.findings()
        index.flush()

        assert [top / "current" / "0" / "7" / "7.idx"] == list(top.rglob("*.idx*"))
        assert str(top / "current" / "0" / "7" / "7.idx") == index.path(7)


def test_leftover_of_a_new_file(tmp_path: Path) -> None:
    """What a crash left of a file without a name is not taken for the ledger's."""
    files = CrashFiles()
    index = HierarchicalIndex(tmp_path / "b", writable=True, files=files)
    index.put_many(7, range(3000), range(5000, 8000))
    files.stop_after(1)
    with pytest.raises(PowerLoss):
        index.close()

    assert 1 == len(list((tmp_path / "b").rglob("*.new")))
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        assert [] == index.ledgers()
        index.put(7, 1, 1028)
    with HierarchicalIndex(tmp_path / "b") as index:
        assert [1] == index.entries(7).tolist()
    assert [] == list((tmp_path / "b").rglob("*.new"))
