"""Recovery beside other clients: writers, other recoveries, deletes, threads."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from bkstore.cluster import Client, Cluster, LedgerHandle, MemoryStore
from bkstore.cluster.client.recovery import _Recovery, recover_ledger
from bkstore.errors import (
    BadVersion,
    IllegalOperation,
    LedgerFenced,
    NoSuchLedger,
)
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.testing.factories import ClusterFactory
from tests.cluster.client.dead_writers import ABC, made, put


class TestSeveralAtOnce:
    """Recoveries beside each other, and beside a writer."""

    def test_a_closed_ledger_is_left_alone(self, bkstore_cluster: ClusterFactory) -> None:
        """To open what is closed asks no bookie and changes nothing."""
        cluster = bkstore_cluster()
        with cluster.create_ledger() as ledger:
            ledger.append(b"x")
        before = cluster.store.read(0)
        for name in ABC:
            cluster.stop(name)

        assert 0 == cluster.open_ledger(0).last_add_confirmed
        assert before == cluster.store.read(0)

    def test_the_first_one_counts(self, bkstore_cluster: ClusterFactory) -> None:
        """A recovery that comes second takes over what the first one wrote."""
        cluster = bkstore_cluster(4)
        name = made(cluster, (3, 3, 2), (0, ABC))
        put(cluster, "bookie-3", 0, 0, -1, b"x")
        cluster.partition("bookie-3", "first")
        access = cluster.client("second")._open_access(name, None, b"", 0)
        second = _Recovery(access, access.update(lambda m: replace(m, state="IN_RECOVERY")))
        second._fence_last_ensemble()
        first = cluster.client("first").open_ledger(name)  # does not reach bookie-3
        found, _ = second._read_window(range(1))
        cluster.stop("bookie-2")

        assert [0] == [entry.entry_id for entry in found]

        second._write_again(found)

        assert first.metadata == second._close_ledger(0, 1)
        assert (-1, ((0, ABC),)) == (first.metadata.last_entry_id, first.metadata.segments)

    def test_the_writer_may_be_faster(self, bkstore_cluster: ClusterFactory) -> None:
        """A ledger that its writer closes meanwhile needs no recovery."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        ledger.append(b"x")
        slower = _SlowStore(cluster, ledger.ledger, ledger.close, "IN_RECOVERY")
        found = Client(slower, cluster.bookies).open_ledger(0)  # type: ignore[arg-type]

        assert (0, 1) == (found.last_add_confirmed, found.length)
        assert 1 == slower.beaten
        holders = [b for b in ABC if cluster.bookie(b).ledger_exists(0)]

        assert [False, False] == [cluster.bookie(name).is_fenced(0) for name in holders]

    def test_deleted_meanwhile(self, bkstore_cluster: ClusterFactory) -> None:
        """A ledger that is deleted under a recovery is told to be gone."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        slower = _SlowStore(cluster, ledger.ledger, lambda: cluster.delete_ledger(0))

        with pytest.raises(NoSuchLedger):
            Client(slower, cluster.bookies).open_ledger(0)  # type: ignore[arg-type]

    def test_ensembles_changed_meanwhile(self, bkstore_cluster: ClusterFactory) -> None:
        """A recovery does not close over ensembles that it has not read from."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)

        def change() -> None:
            found = cluster.store.read(0)
            odd = ((0, ("bookie-1", "bookie-2", "bookie-4")),)
            if odd == found.metadata.segments:
                odd = ((0, ABC),)
            cluster.store.write(replace(found.metadata, segments=odd), found.version)

        slower = _SlowStore(cluster, ledger.ledger, change)
        with pytest.raises(IllegalOperation, match="changed during recovery"):
            Client(slower, cluster.bookies).open_ledger(0)  # type: ignore[arg-type]

    def test_again_after_a_failure_anywhere(self, bkstore_cluster: ClusterFactory) -> None:
        """A recovery that was broken off at any entry is finished by the next one."""
        cluster = bkstore_cluster(3)
        for broken in range(4):
            name = made(cluster, (3, 3, 2), (0, ABC))
            for entry in range(3):
                put(cluster, "bookie-1", name.ledger, entry, -1, b"0123456789")
            access = cluster.client("dies")._open_access(name, None, b"", 0)
            recovery = _Recovery(access, access.update(lambda m: replace(m, state="IN_RECOVERY")))
            last = recovery._fence_last_ensemble()
            for entry in range(last + 1, broken):
                found, _ = recovery._read_window(range(entry, entry + 1))

                assert [entry] == [each.entry_id for each in found]

                recovery._write_again(found)

            closed = cluster.open_ledger(name)

            assert (2, 30) == (closed.last_add_confirmed, closed.length)

    def test_recover_returns_what_the_store_has(self, bkstore_cluster: ClusterFactory) -> None:
        """`recover_ledger` returns the closed metadata."""
        cluster = bkstore_cluster()
        ledger: LedgerHandle = cluster.create_ledger()
        ledger.append(b"x")
        metadata = recover_ledger(ledger._access)

        assert "CLOSED" == metadata.state
        assert metadata == cluster.store.read(0).metadata


class TestThreads:
    """A writer and several recoveries at the same time."""

    @pytest.mark.parametrize("numbers", [(3, 2, 2), (3, 3, 2), (4, 4, 3)])
    @pytest.mark.parametrize("after", range(5))
    def test_all_at_once(
        self, bkstore_cluster: ClusterFactory, numbers: tuple[int, int, int], after: int
    ) -> None:
        """All see the same end; what was acknowledged is before it; the writer is told."""
        cluster = bkstore_cluster(5, ["sorted", "interleaved"])
        ledger = cluster.client("writer").create_ledger(*numbers)
        told: list[int] = []
        ends: list[tuple[int, int]] = []
        refused: list[type[Exception]] = []
        started = threading.Event()

        def write() -> None:
            try:
                while len(told) < 2000:
                    told.append(ledger.append(b"%d" % len(told)))
                    if len(told) > after:
                        started.set()
            except LedgerFenced as error:
                refused.append(type(error))

        def end() -> None:
            started.wait(20)
            metadata = cluster.client("other").open_ledger(ledger.ledger).metadata
            ends.append((metadata.last_entry_id, metadata.length))

        threads = [threading.Thread(target=run) for run in (write, end, end, end)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = ends[0][0]

        assert [LedgerFenced] == refused
        assert [ends[0]] * 3 == ends
        assert list(range(len(told))) == told
        assert len(told) - 1 <= last <= len(told)

        found = cluster.open_ledger(ledger.ledger).read(0, last)

        assert [b"%d" % number for number in range(last + 1)] == [e.payload for e in found]


class _SlowStore:
    """A metadata store in front of which another client is faster once.

    Before the write that would set `state` it lets `first` happen.
    """

    def __init__(self, cluster: Cluster, name: LedgerId, first: Any, state: str = "CLOSED") -> None:
        assert isinstance(cluster.store, MemoryStore)
        self._store = cluster.store
        self._name = name
        self._first = first
        self._state = state
        self.beaten = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """Write; the first time another was faster."""
        if self._first is not None and metadata.state == self._state:
            first, self._first = self._first, None
            first()
        try:
            return self._store.write(metadata, version)
        except BadVersion:
            self.beaten += 1
            raise
