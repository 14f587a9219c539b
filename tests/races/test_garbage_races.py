"""Garbage goes from running bookies while ledgers come and go: all of it, and nothing else.

Three bookies of one cluster, a storage each, over real sockets and a real ZooKeeper, collect and
compact all the time. Clients create, append to and delete ledgers of two scopes beside them;
ZooKeeper stands still now and then, and its list of ledgers lacks some each time it is asked.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.client.ledger_handle import LedgerHandle
from bkstore.cluster.garbage import GarbageOptions
from bkstore.errors import MetadataUnavailable, NotEnoughBookies
from bkstore.ids import LedgerId
from bkstore.network import Client, RegisteredBookie
from bkstore.storage.options import JournalOptions, StorageOptions
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.worlds.zookeeper import expire

KINDS: tuple[Any, ...] = ("sorted", "interleaved", "db")
ALL_THE_TIME = GarbageOptions(
    gc_wait_time=0.02,
    minor_compaction_threshold=0,
    major_compaction_interval=0.02,
    major_compaction_threshold=1.0,
    compaction_rate_by_entries=10**6,
    gc_metadata_op_rate_limit=10**6,
)
WRITERS = 3


class Forgetful(ZooKeeperStore):
    """A store whose lists lack ledgers that are there, other ones each time."""

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return some of the ledgers."""
        return [ledger for ledger in super().ledgers(scope) if random.random() < 0.7]


