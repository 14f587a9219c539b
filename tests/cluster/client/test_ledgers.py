"""Ledgers of a cluster: create, append, read, follow, close, delete; bookies of all storages."""

from __future__ import annotations

import threading

import pytest

from bkstore.cluster import LedgerHandle
from bkstore.errors import (
    IllegalOperation,
    InvalidArgument,
    LedgerExists,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkstore.formats.entry import record_header
from bkstore.ids import LedgerId
from bkstore.schedule import write_set
from bkstore.testing.factories import ClusterFactory

SCOPED = LedgerId(2**64 - 1, 2**63 + 5)
DATA = [b"zero", b"", b"two", b"three" * 50]


class TestLifeOfALedger:
    """What a writer and its readers see."""

    @pytest.mark.bkstore_storage
    @pytest.mark.parametrize("digest", ["CRC32", "HMAC", "CRC32C", "DUMMY"])
    def test_write_close_read(self, bkstore_cluster: ClusterFactory, digest: str) -> None:
        """Entries come back as they were appended, with ids, LAC and length as upstream's."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(digest_type=digest, password=b"pw")
        ids = [ledger.append(data) for data in DATA]
        lengths = [4, 4, 7, 257]

        assert [0, 1, 2, 3] == ids
        assert (3, 3, 257) == (ledger.last_add_pushed, ledger.last_add_confirmed, ledger.length)
        assert not ledger.closed

        ledger.close()
        read = cluster.open_ledger(ledger.ledger, password=b"pw").read(0, 3)

        assert ("CLOSED", 3, 257) == (
            ledger.metadata.state,
            ledger.metadata.last_entry_id,
            ledger.metadata.length,
        )
        assert DATA == [entry.payload for entry in read]
        assert [-1, 0, 1, 2] == [entry.lac for entry in read]
        assert lengths == [entry.length for entry in read]
        assert b"two" == cluster.open_ledger(ledger.ledger, digest, b"pw").read_entry(2).payload

    @pytest.mark.bkstore_storage
    @pytest.mark.parametrize(("ensemble", "write", "ack"), [(3, 2, 2), (3, 3, 2), (4, 2, 1)])
    def test_entries_are_where_the_schedule_says(
        self, bkstore_cluster: ClusterFactory, ensemble: int, write: int, ack: int
    ) -> None:
        """Each bookie holds exactly the entries whose write set names it."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(ensemble, write, ack)
        ledger.append_many([b"x"] * 20)
        bookies = ledger.metadata.segments[0].ensemble
        expected = {
            bookie: [e for e in range(20) if index in write_set(e, ensemble, write)]
            for index, bookie in enumerate(bookies)
        }

        assert expected == {
            name: client.availability(ledger.ledger).entries().tolist()
            for name, client in cluster.bookies.items()
            if name in bookies
        }

    def test_append_many_is_append(self, bkstore_cluster: ClusterFactory) -> None:
        """Many at once: the same ids and entries, whatever the number; the last one tells the LAC,
        those before it tell a lower one."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2)
        data = [b"%d" % number for number in range(600)]

        assert [] == ledger.append_many([]).tolist()
        assert list(range(600)) == ledger.append_many(iter(data)).tolist()
        assert 598 == cluster.open_ledger_no_recovery(0).last_add_confirmed
        assert 600 == ledger.append(b"last")
        assert 600 == ledger.last_add_confirmed

        found = ledger.read(0, 600)

        assert [*data, b"last"] == [entry.payload for entry in found]
        assert all(entry.lac < entry.entry_id for entry in found)
        assert sum(map(len, data)) + 4 == found[-1].length == ledger.length

    def test_empty_ledger(self, bkstore_cluster: ClusterFactory) -> None:
        """A ledger without entries closes at -1, by its writer or by recovery."""
        cluster = bkstore_cluster()
        with cluster.create_ledger() as ledger:
            pass
        recovered = cluster.open_ledger(cluster.create_ledger().ledger)

        for handle in (ledger, recovered):
            assert (-1, 0) == (handle.metadata.last_entry_id, handle.metadata.length)
            assert (-1, -1, 0) == (
                handle.last_add_confirmed,
                handle.last_add_pushed,
                handle.length,
            )
            with pytest.raises(NoSuchEntry, match="no confirmed entry"):
                handle.read_last()

    @pytest.mark.parametrize("name", [LedgerId.of(0), LedgerId.of(2**63 - 1), SCOPED])
    @pytest.mark.bkstore_storage
    def test_scopes(self, bkstore_cluster: ClusterFactory, name: LedgerId) -> None:
        """128-bit ids: records of version 2, recovery, batches, as in scope 0."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2, ledger=name, password=b"pw")
        ledger.append(b"first")
        ledger.append(b"second")
        holder = cluster.bookies[ledger.metadata.segments[0].ensemble[0]]
        record = holder.read_entry(name, 0)
        other = cluster.client("other")
        reader = other.open_ledger(name.ledger, password=b"pw", scope=name.scope)

        assert (name, name.scope, name.ledger) == (ledger.ledger, ledger.scope_id, ledger.id)
        assert (32 if name.scope == 0 else 41) == record_header(record).size
        assert (name, 1, 11) == (reader.ledger, reader.last_add_confirmed, reader.length)
        assert [b"first", b"second"] == [entry.payload for entry in reader.read_batch(0)]
        assert name == reader.read_last().ledger
        with pytest.raises(LedgerFenced):
            ledger.append(b"third")

    def test_ids(self, bkstore_cluster: ClusterFactory) -> None:
        """Ids come from the scope's counter, or from the caller; a ledger exists once."""
        cluster = bkstore_cluster()
        cluster.create_ledger(ledger=1)

        assert [0, 2] == [cluster.create_ledger().id for _ in range(2)]
        assert [(9, 0), (9, 1)] == [cluster.create_ledger(scope=9).ledger for _ in range(2)]
        assert (9, 7) == cluster.create_ledger(scope=9, ledger=7).ledger
        assert SCOPED == cluster.create_ledger(ledger=SCOPED, scope=SCOPED.scope).ledger
        assert [(9, 0), (9, 1), (9, 7)] == cluster.store.ledgers(9)
        with pytest.raises(LedgerExists):
            cluster.create_ledger(ledger=1)
        with pytest.raises(InvalidArgument, match="not of scope 3"):
            cluster.create_ledger(ledger=SCOPED, scope=3)

    def test_metadata(self, bkstore_cluster: ClusterFactory) -> None:
        """The store has what the ledger was created with."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(
            3, 3, 2, digest_type="MAC", password=b"pw", custom_metadata={"app": b"test"}
        )
        kept = cluster.store.read(ledger.ledger).metadata

        assert ledger.metadata == kept
        assert (3, 3, 2, "OPEN", "HMAC", b"pw") == (
            kept.ensemble_size,
            kept.write_quorum_size,
            kept.ack_quorum_size,
            kept.state,
            kept.digest_type,
            kept.password,
        )
        assert {"app": b"test"} == kept.custom_metadata
        assert ["bookie-1", "bookie-2", "bookie-3"] == sorted(kept.segments[0].ensemble)

    @pytest.mark.parametrize(
        ("numbers", "error"),
        [
            ((2, 3, 2), InvalidArgument),
            ((3, 2, 3), InvalidArgument),
            ((3, 2, 0), InvalidArgument),
            ((4, 2, 2), NotEnoughBookies),
        ],
    )
    def test_impossible_quorums(
        self,
        bkstore_cluster: ClusterFactory,
        numbers: tuple[int, int, int],
        error: type[Exception],
    ) -> None:
        """Quorums that do not fit, or more bookies than there are, make no ledger."""
        cluster = bkstore_cluster()

        with pytest.raises(error):
            cluster.create_ledger(*numbers)
        assert [] == cluster.store.ledgers()

    def test_bad_digest(self, bkstore_cluster: ClusterFactory) -> None:
        """A digest type that there is not makes no ledger."""
        cluster = bkstore_cluster()

        with pytest.raises(InvalidArgument, match="MD5"):
            cluster.create_ledger(digest_type="MD5")
        assert [] == cluster.store.ledgers()

    def test_who_may_open(self, bkstore_cluster: ClusterFactory) -> None:
        """Another password, another digest type, no such ledger: told, and nobody is fenced."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(password=b"pw")
        for opening in (cluster.open_ledger, cluster.open_ledger_no_recovery):
            with pytest.raises(UnauthorizedAccess):
                opening(ledger.ledger, password=b"other")
            with pytest.raises(InvalidArgument, match="CRC32C, not HMAC"):
                opening(ledger.ledger, "HMAC", b"pw")
            with pytest.raises(NoSuchLedger):
                opening(99)

        assert 0 == ledger.append(b"still open")

    def test_metadata_without_digest(self, bkstore_cluster: ClusterFactory) -> None:
        """Old metadata name no digest type: the caller has to."""
        from dataclasses import replace

        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(password=b"pw")
        ledger.append(b"old")
        ledger.close()
        found = cluster.store.read(ledger.ledger)
        cluster.store.write(replace(found.metadata, digest_type=None, password=None), found.version)

        assert b"old" == cluster.open_ledger(0, "CRC32C", b"pw").read_last().payload
        with pytest.raises(InvalidArgument, match="the digest type is unknown"):
            cluster.open_ledger(0, password=b"pw")


class TestClosing:
    """Who ends a ledger, and when."""

    def test_close_twice(self, bkstore_cluster: ClusterFactory) -> None:
        """A second close does nothing; a closed handle takes no entry and still reads."""
        ledger = bkstore_cluster().create_ledger()
        ledger.append(b"x")
        ledger.close()
        ledger.close()

        assert ledger.closed
        assert b"x" == ledger.read_last().payload
        with pytest.raises(IllegalOperation, match="has been closed by this handle"):
            ledger.append(b"y")
        with pytest.raises(IllegalOperation):
            ledger.append_many([b"y"])

    def test_readers_do_not_write(self, bkstore_cluster: ClusterFactory) -> None:
        """A handle that reads takes no entry, and its close changes nothing."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        ledger.append(b"x")
        reader = cluster.open_ledger_no_recovery(ledger.ledger)
        reader.close()

        assert "OPEN" == cluster.store.read(ledger.ledger).metadata.state
        for call in (reader.force, reader.write_explicit_lac, lambda: reader.append(b"y")):
            with pytest.raises(IllegalOperation, match="opened for reading"):
                call()

    def test_a_block_left_by_an_error_leaves_the_ledger_open(
        self, bkstore_cluster: ClusterFactory
    ) -> None:
        """As a client that died: the next one recovers it."""
        cluster = bkstore_cluster()

        def use(ledger: LedgerHandle) -> None:
            with ledger:
                ledger.append(b"kept")
                raise ZeroDivisionError

        ledger = cluster.create_ledger()
        with pytest.raises(ZeroDivisionError):
            use(ledger)

        assert "OPEN" == cluster.store.read(ledger.ledger).metadata.state
        assert b"kept" == cluster.open_ledger(ledger.ledger).read_last().payload

    def test_close_meets_a_recovery(self, bkstore_cluster: ClusterFactory) -> None:
        """A close after a recovery with the same end is fine; with another one it is told."""
        cluster = bkstore_cluster()
        writer, other = cluster.client("writer"), cluster.client("other")
        same, longer = writer.create_ledger(3, 3, 2), writer.create_ledger(3, 3, 2)
        for ledger in (same, longer):
            ledger.append(b"x")
        other.open_ledger(same.ledger)
        same.close()
        cluster.partition("bookie-2", "writer")
        cluster.partition("bookie-3", "writer")
        with pytest.raises(NotEnoughBookies):
            longer.append(b"one bookie has it")
        recovered = other.open_ledger(longer.ledger)

        assert 0 == same.metadata.last_entry_id
        assert (1, 18) == (recovered.last_add_confirmed, recovered.length)
        with pytest.raises(LedgerFenced, match="is CLOSED"):
            longer.close()

    def test_close_in_recovery(self, bkstore_cluster: ClusterFactory) -> None:
        """A writer does not close a ledger that another client is recovering."""
        from dataclasses import replace

        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        ledger.append(b"x")
        found = cluster.store.read(ledger.ledger)
        cluster.store.write(replace(found.metadata, state="IN_RECOVERY"), found.version)

        with pytest.raises(LedgerFenced, match="IN_RECOVERY"):
            ledger.close()
        assert 0 == cluster.open_ledger(ledger.ledger).last_add_confirmed

    def test_close_passes_over_other_changes(self, bkstore_cluster: ClusterFactory) -> None:
        """A change of the metadata that is not about the end is kept by the close."""
        from dataclasses import replace

        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        ledger.append(b"x")
        found = cluster.store.read(ledger.ledger)
        cluster.store.write(replace(found.metadata, custom_metadata={"a": b"b"}), found.version)
        ledger.close()
        kept = cluster.store.read(ledger.ledger).metadata

        assert ({"a": b"b"}, "CLOSED", 0) == (
            kept.custom_metadata,
            kept.state,
            kept.last_entry_id,
        )

    def test_delete(self, bkstore_cluster: ClusterFactory) -> None:
        """A deleted ledger is gone from the store at once, from bookies with their garbage."""
        cluster = bkstore_cluster()
        gone, kept = cluster.create_ledger(), cluster.create_ledger()
        gone.append_many([b"x"] * 6)
        kept.append_many([b"y"] * 6)
        cluster.delete_ledger(gone.ledger)

        assert gone.ledger in cluster.bookie("bookie-1").ledgers()

        reports = cluster.collect_garbage()

        assert {f"bookie-{n}": [gone.ledger] for n in (1, 2, 3)} == {
            name: report.deleted_ledgers for name, report in reports.items()
        }
        assert [[kept.ledger]] * 3 == [cluster.bookie(f"bookie-{n}").ledgers() for n in (1, 2, 3)]
        assert b"y" == kept.read_last().payload
        for call in (gone.close, lambda: gone.read_entry(0), lambda: cluster.delete_ledger(0)):
            with pytest.raises(NoSuchLedger):
                call()


class TestThreads:
    """One handle, several threads."""

    def test_appends_take_turns(self, bkstore_cluster: ClusterFactory) -> None:
        """Every append has an id of its own, and its own payload under it; reads go on."""
        ledger = bkstore_cluster().create_ledger(3, 2, 2)
        told: dict[int, bytes] = {}
        found: list[bytes] = []

        def write(name: int) -> None:
            for number in range(30):
                data = b"%d-%d" % (name, number)
                told[ledger.append(data)] = data

        def read() -> None:
            while ledger.last_add_confirmed < 80:
                last = ledger.last_add_confirmed
                if last >= 0:
                    found.append(ledger.read_entry(last).payload)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
        threads.append(threading.Thread(target=read))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert list(range(90)) == sorted(told)
        assert [told[entry] for entry in range(90)] == [e.payload for e in ledger.read(0, 89)]
        assert set(found) <= set(told.values())
