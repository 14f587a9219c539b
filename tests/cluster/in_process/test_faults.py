"""The faults of a cluster, on each storage: they do what they say, and last."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from bkstore import Availability, BookieDir
from bkstore.cluster import Cluster, LedgerHandle
from bkstore.cluster.in_process.bookie_client import LocalClient
from bkstore.cluster.in_process.damage_at_rest import to_entry_ids
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
)
from bkstore.formats.entry import encode_explicit_lac, master_key, record_header
from bkstore.ids import LedgerId
from bkstore.testing.factories import ClusterFactory

pytestmark = pytest.mark.bkstore_storage

SCOPED = LedgerId(3, 2**64 - 1)


def written(cluster: Cluster, name: int | LedgerId = 7, entries: int = 12) -> LedgerHandle:
    """Return an open ledger that every bookie has all of."""
    ledger = cluster.create_ledger(3, 3, 2, ledger=name)
    ledger.append_many([b"entry %d" % entry for entry in range(entries)])
    return ledger


def held(cluster: Cluster, bookie: str, name: int | LedgerId = 7) -> list[int]:
    """Return the entries that a bookie has."""
    return cluster.bookies[bookie].availability(name).entries().tolist()


class TestLosses:
    """Entries and ledgers that a bookie no longer has."""

    @pytest.mark.parametrize("name", [LedgerId.of(7), SCOPED])
    def test_lose(self, bkstore_cluster: ClusterFactory, name: LedgerId) -> None:
        """The entries are gone from listing and reads of that bookie, and of no other; they stay
        gone after a kill and in the directory at rest."""
        cluster = bkstore_cluster()
        ledger = written(cluster, name)
        lost = cluster.lose("bookie-2", name, [3, 4, 11, 99])
        left = [0, 1, 2, 5, 6, 7, 8, 9, 10]

        assert [3, 4, 11] == lost.tolist()
        assert left == held(cluster, "bookie-2", name)
        with pytest.raises(NoSuchEntry):
            cluster.bookies["bookie-2"].read_entry(name, 4)
        assert b"entry 2" in cluster.bookies["bookie-2"].read_entry(name, 2)
        assert list(range(12)) == held(cluster, "bookie-1", name)
        assert 12 == len(ledger.read(0, 11))

        cluster.crash("bookie-2")
        cluster.start("bookie-2")

        assert left == held(cluster, "bookie-2", name)
        assert [] == cluster.lose("bookie-2", name, [3, 4]).tolist()

        cluster.close()
        with BookieDir(cluster.path_of("bookie-2")) as bookie:
            assert left == bookie.index.entries(name).tolist()

    def test_what_may_be_lost(self, bkstore_cluster: ClusterFactory) -> None:
        """One entry, several, a range or an availability; of a bookie that is down, too."""
        cluster = bkstore_cluster()
        written(cluster)

        assert [0] == cluster.lose("bookie-1", 7, 0).tolist()
        assert [2, 3] == cluster.lose("bookie-1", 7, range(2, 4)).tolist()
        assert [5, 7] == cluster.lose("bookie-1", 7, np.array([7, 5, 5])).tolist()
        assert [8] == cluster.lose("bookie-1", 7, Availability.from_entries([8])).tolist()

        cluster.crash("bookie-1")  # what its journal has must not come back

        assert [9, 10, 11] == cluster.lose("bookie-1", 7, range(9, 2000)).tolist()
        assert not cluster.bookies["bookie-1"].server.is_running

        cluster.start("bookie-1")

        assert [1, 4, 6] == held(cluster, "bookie-1")
        assert [] == cluster.lose("bookie-1", 8, 0).tolist()
        for bad in (-1, [2**63 - 1], "text", 1.5):
            with pytest.raises((InvalidArgument, TypeError)):
                to_entry_ids(bad)  # type: ignore[arg-type]

    def test_everything_lost_but_the_ledger(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie without any of a ledger's entries still knows the ledger."""
        cluster = bkstore_cluster()
        written(cluster)
        cluster.lose("bookie-3", 7, range(12))

        assert [] == held(cluster, "bookie-3")
        assert cluster.bookie("bookie-3").ledger_exists(7)

    def test_lose_ledger(self, bkstore_cluster: ClusterFactory) -> None:
        """The bookie does not know the ledger, after a kill either; a new one is told so."""
        cluster = bkstore_cluster()
        written(cluster)
        written(cluster, 8)

        assert cluster.lose_ledger("bookie-2", 7)
        assert not cluster.lose_ledger("bookie-2", 7)

        cluster.crash("bookie-2")
        cluster.start("bookie-2")

        with pytest.raises(NoSuchLedger):
            cluster.bookies["bookie-2"].availability(7)
        with pytest.raises(NoSuchLedger):
            cluster.bookies["bookie-2"].read_entry(7, 0)
        assert list(range(12)) == held(cluster, "bookie-2", 8)

    def test_lose_ledger_of_a_bookie_that_is_down(self, bkstore_cluster: ClusterFactory) -> None:
        """It stays down, and its journal does not bring the ledger back."""
        cluster = bkstore_cluster()
        written(cluster)
        cluster.crash("bookie-2")

        assert cluster.lose_ledger("bookie-2", 7)
        assert not cluster.bookies["bookie-2"].server.is_running

        cluster.start("bookie-2")

        assert not cluster.bookie("bookie-2").ledger_exists(7)


