"""Recovery: fencing, reading forward, writing again, closing; all rules, one by one."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from bkstore.cluster import Client, Cluster, LedgerHandle, MemoryStore
from bkstore.cluster.client.recovery import _Recovery, recover
from bkstore.errors import (
    BadVersion,
    IllegalOperation,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
)
from bkstore.formats.entry import Entry, decode, encode, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.testing.factories import ClusterFactory

KEY = master_key(b"")


def put(cluster: Cluster, bookie: str, ledger: int, entry: int, lac: int, data: bytes) -> None:
    """Store an entry of a dead writer at one bookie; its length is 10 a payload byte before."""
    record = encode(Entry(ledger, entry, lac, 10 * entry + len(data), data), "CRC32C", b"")
    cluster.bookies[bookie].add_entry(record, KEY)


def made(
    cluster: Cluster,
    numbers: tuple[int, int, int],
    *segments: tuple[int, tuple[str, ...]],
    **fields: Any,
) -> LedgerId:
    """Put the metadata of a ledger into the store, as its writer left them."""
    name = cluster.store.next_id()
    metadata = LedgerMetadata(
        name, *numbers, segments, digest_type="CRC32C", password=b"", **fields
    )
    cluster.store.create(metadata)
    return name


def held(cluster: Cluster, bookie: str, ledger: LedgerId) -> list[int]:
    """Return the entries that a bookie has."""
    return cluster.bookie(bookie).entries(ledger).tolist()


ABC = ("bookie-1", "bookie-2", "bookie-3")


class TestTheEnd:
    """Which entry is the last."""

    @pytest.mark.bkstore_storage
    def test_nothing_acknowledged_is_lost(self, bkstore_cluster: ClusterFactory) -> None:
        """All that was acknowledged is there, and the state, the last entry and the length."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 2, 2)
        ledger.append_many([b"%d" % number for number in range(12)])
        cluster.crash("bookie-1")
        found = cluster.client("other").open_ledger(ledger.ledger)

        assert [b"%d" % number for number in range(12)] == [e.payload for e in found.read(0, 11)]
        assert ("CLOSED", 11, 14) == (
            found.metadata.state,
            found.metadata.last_entry_id,
            found.metadata.length,
        )
        assert found.metadata == cluster.store.read(ledger.ledger).metadata
        assert [] == found.metadata.problems()

    def test_an_entry_at_one_bookie_is_kept(self, bkstore_cluster: ClusterFactory) -> None:
        """What any bookie has is in the ledger, and is written again to the whole write set."""
        cluster = bkstore_cluster()
        name = made(cluster, (3, 3, 2), (0, ABC))
        for bookie in ABC:
            put(cluster, bookie, 0, 0, -1, b"0123456789")
        put(cluster, "bookie-3", 0, 1, 0, b"abc")
        found = cluster.open_ledger(name)

        assert (1, 13) == (found.last_add_confirmed, found.length)
        for bookie in ABC:
            record = decode(cluster.bookies[bookie].read_entry(0, 1), "CRC32C")

            assert Entry(LedgerId.of(0), 1, 0, 13, b"abc") == record

    @pytest.mark.parametrize(
        ("numbers", "silent", "end"),
        [
            ((3, 3, 2), 0, -1),  # three say no: it was not acknowledged
            ((3, 3, 2), 1, -1),  # two say no, more than W - A = 1
            ((3, 3, 3), 0, -1),
            ((3, 3, 3), 2, -1),  # one says no, more than W - A = 0
            ((3, 3, 1), 0, -1),
        ],
    )
    def test_enough_say_no(
        self,
        bkstore_cluster: ClusterFactory,
        numbers: tuple[int, int, int],
        silent: int,
        end: int,
    ) -> None:
        """An entry was not acknowledged if more than W - A bookies do not have it."""
        cluster = bkstore_cluster()
        name = made(cluster, numbers, (0, ABC))
        for bookie in ABC[:silent]:
            cluster.partition(bookie)

        assert end == cluster.open_ledger(name).last_add_confirmed

    def test_not_enough_say_no(self, bkstore_cluster: ClusterFactory) -> None:
        """If W - A bookies or fewer do not have it and the rest is silent, nobody knows."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"zero")
        cluster.partition("bookie-1")
        recovery = _Recovery(ledger._access, ledger.metadata)

        assert recovery._find(1) is None

        cluster.partition("bookie-2")
        with pytest.raises(NotEnoughBookies) as failed:
            recovery._find(1)
        text = str(failed.value)

        assert "whether entry 1 was acknowledged is not known" in text
        assert "bookie-2: BookieUnavailable" in text
        assert "bookie-3: NoSuchEntry" in text
        assert recovery._find(0) is not None  # one bookie that has it is enough

    def test_damage_is_no_no(self, bkstore_cluster: ClusterFactory) -> None:
        """A damaged record is neither a yes nor a no; the recovery fails rather than cut it off."""
        cluster = bkstore_cluster()
        name = made(cluster, (3, 3, 2), (0, ABC))
        for bookie in ABC:
            put(cluster, bookie, 0, 0, -1, b"0123456789")
            put(cluster, bookie, 0, 1, 0, b"last")
        cluster.corrupt("bookie-1", 0, 1)
        cluster.corrupt("bookie-2", 0, 1)
        found = cluster.open_ledger(name)

        assert (1, 14) == (found.last_add_confirmed, found.length)
        assert b"last" == found.read_last().payload

        other = made(cluster, (3, 3, 2), (0, ABC))
        for bookie in ABC[:2]:
            put(cluster, bookie, other.ledger, 0, -1, b"acknowledged")
            cluster.corrupt(bookie, other, 0)
        with pytest.raises(NotEnoughBookies, match=r"whether entry 0 was .* CorruptionError"):
            cluster.open_ledger(other)

        assert "IN_RECOVERY" == cluster.store.read(other).metadata.state

    def test_lac_of_the_segment(self, bkstore_cluster: ClusterFactory) -> None:
        """Entries before the last segment are confirmed: none of them is looked for, though the
        bookies of the segment tell a lower LAC, or none."""
        cluster = bkstore_cluster(6)
        old, new = ABC, ("bookie-4", "bookie-5", "bookie-6")
        name = made(cluster, (3, 3, 2), (0, old), (3, new))
        for entry in range(3):
            for bookie in old:
                put(cluster, bookie, 0, entry, entry - 1, b"0123456789")
        for bookie in ("bookie-2", "bookie-3"):
            cluster.stop(bookie)
        found = cluster.open_ledger(name)

        assert (2, 30) == (found.last_add_confirmed, found.length)
        assert [(0, old), (3, new)] == [*found.metadata.segments]

    def test_length_of_the_lac(self, bkstore_cluster: ClusterFactory) -> None:
        """With nothing behind the LAC the length is that of its entry, however it is learnt."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2)
        for data in (b"a", b"bb", b"ccc"):
            ledger.append(data)
        last_told = ledger._access.length_at(1, [ledger.read_entry(2)])

        assert 3 == last_told
        assert 3 == ledger._access.length_at(1, [ledger.read_entry(1)])
        assert 3 == ledger._access.length_at(1)
        assert 0 == ledger._access.length_at(-1)

        for bookie in ABC:
            cluster.lose(bookie, 0, 2)
        found = cluster.open_ledger(0)

        assert (1, 3) == (found.last_add_confirmed, found.length)


