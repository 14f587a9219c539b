"""What a writer does when bookies fail: acknowledgements, ensemble changes, the end of a handle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bkstore.cluster import Client, ClientOptions, Cluster, LedgerHandle
from bkstore.cluster.client.bookie_client import LastConfirmed
from bkstore.cluster.placement.policies import DefaultPlacement
from bkstore.errors import (
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import write_set
from bkstore.storage.options import StorageOptions
from bkstore.testing.factories import ClusterFactory
from bkstore.testing.faults import FaultPlan


def ensemble(ledger: LedgerHandle) -> tuple[str, ...]:
    """Return the bookies that take entries now."""
    return ledger.metadata.segments[-1].ensemble


def holders(cluster: Cluster, ledger: LedgerHandle, entry: int) -> set[str]:
    """Return the bookies that have an entry, the reachable ones."""
    return {
        name
        for name, client in cluster.bookies.items()
        if client.server.running
        and client.server.bookie.ledger_exists(ledger.ledger)
        and client.server.bookie.entry_exists(ledger.ledger, entry)
    }


class TestEnsembleChange:
    """A bookie fails, another takes its place."""

    @pytest.mark.bkstore_storage
    @pytest.mark.parametrize("way", ["stop", "crash", "partition", "slow"])
    def test_a_new_segment(self, bkstore_cluster: ClusterFactory, way: str) -> None:
        """It begins at LAC + 1; the entry under way goes to the new bookie too."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"zero")
        ledger.append(b"one")
        before = ensemble(ledger)
        (spare,) = set(cluster.bookies) - set(before)
        if way == "slow":
            cluster.slow(before[1], 5)
        else:
            getattr(cluster, way)(before[1])

        assert 2 == ledger.append(b"two")
        assert [(0, before), (2, (before[0], spare, before[2]))] == [*ledger.metadata.segments]
        assert ledger.metadata == cluster.store.read(ledger.ledger).metadata
        assert {before[0], spare, before[2]} <= holders(cluster, ledger, 2)
        assert spare not in holders(cluster, ledger, 1)

    def test_replaced_in_place(self, bkstore_cluster: ClusterFactory) -> None:
        """With the same first entry as the last segment, the segment itself changes."""
        cluster = bkstore_cluster(5)
        ledger = cluster.create_ledger(3, 3, 2)
        first = ensemble(ledger)
        cluster.stop(first[0])
        ledger.append(b"zero")
        second = ensemble(ledger)

        assert [0] == [segment.first_entry for segment in ledger.metadata.segments]
        assert second[1:] == first[1:]
        assert second[0] not in first

        ledger.append(b"one")
        cluster.stop(second[1])
        cluster.stop(second[2])
        cluster.start(first[0])
        ledger.append(b"two")

        assert [0, 2] == [segment.first_entry for segment in ledger.metadata.segments]
        assert {second[0], first[0]} < set(ensemble(ledger))

    def test_the_new_bookie_fails_too(self, bkstore_cluster: ClusterFactory) -> None:
        """Registered but silent bookies are tried one by one, none of them twice for an entry."""
        cluster = bkstore_cluster(6)
        ledger = cluster.create_ledger(3, 3, 3)
        ledger.append(b"zero")
        spares = set(cluster.bookies) - set(ensemble(ledger))
        good = sorted(spares)[1]
        for name in spares - {good} | {ensemble(ledger)[2]}:
            cluster.partition(name)

        assert 1 == ledger.append(b"one")
        assert good == ensemble(ledger)[2]
        assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]
        assert set(ensemble(ledger)) == holders(cluster, ledger, 1)

    def test_nobody_is_tried_twice(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that failed at an entry is not offered to the policy again for it; with the
        next entry it has another chance."""
        offered: list[set[str]] = []

        class Recording(DefaultPlacement):
            def replace(self, *args: Any) -> tuple[str, ...]:
                offered.append(set(args[-1]))
                return super().replace(*args)

        cluster = bkstore_cluster(6, placement=Recording(seed=1))
        ledger = cluster.create_ledger(3, 3, 2)
        one, two, three = ensemble(ledger)
        spares = set(cluster.bookies) - {one, two, three}
        for name in spares | {two}:
            cluster.partition(name)
        ledger.append(b"two replicas")
        left = [len(found & spares) for found in offered]

        assert [3, 2, 1, 0] == left
        assert all(two not in found for found in offered)

        offered.clear()
        failing = ensemble(ledger)[1]
        ledger.append(b"again")

        assert set(cluster.bookies) - {failing} == offered[0]

    def test_bookies_that_are_not_asked_stay(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie outside of the write set is not missed before an entry is for it."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 2, 2)
        before = ensemble(ledger)
        cluster.stop(before[2])  # entry 0 goes to indexes 0 and 1
        ledger.append(b"zero")

        assert before == ensemble(ledger)
        assert [0, 1] == write_set(0, 3, 2)

        ledger.append(b"one")

        assert before != ensemble(ledger)
        assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]

    def test_as_many_as_there_are(self, bkstore_cluster: ClusterFactory) -> None:
        """Where there are fewer bookies than failed, those there are take a place."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        before = ensemble(ledger)
        (spare,) = set(cluster.bookies) - set(before)
        cluster.stop(before[0])
        cluster.stop(before[1])

        assert 0 == ledger.append(b"two replicas")
        assert {spare, before[2]} == holders(cluster, ledger, 0)
        assert (spare, before[1], before[2]) == ensemble(ledger)

    def test_enough_without_a_replacement(self, bkstore_cluster: ClusterFactory) -> None:
        """A of W acknowledgements are enough where no other bookie is left; nothing is written
        to the metadata, and the bookie is used again when it is back."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 3, 2)
        before = ledger.metadata
        cluster.stop("bookie-2")

        assert [0, 1] == [ledger.append(b"a"), ledger.append(b"b")]
        assert before == ledger.metadata == cluster.store.read(0).metadata
        assert {"bookie-1", "bookie-3"} == holders(cluster, ledger, 0)

        cluster.start("bookie-2")
        ledger.append(b"c")

        assert {"bookie-1", "bookie-2", "bookie-3"} == holders(cluster, ledger, 2)

    def test_delayed(self, bkstore_cluster: ClusterFactory) -> None:
        """With `delay_ensemble_change` a bookie is replaced when fewer than A are left."""
        cluster = bkstore_cluster(5, client_options=ClientOptions(delay_ensemble_change=True))
        ledger = cluster.create_ledger(3, 3, 2)
        before = ensemble(ledger)
        cluster.stop(before[0])
        ledger.append(b"zero")

        assert before == ensemble(ledger)

        cluster.stop(before[1])
        ledger.append(b"one")

        assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]
        assert before[2] == ensemble(ledger)[2]
        assert set() == {before[0], before[1]} & set(ensemble(ledger))
        assert set(ensemble(ledger)) == holders(cluster, ledger, 1)

    def test_a_late_add_is_over_replication(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that answered too late has the entry, and is no part of the ensemble."""
        waited: list[float] = []
        cluster = bkstore_cluster(4, sleep=waited.append, timeout=2.0)
        ledger = cluster.create_ledger(3, 3, 2)
        late = ensemble(ledger)[0]
        cluster.slow(late, 7)
        ledger.append(b"zero")

        assert [2.0] == waited
        assert late not in ensemble(ledger)
        assert {late, *ensemble(ledger)} == holders(cluster, ledger, 0)

    def test_slow_but_in_time(self, bkstore_cluster: ClusterFactory) -> None:
        """Below the timeout a slow bookie costs time only."""
        waited: list[float] = []
        cluster = bkstore_cluster(4, sleep=waited.append)
        ledger = cluster.create_ledger(3, 3, 3)
        before = ledger.metadata
        cluster.slow(ensemble(ledger)[0], 4.5)
        ledger.append(b"zero")
        ledger.append(b"one")
        cluster.slow(ensemble(ledger)[0], 0)
        ledger.append(b"two")

        assert [4.5, 4.5] == waited
        assert before == ledger.metadata

    def test_append_many_changes_ensembles(self, bkstore_cluster: ClusterFactory) -> None:
        """Many at once end up where one by one would have put them."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 2, 2)
        ledger.append_many([b"x"] * 5)
        gone = ensemble(ledger)[0]
        cluster.crash(gone)

        assert list(range(5, 35)) == ledger.append_many([b"y"] * 30).tolist()

        # Entry 5 is for indexes 2 and 0 (5 mod 3 = 2): the failure shows at once.
        assert [0, 5] == [segment.first_entry for segment in ledger.metadata.segments]
        for entry in range(5, 35):
            replicas = {ensemble(ledger)[index] for index in write_set(entry, 3, 2)}

            assert replicas <= holders(cluster, ledger, entry)
        assert [b"x"] * 5 + [b"y"] * 30 == [entry.payload for entry in ledger.read(0, 34)]

    def test_a_bookie_with_a_full_disk(
        self, bkstore_cluster: ClusterFactory, bkstore_faults: FaultPlan
    ) -> None:
        """A bookie that cannot write is replaced like one that is down."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"zero")
        before = ensemble(ledger)
        bkstore_faults.fail_sync()  # of the bookie that entry 1 is sent to first
        ledger.append(b"one")

        assert ["fail_sync"] == [fault.what for fault in bkstore_faults.done]
        assert before[1] not in ensemble(ledger)
        assert (before[0], before[2]) == (ensemble(ledger)[0], ensemble(ledger)[2])
        assert set(ensemble(ledger)) <= holders(cluster, ledger, 1)


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

        assert "entry 1 of ledger 0: 1 of 2 bookies took it" in text
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
            with pytest.raises(IllegalOperation, match="ended with NotEnoughBookies"):
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
            with pytest.raises(LedgerFenced, match="ended with LedgerFenced"):
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
        with pytest.raises(IllegalOperation, match="ended with NoSuchLedger"):
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
        with pytest.raises(IllegalOperation, match="another changed its ensemble"):
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
            with pytest.raises(InvalidArgument, match="a frame takes 1000"):
                append(bytes(1000))

        assert 0 == ledger.append(b"still fine")
        with pytest.raises(InvalidArgument, match="at most 500 are taken"):
            ledger.append(bytes(600))
        with pytest.raises(IllegalOperation, match="ended with InvalidArgument"):
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

        with pytest.raises(IllegalOperation, match="ended with KeyboardInterrupt"):
            ledger.append(b"other bytes under the same id")

    def test_an_iterator_that_fails(self, bkstore_cluster: ClusterFactory) -> None:
        """An error of the caller's own before anything is sent leaves the writer as it was."""

        def broken() -> Iterator[bytes]:
            yield b"x"
            raise ZeroDivisionError

        ledger = bkstore_cluster().create_ledger()
        with pytest.raises(ZeroDivisionError):
            ledger.append_many(broken())
        with pytest.raises(TypeError):
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
        with pytest.raises(NotEnoughBookies, match="without sync cannot change its ensemble"):
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
        with pytest.raises(IllegalOperation, match="ended with NotEnoughBookies"):
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
        with pytest.raises(NotEnoughBookies, match="1 of 2 bookies took the explicit LAC"):
            ledger.write_explicit_lac()


class TestOtherBookies:
    """Bookies that are not in this process need the protocol only."""

    def test_one_by_one_where_many_cannot_be_taken(self, bkstore_cluster: ClusterFactory) -> None:
        """A client without `add_entries` gets single adds, each of them synced."""
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

            def read_lac(self, ledger: Any) -> LastConfirmed:
                found: LastConfirmed = self.inner.read_lac(ledger)
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