class TestDamage:
    """Records that change."""

    @pytest.mark.parametrize("name", [LedgerId.of(7), SCOPED])
    @pytest.mark.parametrize("flushed", [False, True])
    def test_payload(self, bkstore_cluster: ClusterFactory, name: LedgerId, flushed: bool) -> None:
        """The bookie serves other bytes; the digest tells, and the next replica is read."""
        cluster = bkstore_cluster()
        ledger = written(cluster, name)
        if flushed:
            cluster.flush()
        true = cluster.bookies["bookie-1"].read_entry(name, 5)
        log, offset = cluster.corrupt("bookie-1", name, 5)
        served = cluster.bookies["bookie-1"].read_entry(name, 5)

        assert served != true
        assert (true[:-1], true[-1] ^ 0xFF) == (served[:-1], served[-1])
        assert log.is_relative_to(cluster.path_of("bookie-1"))
        assert served[-1] == log.read_bytes()[offset]
        assert b"entry 5" == ledger.read_entry(5).payload
        with pytest.raises(CorruptionError, match="digest of entry 5"):
            ledger._access.verify_record(served)

    @pytest.mark.parametrize("name", [LedgerId.of(7), SCOPED])
    def test_header(self, bkstore_cluster: ClusterFactory, name: LedgerId) -> None:
        """The bookie itself tells of damage, before and after a kill."""
        cluster = bkstore_cluster()
        ledger = written(cluster, name)
        log, offset = cluster.corrupt("bookie-1", name, 5, "header")
        start = offset - (24 if name.scope else 15)  # the last byte of the entry id
        header = record_header(log.read_bytes()[start : start + 41])

        assert (name, 5 ^ 0xFF) == (header.ledger, header.entry_id)

        for _ in range(2):
            with pytest.raises(CorruptionError, match="is not entry 5"):
                cluster.bookies["bookie-1"].read_entry(name, 5)
            cluster.crash("bookie-1")
            cluster.start("bookie-1")

        assert b"entry 5" == ledger.read_entry(5).payload
        assert list(range(12)) == held(cluster, "bookie-1", name)

    def test_of_a_bookie_that_is_down(self, bkstore_cluster: ClusterFactory) -> None:
        """It is damaged all the same, and stays down."""
        cluster = bkstore_cluster()
        written(cluster)
        cluster.crash("bookie-1")
        cluster.corrupt("bookie-1", 7, 0, "header")

        assert not cluster.bookies["bookie-1"].server.is_running

        cluster.start("bookie-1")
        with pytest.raises(CorruptionError):
            cluster.bookies["bookie-1"].read_entry(7, 0)

    def test_what_cannot_be_damaged(self, bkstore_cluster: ClusterFactory) -> None:
        """An entry that is not there, a part that there is not."""
        cluster = bkstore_cluster()
        written(cluster)

        with pytest.raises(NoSuchEntry):
            cluster.corrupt("bookie-1", 7, 99)
        with pytest.raises(NoSuchLedger):
            cluster.corrupt("bookie-1", 8, 0)
        with pytest.raises(InvalidArgument, match="'payload' or 'header'"):
            cluster.corrupt("bookie-1", 7, 0, "digest")  # type: ignore[arg-type]


