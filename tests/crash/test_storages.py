"""Bookies and ledger storages through power losses: what was acknowledged is there, whole.

A run is a few lives of a writer over `CrashFiles`. Each does random operations until the power
goes, at a random call or in between. What is left is opened, which replays journals, and held
against what may be there: what was acknowledged must be, the rest may be, nothing is ever wrong.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId, LedgerStorage
from bkstore.errors import BkstoreError, NoSuchLedger
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.entry import (
    Entry,
    RecordBatch,
    encode,
    encode_explicit_lac,
    record_header,
)
from bkstore.storage.options import JournalOptions, StorageOptions
from bkstore.testing.crash import CrashFiles, PowerLoss
from tests.crash.collections_of_garbage import collect

STORAGES = ["sorted", "interleaved", "db"]
LEDGERS = [LedgerId(0, 7), LedgerId(0, 8), LedgerId(0, 300), LedgerId(5, 7)]
KEY = b"k" * 20
LIVES = 3
OPTIONS = StorageOptions(entry_log_size=8192, write_cache=60_000, pending_locations=40)
JOURNAL = JournalOptions(preallocate=4096, max_size=6000, max_backups=1, write_buffer=700)

MaybeBytes = bytes | None
WAYS = ["single", "batch"]
"""How records are added: by single calls, or by batches as long as they come."""


@cache
def record(ledger: LedgerId, entry: int) -> bytes:
    """Return the one record that an entry ever has."""
    payload = random.Random(f"{ledger}/{entry}").randbytes(20 + entry % 300)
    return encode(Entry(ledger, entry, entry - 1, 100 * entry, payload), "CRC32C", "pw")


def add(store: Bookie | LedgerStorage, way: str, rows: list[bytes], **how: Any) -> None:
    """Add records of one ledger, one by one or as one batch."""
    if way == "single":
        for row in rows:
            store.add_entry(row, **how)
    else:
        store.add_batch(RecordBatch.of(rows, [record_header(row).entry_id for row in rows]), **how)


class Expected:
    """What may be there: for each thing the values it may have, the living one last."""

    def __init__(self) -> None:
        self.entries: dict[tuple[LedgerId, int], list[bool]] = {}
        self.fenced: dict[LedgerId, list[bool]] = {name: [False] for name in LEDGERS}
        self.lacs: dict[LedgerId, list[MaybeBytes]] = {name: [None] for name in LEDGERS}

    def adding(self, name: LedgerId, entries: list[int]) -> None:
        """Entries are about to be added."""
        for entry in entries:
            self.entries.setdefault((name, entry), [False]).append(True)

    def added(self, name: LedgerId, entries: list[int]) -> None:
        """They were acknowledged: durable."""
        for entry in entries:
            self.entries[name, entry] = [True]

    def deleting(self, name: LedgerId) -> None:
        """A ledger is about to be deleted; durable from the next checkpoint on."""
        for (owner, _), values in self.entries.items():
            if owner == name:
                values.append(False)
        self.fenced[name].append(False)
        self.lacs[name].append(None)

    def checkpointed(self) -> None:
        """All that was done is durable."""
        for values in (*self.entries.values(), *self.fenced.values(), *self.lacs.values()):
            del values[:-1]

    def here(self, name: LedgerId) -> list[int]:
        """Return the entries that a living reader sees."""
        return [
            entry for (owner, entry), values in self.entries.items() if owner == name and values[-1]
        ]

    def check(self, store: Any) -> None:
        """Assert that what is there may be there, and go on from it."""
        for name in LEDGERS:
            found = set(store.entries(name).tolist())

            assert set() == {entry for entry in found if (name, entry) not in self.entries}
            for (owner, entry), values in self.entries.items():
                if owner == name:
                    assert (entry in found) in values, (name, entry, values)
                    values[:] = [entry in found]
            self._check_records(store, name, sorted(found))
            self._check_state(store, name)

    def _check_records(self, store: Any, name: LedgerId, entries: list[int]) -> None:
        """Index and logs agree: each listed entry reads back, one by one and in batches."""
        at = 0
        while at < len(entries):
            batch = store.read_entries(name, entries[at])

            assert len(batch) > 0
            for entry, data in zip(batch.entries.tolist(), batch.records()):
                assert entries[at] == entry
                assert record(name, entry) == data == store.read_entry(name, entry)
                at += 1

    def _check_state(self, store: Any, name: LedgerId) -> None:
        try:
            state = store.state(name)
        except NoSuchLedger:
            assert False in self.fenced[name]
            assert None in self.lacs[name]
            assert not self.here(name)
            self.fenced[name][:], self.lacs[name][:] = [False], [None]
            return

        assert KEY == state.master_key
        assert state.fenced in self.fenced[name], name
        assert state.explicit_lac in self.lacs[name], name
        self.fenced[name][:], self.lacs[name][:] = [state.fenced], [state.explicit_lac]


# -- a bookie


@contextmanager
def bookie_at(root: Path, storage: Any, files: Files) -> Iterator[Bookie]:
    """Yield a bookie, each kind of directory twice and apart; it is not closed after."""
    yield Bookie.open(
        storage=storage,
        ledger_dirs=[root / "ledgers0", root / "ledgers1"],
        index_dirs=[root / "index0", root / "index1"],
        journal_dirs=[root / "journal0", root / "journal1"],
        options=OPTIONS,
        journal=JOURNAL,
        files=files,
    )


def bookie_does(bookie: Bookie, rnd: random.Random, seen: Expected, way: str) -> None:
    """Do one random operation."""
    name = rnd.choice(LEDGERS)
    what = rnd.choices(
        ("add", "many", "unsynced", "fence", "lac", "delete", "flush", "checkpoint", "garbage"),
        (6, 4, 4, 1, 2, 0.7, 1.5, 2, 1),
    )[0]
    first = rnd.choice((0, 0, 40, 2000))
    entries = [entry for entry in range(first, first + rnd.randint(1, 30)) if rnd.random() < 0.9]
    if what == "add":
        seen.adding(name, entries[:1])
        for entry in entries[:1]:
            bookie.add_entry(record(name, entry), KEY, recovery=True)
        seen.added(name, entries[:1])
    elif what in ("many", "unsynced"):
        seen.adding(name, entries)
        records = [record(name, entry) for entry in entries]
        add(bookie, way, records, master_key=KEY, recovery=True, sync=what == "many")
        if what == "unsynced" and rnd.random() < 0.5:
            return
        if what == "unsynced":
            bookie.force(name)
        seen.added(name, entries)
    elif what == "fence":
        seen.fenced[name].append(True)
        bookie.fence(name, KEY)
        seen.fenced[name] = [True]
    elif what == "lac":
        body = encode_explicit_lac(name, rnd.randint(0, 99), "CRC32C", "pw")
        seen.lacs[name].append(body)
        bookie.set_explicit_lac(name, body, KEY)
        seen.lacs[name] = [body]
    elif what == "delete":
        seen.deleting(name)
        bookie.delete_ledger(name)
    elif what == "flush":
        bookie.storage.flush()
    elif what == "checkpoint":
        bookie.checkpoint()
        seen.checkpointed()
    else:
        collect(bookie.storage, rnd)


# -- a ledger storage alone


@contextmanager
def storage_at(
    root: Path, storage: Any, files: Files, options: StorageOptions = OPTIONS
) -> Iterator[LedgerStorage]:
    """Yield a ledger storage over two directories; it is not closed after."""
    yield LedgerStorage.open(
        [root / "ledgers0", root / "ledgers1"], storage, options=options, files=files
    )


def storage_does(store: LedgerStorage, rnd: random.Random, seen: Expected, way: str) -> None:
    """Do one random operation; only a flush makes anything durable."""
    name = rnd.choice(LEDGERS)
    what = rnd.choices(("add", "fence", "lac", "delete", "flush", "garbage"), (8, 1, 1, 1, 3, 2))[0]
    first = rnd.choice((0, 0, 40, 2000))
    if what == "add":
        entries = [entry for entry in range(first, first + rnd.randint(1, 40)) if entry % 7]
        seen.adding(name, entries)
        store.set_master_key(name, KEY)
        add(store, way, [record(name, entry) for entry in entries], recovery=True)
    elif what == "delete":
        seen.deleting(name)
        store.delete_ledger(name)
    elif what == "flush":
        store.flush()
        seen.checkpointed()
    elif what == "garbage":
        collect(store, rnd)
    else:
        store.set_master_key(name, KEY)
        if what == "fence":
            seen.fenced[name].append(True)
            store.fence(name)
        else:
            body = encode_explicit_lac(name, rnd.randint(0, 99), "CRC32C", "pw")
            seen.lacs[name].append(body)
            store.set_explicit_lac(name, body)


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "bookie": (bookie_at, bookie_does),
    "storage": (storage_at, storage_does),
}


# -- lives


def live(
    kind: str,
    storage: str,
    way: str,
    root: Path,
    rnd: random.Random,
    files: CrashFiles,
    seen: Expected,
) -> None:
    """Do things until the power goes, or until here; crash what is there then."""
    open_at, act = KINDS[kind]
    store = None
    try:
        with open_at(root, storage, files) as store:
            for _ in range(rnd.randint(0, 25)):
                act(store, rnd, seen, way)
            if rnd.random() < 0.3:
                store.close()
                seen.checkpointed()
    except PowerLoss:
        pass
    finally:
        files.crash(root, root.with_name(f"{root.name}+"), rnd.choice((None, rnd)))
        if store is not None:
            if not files.stopped:
                files.stop_after(1)
            with suppress(PowerLoss, BkstoreError):
                store.close()


def run(
    kind: str, storage: str, way: str, top: Path, seed: int, ignored: str | None = None
) -> set[str]:
    """Live and crash a few times; return the sync sites met. Fails where anything is lost."""
    rnd, seen, sites = random.Random(f"{kind}{storage}{seed}"), Expected(), set[str]()
    random.seed(seed)  # picks the directories of new entry logs
    root = top / f"{kind}-{storage}-{way}-{seed}"
    root.mkdir(parents=True)
    for _ in range(LIVES):
        files = CrashFiles()
        if ignored is not None:
            files.ignore_site(ignored)
        if rnd.random() < 0.8:
            files.stop_after(rnd.randint(1, rnd.choice((30, 200, 600))))
        live(kind, storage, way, root, rnd, files, seen)
        sites |= files.sync_sites
        root = root.with_name(f"{root.name}+")
        with KINDS[kind][0](root, storage, OS_FILES) as left:
            try:
                seen.check(left)
            finally:
                left.close()
    return sites


def start(storage: str, way: str, top: Path, ignored: str | None = None) -> set[str]:
    """Cut the power after a first start, several ways: what runs meet only now and then."""
    sites = set[str]()
    for flushed, synced in product((True, False), repeat=2):
        files, name = CrashFiles(), LEDGERS[0]
        root = top / f"start-{storage}-{way}-{flushed}-{synced}"
        if ignored is not None:
            files.ignore_site(ignored)
        entries, seen = list(range(20)), Expected()
        with bookie_at(root, storage, files) as bookie:
            if flushed:
                bookie.checkpoint()
            seen.adding(name, entries)
            rows = [record(name, entry) for entry in entries]
            add(bookie, way, rows, master_key=KEY, sync=synced)
            if synced:
                seen.added(name, entries)
        for seed in range(9):
            keep = random.Random(seed) if seed else None
            left = files.crash(root, top / f"{root.name}-{seed}", keep)
            opens(left, storage, seen)
        sites |= files.sync_sites
        bookie.close()
    for stop in range(1, 48):
        sites |= interrupted_start(storage, top / f"start-{storage}-{way}-{stop}", stop, ignored)
    return sites


def interrupted_start(storage: str, root: Path, stop: int, ignored: str | None) -> set[str]:
    """Cut the power during a first start; the next one must not take it for a foreign disk."""
    files = CrashFiles()
    if ignored is not None:
        files.ignore_site(ignored)
    root.mkdir(parents=True, exist_ok=True)
    files.stop_after(stop)
    with suppress(PowerLoss), bookie_at(root, storage, files) as bookie:
        if not files.stopped:
            files.stop_after(1)
        with suppress(PowerLoss):
            bookie.close()
    left = files.crash(root, root.with_name(f"{root.name}+"), random.Random(stop))
    opens(left, storage, Expected())
    return files.sync_sites


def opens(root: Path, storage: str, seen: Expected) -> None:
    """Start a bookie on what a crash left, and look at what is there."""
    with bookie_at(root, storage, OS_FILES) as again:
        try:
            copy.deepcopy(seen).check(again)
        finally:
            again.close()


def compact(storage: str, way: str, top: Path, ignored: str | None = None) -> set[str]:
    """Cut the power at many points of a transactional compaction, which runs seldom meet."""
    sites, kept, deleted = set[str](), LEDGERS[0], LEDGERS[3]
    small = replace(OPTIONS, write_cache=5000)  # sorted storage rolls its log when that is full
    random.seed(1)
    for stop in range(1, 60, 4):
        files, root, seen = CrashFiles(), top / f"compact-{storage}-{way}-{stop}", Expected()
        if ignored is not None:
            files.ignore_site(ignored)
        with storage_at(root, storage, files, small) as store:
            for name in (kept, deleted):
                store.set_master_key(name, KEY)
                seen.adding(name, list(range(120)))
            for first in range(0, 120, 10):
                for name in (kept, deleted):
                    add(store, way, [record(name, at) for at in range(first, first + 10)])
                store.flush()
            store.delete_ledger(deleted)
            store.flush()
            seen.deleting(deleted)
            seen.checkpointed()
            files.stop_after(stop)
            with suppress(PowerLoss):
                store.collect_garbage(threshold=0.9, transactional=True)
            left = files.crash(root, root.with_name(f"{root.name}+"), random.Random(stop))
            sites |= files.sync_sites
            if not files.stopped:
                files.stop_after(1)
            with suppress(PowerLoss, BkstoreError):
                store.close()
        with storage_at(left, storage, OS_FILES) as again:
            try:
                seen.check(again)
            finally:
                again.close()
    return sites


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("storage", STORAGES)
def test_power_loss_after_the_start(storage: str, way: str, tmp_path: Path) -> None:
    """A bookie that was started, and has taken entries or not yet, starts again."""
    start(storage, way, tmp_path)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], set[str]]:
    """Return `compact` of a storage and a way, which is done once."""
    top = tmp_path_factory.mktemp("compactions")
    return cache(lambda storage, way: compact(storage, way, top))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("storage", STORAGES)
def test_power_loss_in_a_compaction(
    storage: str, way: str, compacted: Callable[[str, str], set[str]]
) -> None:
    """Nothing of a ledger that lives is lost, however far a compaction came."""
    assert any("CompactionOutput.publish" in site for site in compacted(storage, way))


@pytest.mark.parametrize(("way", "seed"), [(WAYS[seed % 2], seed) for seed in range(8)])
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_power_losses(kind: str, storage: str, way: str, tmp_path: Path, seed: int) -> None:
    """What was acknowledged (a bookie) or flushed (a storage) is there, and nothing is wrong."""
    run(kind, storage, way, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_power_losses(kind: str, storage: str, way: str, tmp_path: Path, block: int) -> None:
    """The same, a thousand times in all and more."""
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        run(kind, storage, way, tmp_path, seed)


INDEX_SYNCS = {  # shown to be needed by test_indexes
    "bkstore.index.hierarchical.reader:HierarchicalReader.__init__:makedirs.sync_dir",
    "bkstore.index.scope_marker:write_marker:write_file.sync_dir",
}


@pytest.mark.parametrize("way", [WAYS[0], pytest.param(WAYS[1], marks=pytest.mark.long)])
def test_every_sync_is_needed(
    way: str, compacted: Callable[[str, str], set[str]], tmp_path: Path
) -> None:
    """Taking out any one sync loses data in some run, so no sync may go, nor is one idle.

    Of runs that add one by one, and of runs that add batches.
    """
    sites: dict[str, dict[tuple[str, str], None]] = {}
    for kind in KINDS:
        for storage in STORAGES:
            met = run(kind, storage, way, tmp_path / "met", 0)
            for site in met:
                sites.setdefault(site, {})[kind, storage] = None
    for storage in STORAGES:
        for site in compacted(storage, way):
            sites.setdefault(site, {})["storage", storage] = None
    wanted = sorted(set(sites) - INDEX_SYNCS)

    assert {
        "CompactionOutput.publish",
        "EntryLogger._sync_logs",
        "JournalWriter._fsync",
        "write_last_mark",
    } <= {site.split(":")[1] for site in wanted}
    for number, site in enumerate(wanted):
        assert loses(list(sites[site]), way, tmp_path / str(number), site), f"{site} is not needed"


def loses(met: list[tuple[str, str]], way: str, top: Path, site: str) -> bool:
    """Return whether some run fails without the syncs of one site."""
    try:
        if "CompactionOutput" in site:
            for storage in STORAGES:
                compact(storage, way, top, site)
        for seed in range(30):
            for kind, storage in met:
                run(kind, storage, way, top, seed, site)
            if seed == 0 and ("bookie", "sorted") in met:  # runs find those of databases sooner
                start("sorted", way, top, site)
    except (AssertionError, BkstoreError):
        return True
    return False