class TestFencing:
    """Nobody writes behind a recovery's back."""

    @pytest.mark.bkstore_storage
    def test_every_bookie_is_fenced(self, bkstore_cluster: ClusterFactory) -> None:
        """Bookies of the last ensemble are fenced, those that do not know the ledger too; it
        survives a kill."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 2, 2)
        ledger.append(b"x")
        cluster.client("other").open_ledger(0)
        for name in ledger.metadata.segments[0].ensemble:
            cluster.crash(name)
            cluster.start(name)

            assert cluster.bookie(name).is_fenced(0)
        with pytest.raises(LedgerFenced):
            ledger.append(b"y")

    @pytest.mark.parametrize(
        ("numbers", "reachable"),
        [
            ((3, 2, 2), 2),  # any two neighbours: one of them at least
            ((3, 3, 2), 2),
            ((3, 3, 3), 1),  # A = W: one bookie is in the way of all
            ((3, 3, 1), 3),  # A = 1: each could acknowledge alone
            ((4, 3, 2), 3),
        ],
    )
    def test_coverage(
        self, bkstore_cluster: ClusterFactory, numbers: tuple[int, int, int], reachable: int
    ) -> None:
        """So many bookies have to be fenced that no write set has A left; one fewer is refused,
        and says who is missing."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(*numbers)
        bookies = ledger.metadata.segments[0].ensemble
        for name in bookies[reachable - 1 :]:
            cluster.partition(name)
        with pytest.raises(NotEnoughBookies, match=f"{bookies[-1]}: BookieUnavailable"):
            cluster.open_ledger(0)

        assert "IN_RECOVERY" == cluster.store.read(0).metadata.state

        cluster.heal(bookies[reachable - 1])

        assert -1 == cluster.open_ledger(0).last_add_confirmed
        assert "CLOSED" == cluster.store.read(0).metadata.state

    def test_a_fenced_writer_never_acknowledges(self, bkstore_cluster: ClusterFactory) -> None:
        """Also where it cannot reach those that are fenced: the metadata stop its new ensemble."""
        cluster = bkstore_cluster(6)
        writer, other = cluster.client("writer"), cluster.client("other")
        ledger = writer.create_ledger(3, 3, 2)
        ledger.append(b"x")
        bookies = ledger.metadata.segments[0].ensemble
        cluster.partition(bookies[0], "other")  # so that it is not fenced
        for name in bookies[1:]:
            cluster.partition(name, "writer")

        assert 0 == other.open_ledger(0).last_add_confirmed
        with pytest.raises(LedgerFenced, match="is CLOSED"):
            ledger.append(b"y")
        assert 0 == other.open_ledger(0).last_add_confirmed

    def test_reads_fence_too(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that was back in time for the reading forward is fenced by that."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"x")
        recovery = _Recovery(ledger._access, ledger.metadata)
        recovery._find(1)

        assert [True] * 3 == [cluster.bookie(name).is_fenced(0) for name in ABC]


class TestWritingAgain:
    """Recovered entries get their replicas."""

    def test_a_dead_bookie_is_replaced(self, bkstore_cluster: ClusterFactory) -> None:
        """From the first entry on that is written again the segment has another bookie."""
        cluster = bkstore_cluster(4)
        name = made(cluster, (3, 3, 2), (0, ABC))
        for entry in range(3):
            for bookie in ABC[:2]:
                put(cluster, bookie, 0, entry, 0, b"0123456789")
        cluster.stop("bookie-3")
        found = cluster.open_ledger(name)

        assert (2, 30) == (found.last_add_confirmed, found.length)
        assert [(0, ABC), (1, (*ABC[:2], "bookie-4"))] == [*found.metadata.segments]
        assert [1, 2] == held(cluster, "bookie-4", name)

    def test_in_place(self, bkstore_cluster: ClusterFactory) -> None:
        """A segment that begins at that entry is replaced."""
        cluster = bkstore_cluster(4)
        name = made(cluster, (3, 3, 2), (0, ABC))
        put(cluster, "bookie-1", 0, 0, -1, b"x")
        cluster.stop("bookie-2")
        found = cluster.open_ledger(name)

        assert [(0, ("bookie-1", "bookie-4", "bookie-3"))] == [*found.metadata.segments]
        assert [[0]] * 3 == [held(cluster, b, name) for b in ("bookie-1", "bookie-3", "bookie-4")]

    def test_reading_goes_on_where_the_writer_wrote(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that takes a dead one's place does not speak for it: its "no" does not count."""
        cluster = bkstore_cluster(4)
        name = made(cluster, (3, 3, 2), (0, ABC))
        for entry, bookies in enumerate((("bookie-1", "bookie-2"), ("bookie-2", "bookie-3"))):
            for bookie in bookies:
                put(cluster, bookie, 0, entry, -1, b"0123456789")
        cluster.stop("bookie-3")
        cluster.corrupt("bookie-2", 0, 1)
        with pytest.raises(NotEnoughBookies, match="bookie-3: BookieUnavailable"):
            cluster.open_ledger(name)

        assert [0] == held(cluster, "bookie-4", name)  # it was taken for entry 0

        cluster.start("bookie-3")
        found = cluster.open_ledger(name)

        assert (1, 20) == (found.last_add_confirmed, found.length)
        assert [(0, ABC)] == [*found.metadata.segments]

    def test_too_few_bookies(self, bkstore_cluster: ClusterFactory) -> None:
        """Where no A bookies take an entry the ledger stays in recovery; the next try ends it."""
        cluster = bkstore_cluster(3)
        name = made(cluster, (3, 3, 3), (0, ABC))
        put(cluster, "bookie-1", 0, 0, -1, b"x")
        cluster.stop("bookie-3")
        with pytest.raises(NotEnoughBookies, match="2 of 3 bookies took it"):
            cluster.open_ledger(name)
        metadata = cluster.store.read(name).metadata

        assert ("IN_RECOVERY", ((0, ABC),)) == (metadata.state, metadata.segments)

        cluster.start("bookie-3")

        assert 0 == cluster.open_ledger(name).last_add_confirmed
        assert [0] == held(cluster, "bookie-3", name)

    def test_records_are_verified(self, bkstore_cluster: ClusterFactory) -> None:
        """A LAC from a record with a wrong digest is not believed."""
        cluster = bkstore_cluster()
        name = made(cluster, (3, 3, 2), (0, ABC))
        record = encode(Entry(0, 9, 8, 0, b"forged"), "HMAC", b"guess")
        cluster.bookies["bookie-1"].add_entry(record, KEY)

        assert -1 == cluster.open_ledger(name).last_add_confirmed


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
        access = cluster.client("second")._opened(name, None, b"", 0)
        second = _Recovery(access, access.update(lambda m: replace(m, state="IN_RECOVERY")))
        second._fence()
        first = cluster.client("first").open_ledger(name)  # does not reach bookie-3
        found = second._find(0)
        cluster.stop("bookie-2")

        assert found is not None

        second._write_again(found)

        assert first.metadata == second._close(0, 1)
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
        with pytest.raises(IllegalOperation, match="changed during the recovery"):
            Client(slower, cluster.bookies).open_ledger(0)  # type: ignore[arg-type]

    def test_again_after_a_failure_anywhere(self, bkstore_cluster: ClusterFactory) -> None:
        """A recovery that was broken off at any entry is finished by the next one."""
        cluster = bkstore_cluster(3)
        for broken in range(4):
            name = made(cluster, (3, 3, 2), (0, ABC))
            for entry in range(3):
                put(cluster, "bookie-1", name.ledger, entry, -1, b"0123456789")
            access = cluster.client("dies")._opened(name, None, b"", 0)
            recovery = _Recovery(access, access.update(lambda m: replace(m, state="IN_RECOVERY")))
            last = recovery._fence()
            for entry in range(last + 1, broken):
                found = recovery._find(entry)

                assert found is not None

                recovery._write_again(found)

            closed = cluster.open_ledger(name)

            assert (2, 30) == (closed.last_add_confirmed, closed.length)

    def test_recover_returns_what_the_store_has(self, bkstore_cluster: ClusterFactory) -> None:
        """`recover` returns the closed metadata."""
        cluster = bkstore_cluster()
        ledger: LedgerHandle = cluster.create_ledger()
        ledger.append(b"x")
        metadata = recover(ledger._access)

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