class TestGoneAndBack:
    """Bookies that stop, are killed, or cannot be reached."""

    def test_stop_and_crash(self, bkstore_cluster: ClusterFactory) -> None:
        """Down is down; registration goes unless it is kept; nothing is lost when it is back."""
        cluster = bkstore_cluster()
        written(cluster)
        for end, unclean in ((cluster.stop, False), (cluster.crash, True)):
            for keep in (False, True):
                end("bookie-1", keep_registered=keep)

                assert keep == ("bookie-1" in (cluster.store.registered_bookies() or ()))
                with pytest.raises(BookieUnavailable, match="bookie-1 is down"):
                    cluster.bookies["bookie-1"].read_entry(7, 0)
                with pytest.raises(BookieUnavailable):
                    cluster.bookie("bookie-1")

                cluster.start("bookie-1")
                cluster.start("bookie-1")

                assert "bookie-1" in (cluster.store.registered_bookies() or ())
                assert unclean == cluster.bookie("bookie-1").unclean
                assert list(range(12)) == held(cluster, "bookie-1")

    def test_a_kill_loses_what_was_not_synced(self, bkstore_cluster: ClusterFactory) -> None:
        """A crash is the end of a process: what it had in memory only is gone."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        record = cluster.bookies["bookie-1"].read_entry(7, 0)
        ledger.append(b"in memory", sync=False)
        cluster.crash("bookie-1")
        cluster.start("bookie-1")

        assert list(range(12)) == held(cluster, "bookie-1")
        assert record == cluster.bookies["bookie-1"].read_entry(7, 0)

    def test_crash_needs_a_running_bookie(self, bkstore_cluster: ClusterFactory) -> None:
        """What is down cannot be killed; to stop it again does nothing."""
        cluster = bkstore_cluster()
        cluster.stop("bookie-1")
        cluster.stop("bookie-1")

        with pytest.raises(IllegalOperation, match="does not run"):
            cluster.crash("bookie-1")

    def test_partition(self, bkstore_cluster: ClusterFactory) -> None:
        """Registered, running, and out of reach: of all clients, or of one."""
        cluster = bkstore_cluster()
        written(cluster)
        mine, yours = (
            cluster.client(name).context.bookies["bookie-1"] for name in ("mine", "yours")
        )
        cluster.partition("bookie-1", "mine")

        with pytest.raises(BookieUnavailable, match="bookie-1 cannot be reached"):
            mine.availability(7)
        assert 12 == len(yours.availability(7))

        cluster.partition("bookie-1")
        cluster.heal("bookie-1", "mine")
        for client in (mine, yours, cluster.bookies["bookie-1"]):
            with pytest.raises(BookieUnavailable):
                client.availability(7)

        assert "bookie-1" in (cluster.store.registered_bookies() or ())
        assert 12 == len(cluster.bookie("bookie-1").availability(7))

        cluster.heal("bookie-1")

        assert 12 == len(mine.availability(7))

    def test_slow(self, bkstore_cluster: ClusterFactory) -> None:
        """An answer after the timeout is none; an error that comes too late is none either."""
        waited: list[float] = []
        cluster = bkstore_cluster(sleep=waited.append, timeout=3.0)
        written(cluster)
        bookie = cluster.bookies["bookie-1"]
        cluster.slow("bookie-1", 2.5)

        assert b"entry 0" in bookie.read_entry(7, 0)

        cluster.slow("bookie-1", 3.0)
        for entry in (0, 99):
            with pytest.raises(BookieUnavailable, match="bookie-1 gave no answer in 3 s"):
                bookie.read_entry(7, entry)
        with pytest.raises(InvalidArgument):
            cluster.slow("bookie-1", -1)
        assert [2.5, 3.0, 3.0] == waited

    def test_stop_waits_for_calls(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie is not closed under a call; the next one is refused."""
        cluster = bkstore_cluster()
        written(cluster)
        server = cluster.bookies["bookie-1"].server
        inside, go = threading.Event(), threading.Event()
        found: list[bytes] = []

        def read(bookie: object) -> None:
            inside.set()
            go.wait(20)
            found.append(server_bookie.read_entry(7, 0))

        server_bookie = server.bookie
        reading = threading.Thread(target=server.call, args=("", read))
        reading.start()
        inside.wait(20)
        stopping = threading.Thread(target=cluster.stop, args=("bookie-1",))
        stopping.start()
        while stopping.is_alive() and not server._idle._waiters:  # type: ignore[attr-defined]
            pass

        assert stopping.is_alive()
        with pytest.raises(BookieUnavailable):
            cluster.bookies["bookie-1"].read_entry(7, 0)

        go.set()
        reading.join()
        stopping.join()

        assert 1 == len(found)