class Writer:
    """Creates, appends to and deletes ledgers of its own, and remembers which are there."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._open: dict[LedgerId, LedgerHandle] = {}
        self.live: dict[LedgerId, int] = {}
        """Entries that were acknowledged, by ledger."""
        self.deleted: list[LedgerId] = []

    def work(self, steps: int) -> None:
        """Do so many things."""
        for _ in range(steps):
            what = self._random.random()
            if what < 0.4 or not self.live:
                made = self._create(self._random.choice((0, 7)))
                ledger = made.ledger
                self._open[ledger], self.live[ledger] = made, 0
                self._append(ledger)
            elif what < 0.65:
                self._append(self._random.choice(list(self.live)))
            else:
                ledger = self._random.choice(list(self.live))
                self._open.pop(ledger).close()
                self._client.delete_ledger(ledger)
                del self.live[ledger]
                self.deleted.append(ledger)

    def _create(self, scope: int) -> LedgerHandle:
        """Create a ledger, once bookies whose sessions expired are registered again."""
        end = time.monotonic() + 60
        while True:
            try:
                return self._client.create_ledger(3, 3, 3, scope=scope)
            except NotEnoughBookies:
                assert time.monotonic() < end
                time.sleep(0.05)

    def _append(self, ledger: LedgerId) -> None:
        payload = mark(ledger).ljust(self._random.randrange(50, 400), b".")
        count = self._random.randint(1, 30)
        self._open[ledger].append_many([payload] * count)
        self.live[ledger] += count


def mark(ledger: LedgerId) -> bytes:
    """Return what each payload of a ledger begins with, and nothing else has."""
    return b"<%d/%d>" % ledger


@contextmanager
def _cluster(uri: str, top: Path) -> Iterator[list[RegisteredBookie]]:
    with ExitStack() as stack:
        made = []
        for kind in KINDS:
            store = stack.enter_context(Forgetful(uri))
            made.append(
                stack.enter_context(
                    RegisteredBookie.open(
                        store,
                        top / kind,
                        kind,
                        bookie_id=kind,
                        options=StorageOptions(entry_log_size=20_000, write_cache=50_000),
                        journal=JournalOptions(preallocate=64 << 10),
                        garbage=ALL_THE_TIME,
                    )
                )
            )
        yield made


def _after_two_passes(bookies: list[RegisteredBookie]) -> None:
    """Wait for the pass that may be under way, and for a whole one behind it."""
    figures = [bookie.collector.stats for bookie in bookies]
    wanted = [(one.deletion_scans.succeeded + 2, one.passes.succeeded + 2) for one in figures]
    end = time.monotonic() + 60
    for one, (judgements, passes) in zip(figures, wanted):
        while one.deletion_scans.succeeded < judgements or one.passes.succeeded < passes:
            assert time.monotonic() < end
            time.sleep(0.01)


def _check(bookies: list[RegisteredBookie], writers: list[Writer]) -> None:
    live = {ledger: count for writer in writers for ledger, count in writer.live.items()}
    deleted = [ledger for writer in writers for ledger in writer.deleted]
    for one in bookies:
        bookie = one.bookie
        for ledger, count in live.items():
            assert list(range(count)) == bookie.entries(ledger).tolist()
            start = 0
            while start < count:
                batch = bookie.read_entries(ledger, start)
                assert all(mark(ledger) in record for record in batch.records())
                start += len(batch)
        logs = [path.read_bytes() for path in bookie.directories.ledger[0].glob("*.log")]
        left = [ledger for ledger in deleted if any(mark(ledger) in log for log in logs)]

        assert (bookie.storage.storage, []) == (bookie.storage.storage, left)
        assert sorted(live) == bookie.ledgers()


def _race(zookeeper: ZooKeeperServer, top: Path, seed: int, rounds: int, stall: float) -> None:
    uri = new_uri(zookeeper)
    ZooKeeperStore.format(uri, instance_id="a0b1").close()
    with _cluster(uri, top) as bookies, Client(uri) as client, ThreadPoolExecutor() as pool:
        writers = [Writer(client, seed * WRITERS + number) for number in range(WRITERS)]
        for _ in range(rounds):
            working = [pool.submit(writer.work, 6) for writer in writers]
            assert zookeeper.pid is not None
            os.kill(zookeeper.pid, signal.SIGSTOP)
            try:
                threading.Event().wait(stall)
            finally:
                os.kill(zookeeper.pid, signal.SIGCONT)
            for work in working:
                work.result()
            _after_two_passes(bookies)
            _check(bookies, writers)
        assert any(writer.deleted for writer in writers)


def test_deletes_and_creates_beside_collection(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """After each round the bytes of deleted ledgers are gone from the entry logs, and all that
    lives is there and readable, on each storage."""
    _race(zookeeper, tmp_path, 0, rounds=2, stall=0.3)


@pytest.mark.long
@pytest.mark.parametrize("stall", [0.2, 12.0])
def test_long_races(zookeeper: ZooKeeperServer, tmp_path: Path, stall: float) -> None:
    """The same for longer, with stalls in which sessions expire."""
    _race(zookeeper, tmp_path, 1, rounds=40 if stall < 1 else 4, stall=stall)


def test_while_zookeeper_stands_still_nothing_is_judged(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Passes that the store does not answer, or answers in two sessions, delete nothing; what was
    deleted before the stall goes behind it."""
    uri = new_uri(zookeeper)
    ZooKeeperStore.format(uri).close()
    with Client(uri) as client, ZooKeeperStore(uri, timeout=0.3, session_timeout=4) as store:
        options = GarbageOptions(gc_wait_time=0)
        with RegisteredBookie.open(store, tmp_path / "b", bookie_id="b", garbage=options) as one:
            live, gone = client.create_ledger(1, 1, 1), client.create_ledger(1, 1, 1, scope=7)
            live.append(b"x"), gone.append(b"y")
            live_id, gone_id = live.ledger, gone.ledger
            client.delete_ledger(gone.ledger)
            assert zookeeper.pid is not None
            os.kill(zookeeper.pid, signal.SIGSTOP)
            try:
                stalled = one.collector.run_pass()
            finally:
                os.kill(zookeeper.pid, signal.SIGCONT)

            assert ([], [live_id, gone_id]) == (
                stalled.deleted_ledgers,
                one.bookie.ledgers(),
            )
            assert (0, 1) == (
                one.collector.stats.deletion_scans.succeeded,
                one.collector.stats.deletion_scans.failed,
            )

            _until_answered(store)
            listed = store.ledgers
            store.ledgers = lambda scope=None: (listed(scope), expire(store))[0]  # type: ignore[method-assign, func-returns-value]
            expired = one.collector.run_pass()
            store.ledgers = listed  # type: ignore[method-assign]

            assert [] == expired.deleted_ledgers
            assert one.collector.problem is not None
            assert "no ledger can be judged" in one.collector.problem

            _until_answered(store)

            assert [gone_id] == one.collector.run_pass().deleted_ledgers
            assert (None, [live_id]) == (one.collector.problem, one.bookie.ledgers())


def _until_answered(store: ZooKeeperStore) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            store.ledgers()
            return
        except MetadataUnavailable:
            assert time.monotonic() < end
