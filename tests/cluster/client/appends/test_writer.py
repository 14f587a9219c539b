"""What a writer does when bookies fail: acknowledgements, the end of a handle, forced entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bkstore.cluster import Client, ClientOptions
from bkstore.cluster.client.bookie_client import LacResponse
from bkstore.errors import (
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.options import StorageOptions
from bkstore.testing.factories import ClusterFactory
from tests.cluster.client.ensembles import ensemble, holders


class TestFailure:
    """An append that fails is the writer's last one."""

    def test_not_enough(self, bkstore_cluster: ClusterFactory) -> None:
        """Fewer than A acknowledgements: told with each bookie's answer, and never again."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"kept")
        cluster.stop("bookie-1", keep_registered=True)
        cluster.partition("bookie-3")
        with pytest.raises(NotEnoughBookies) as failed:
            ledger.append(b"lost")
        text = str(failed.value)

        assert "entry 1 of ledger 0: 1 of 2 bookies have acknowledged it" in text
        assert "bookie-1: BookieUnavailable: bookie-1 is down" in text
        assert "bookie-2: OK" in text
        assert "bookie-3: BookieUnavailable: bookie-3 cannot be reached" in text
        assert (1, 0, 4) == (ledger.last_add_pushed, ledger.last_add_confirmed, ledger.length)

        cluster.start("bookie-1")
        cluster.heal("bookie-3")
        for call in (
            lambda: ledger.append(b"again"),
            lambda: ledger.append_many([b"again"]),
            ledger.force,
            ledger.write_explicit_lac,
        ):
            with pytest.raises(IllegalOperation, match="failed with NotEnoughBookies"):
                call()
        assert b"kept" == ledger.read_last().payload

        ledger.close()

        assert (0, 4) == (ledger.metadata.last_entry_id, ledger.metadata.length)
        assert 0 == cluster.open_ledger(0).last_add_confirmed

    def test_fenced(self, bkstore_cluster: ClusterFactory) -> None:
        """One bookie that says "fenced" is enough to end the writer, whatever the others say."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"kept")
        one = ensemble(ledger)[2]
        cluster.bookie(one).fence(ledger.ledger, ledger._access.key)
        with pytest.raises(LedgerFenced, match=f"{one}: ledger 0 is fenced"):
            ledger.append(b"refused")

        assert 0 == ledger.last_add_confirmed
        for append in (ledger.append, lambda data: ledger.append_many([data])):
            with pytest.raises(LedgerFenced, match="failed with LedgerFenced"):
                append(b"again")

    @pytest.mark.parametrize("state", ["IN_RECOVERY", "CLOSED"])
    def test_no_change_behind_a_recovery(self, bkstore_cluster: ClusterFactory, state: Any) -> None:
        """Metadata that another client has taken over are not changed, and end the writer."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"kept")
        found = cluster.store.read(0)
        end = {"last_entry_id": 0, "length": 4} if state == "CLOSED" else {}
        taken = replace(found.metadata, state=state, **end)
        cluster.store.write(taken, found.version)
        cluster.stop(ensemble(ledger)[0])
        with pytest.raises(LedgerFenced, match=state):
            ledger.append(b"refused")

        assert taken == cluster.store.read(0).metadata
        assert 0 == ledger.last_add_confirmed

    def test_a_writer_that_knows_of_the_close(self, bkstore_cluster: ClusterFactory) -> None:
        """A writer whose read brought new metadata does not append to a ledger that is closed,
        not even to bookies that a recovery brought in, which are not fenced."""
        cluster = bkstore_cluster(6)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"kept")
        found = cluster.store.read(0)
        others = tuple(sorted(set(cluster.bookies) - set(ensemble(ledger))))
        closed = replace(found.metadata, state="CLOSED", last_entry_id=0, length=4)
        cluster.store.write(replace(closed, segments=[(0, others)]), found.version)
        with pytest.raises(Exception, match="entry 5"):
            ledger.read_unconfirmed(5, 5)

        assert others == ensemble(ledger)
        for append in (ledger.append, lambda data: ledger.append_many([data])):
            with pytest.raises(LedgerFenced):
                append(b"refused")
        assert set() == holders(cluster, ledger, 1)

    def test_deleted_meanwhile(self, bkstore_cluster: ClusterFactory) -> None:
        """A ledger that is gone from the store cannot change its ensemble."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        cluster.delete_ledger(0)
        cluster.stop(ensemble(ledger)[0])

        with pytest.raises(NoSuchLedger):
            ledger.append(b"x")
        with pytest.raises(IllegalOperation, match="failed with NoSuchLedger"):
            ledger.append(b"x")

    def test_changed_by_another(self, bkstore_cluster: ClusterFactory) -> None:
        """Other metadata of an open ledger are kept; a foreign ensemble ends the writer."""
        cluster = bkstore_cluster(5)
        ledger = cluster.create_ledger(3, 3, 2)
        found = cluster.store.read(0)
        cluster.store.write(replace(found.metadata, custom_metadata={"a": b"b"}), found.version)
        cluster.stop(ensemble(ledger)[0])
        ledger.append(b"zero")

        assert {"a": b"b"} == cluster.store.read(0).metadata.custom_metadata

        found = cluster.store.read(0)
        odd = (*found.metadata.segments, (1, ensemble(ledger)))
        cluster.store.write(replace(found.metadata, segments=odd), found.version)
        cluster.stop(ensemble(ledger)[1])
        with pytest.raises(IllegalOperation, match="another client changed its ensemble"):
            ledger.append(b"one")

    def test_another_key(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that knows the ledger under another key ends the writer."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2, ledger=7, password=b"old")
        ledger.append(b"x")
        cluster.delete_ledger(7)
        again = cluster.create_ledger(3, 3, 2, ledger=7, password=b"new")

        with pytest.raises(UnauthorizedAccess, match="another master key"):
            again.append(b"y")

    def test_too_large(self, bkstore_cluster: ClusterFactory) -> None:
        """What no frame takes is refused before anything is sent; what a bookie does not take
        ends the writer, for some may have it."""
        cluster = bkstore_cluster(
            4,
            client_options=ClientOptions(max_frame=1000),
            options=StorageOptions(max_entry_size=500),
        )
        ledger = cluster.create_ledger(3, 3, 2)
        for append in (ledger.append, lambda data: ledger.append_many([data])):
            with pytest.raises(InvalidArgument, match="exceeds the frame limit of 1000"):
                append(bytes(1000))

        assert 0 == ledger.append(b"still fine")
        with pytest.raises(InvalidArgument, match="the limit is 500"):
            ledger.append(bytes(600))
        with pytest.raises(IllegalOperation, match="failed with InvalidArgument"):
            ledger.append(b"x")
        assert [0] == [segment.first_entry for segment in ledger.metadata.segments]

    def test_interrupted(self, bkstore_cluster: ClusterFactory) -> None:
        """Whatever breaks an append off ends the writer: the entry may be somewhere."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        cluster.slow(ensemble(ledger)[1], 1)

        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        for name in cluster.bookies:
            cluster.bookies[name].server._sleep = interrupt
        with pytest.raises(KeyboardInterrupt):
            ledger.append(b"x")
        cluster.slow(ensemble(ledger)[1], 0)

        with pytest.raises(IllegalOperation, match="failed with KeyboardInterrupt"):
            ledger.append(b"other bytes under the same id")

    def test_an_iterator_that_fails(self, bkstore_cluster: ClusterFactory) -> None:
        """An error of the caller's own before anything is sent leaves the writer as it was."""

        def broken() -> Iterator[bytes]:
            yield b"x"
            raise ZeroDivisionError

        ledger = bkstore_cluster().create_ledger()
        with pytest.raises(ZeroDivisionError):
            ledger.append_many(broken())
        with pytest.raises(InvalidArgument):
            ledger.append("text")  # type: ignore[arg-type]

        assert 0 == ledger.append(b"x")


class TestWithoutSync:
    """Deferred sync: acknowledged from memory, confirmed by `force`."""

    def test_force(self, bkstore_cluster: ClusterFactory) -> None:
        """The LAC stays until `force` has made everything durable."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 2, 2)
        ledger.append(b"durable")
        ids = [ledger.append(b"in memory", sync=False), ledger.append(b"behind it")]

        assert [1, 2] == ids
        assert (2, 0, 7) == (ledger.last_add_pushed, ledger.last_add_confirmed, ledger.length)
        assert 2 == ledger.force()
        assert (2, 25) == (ledger.last_add_confirmed, ledger.length)

        for name in cluster.bookies:
            cluster.crash(name)
            cluster.start(name)

        assert 3 == ledger.append(b"next")
        assert b"behind it" == cluster.open_ledger(0).read_entry(2).payload

    def test_close_forces(self, bkstore_cluster: ClusterFactory) -> None:
        """A close makes durable first, and covers what was added without sync."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"a", sync=False)
        ledger.append_many([b"b", b"c"])
        ledger.close()
        for name in cluster.bookies:
            cluster.crash(name)
            cluster.start(name)

        assert (2, 3) == (ledger.metadata.last_entry_id, ledger.metadata.length)
        assert [b"a", b"b", b"c"] == [entry.payload for entry in ledger.read(0, 2)]

    def test_no_ensemble_change(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that fails while others have entries in memory only ends the writer."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"a")
        ledger.append(b"b", sync=False)
        cluster.stop(ensemble(ledger)[0])
        with pytest.raises(
            NotEnoughBookies, match="with unsynced entries the ensemble cannot change"
        ):
            ledger.append(b"c", sync=False)
        ledger.close()

        assert (0, 1) == (ledger.metadata.last_entry_id, ledger.metadata.length)

    def test_force_that_fails(self, bkstore_cluster: ClusterFactory) -> None:
        """Every bookie of the ensemble has to sync; one that does not ends the writer."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"a", sync=False)
        cluster.crash("bookie-2")
        with pytest.raises(NotEnoughBookies, match="bookie-2: BookieUnavailable"):
            ledger.force()
        cluster.start("bookie-2")

        assert -1 == ledger.last_add_confirmed
        with pytest.raises(IllegalOperation, match="failed with NotEnoughBookies"):
            ledger.force()


class TestExplicitLac:
    """Explicit LACs are written to a quorum."""

    def test_quorum(self, bkstore_cluster: ClusterFactory) -> None:
        """A of the W bookies of the last entry's write set have to take it."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"x")
        cluster.stop("bookie-1")

        assert 0 == ledger.write_explicit_lac()

        cluster.stop("bookie-2")
        with pytest.raises(NotEnoughBookies, match="1 of 2 bookies acknowledged the explicit LAC"):
            ledger.write_explicit_lac()


class TestOtherBookies:
    """Bookies that are not in this process need the protocol only."""

    def test_one_by_one_where_many_cannot_be_taken(self, bkstore_cluster: ClusterFactory) -> None:
        """A client without `add_batch` gets single adds, each of them synced."""
        cluster = bkstore_cluster(3)

        class Plain:
            """A bookie's client with nothing but the protocol."""

            def __init__(self, inner: Any) -> None:
                self.inner = inner
                self.added: list[bool] = []

            @property
            def bookie_id(self) -> str:
                return str(self.inner.bookie_id)

            @property
            def batch_reads(self) -> bool:
                return True

            def add_entry(
                self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
            ) -> int:
                self.added.append(sync)
                return int(self.inner.add_entry(record, master_key, recovery=recovery, sync=sync))

            def read_entry(self, *args: Any, **options: Any) -> bytes:
                return bytes(self.inner.read_entry(*args, **options))

            def read_entries(self, *args: Any, **options: Any) -> Any:
                return self.inner.read_entries(*args, **options)

            def read_lac(self, ledger: Any) -> LacResponse:
                found: LacResponse = self.inner.read_lac(ledger)
                return found

            def write_lac(self, ledger: Any, body: bytes, master_key: bytes) -> None:
                self.inner.write_lac(ledger, body, master_key)

            def force(self, ledger: Any) -> None:
                self.inner.force(ledger)

            def availability(self, ledger: Any) -> Any:
                return self.inner.availability(ledger)

        plain = {name: Plain(client) for name, client in cluster.bookies.items()}
        ledger = Client(cluster.store, plain).create_ledger(3, 3, 2)
        ledger.append_many([b"a", b"b"])
        metadata: LedgerMetadata = ledger.metadata

        assert [[True, True]] * 3 == [client.added for client in plain.values()]
        assert [b"a", b"b"] == [entry.payload for entry in ledger.read_batch(0)]
        assert 1 == len(metadata.segments)