class TestClientOfABookie:
    """The protocol, as a bookie in this process has it."""

    def test_fencing_reads(self, bkstore_cluster: ClusterFactory) -> None:
        """They fence first, also where there is no such entry or ledger; they need the key."""
        cluster = bkstore_cluster()
        written(cluster)
        key, bookie = master_key(b""), cluster.bookies["bookie-1"]
        for ledger, entry in ((7, 99), (8, 0), (9, -1)):
            with pytest.raises(NoSuchEntry):
                bookie.read_entry(ledger, entry, fence=True, master_key=key)

            assert cluster.bookie("bookie-1").is_fenced(ledger)

        assert 12 == len(bookie.read_entries(7, 0, fence=True, master_key=key))
        for call in (bookie.read_entry, bookie.read_entries):
            with pytest.raises(InvalidArgument, match="needs the master key"):
                call(7, 0, fence=True)
        assert not cluster.bookie("bookie-2").is_fenced(7)

    def test_lac(self, bkstore_cluster: ClusterFactory) -> None:
        """What tells a LAC: the last record, an explicit LAC, both, or nothing."""
        cluster = bkstore_cluster()
        written(cluster)
        bookie = cluster.bookies["bookie-1"]
        key, body = master_key(b""), encode_explicit_lac(8, 4, "CRC32C")
        last = bookie.read_entry(7, -1)

        assert (None, last) == bookie.read_lac(7)
        with pytest.raises(NoSuchEntry):
            bookie.read_lac(8)

        bookie.write_lac(8, body, key)

        assert (body, None) == bookie.read_lac(8)
        bookie.force(8)

    def test_old_servers(self, bkstore_cluster: ClusterFactory) -> None:
        """One that does not support batch reads says so, and still reads one by one."""
        cluster = bkstore_cluster()
        written(cluster)
        cluster.set_batch_reads("bookie-1", False)
        bookie = cluster.bookies["bookie-1"]

        assert (False, True) == (bookie.batch_reads, cluster.bookies["bookie-2"].batch_reads)
        with pytest.raises(IllegalOperation, match="bookie-1 does not support batch reads"):
            bookie.read_entries(7, 0)
        assert b"entry 3" in bookie.read_entry(7, 3)

    def test_repr(self, bkstore_cluster: ClusterFactory, tmp_path: Path) -> None:
        """It says which bookie it is."""
        client = bkstore_cluster(1).bookies["bookie-1"]

        assert isinstance(client, LocalClient)
        assert "<LocalClient bookie-1>" == repr(client)
