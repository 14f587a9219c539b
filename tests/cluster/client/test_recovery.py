"""Recovery: the last entry, fencing, writing again; all rules, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from bkstore.cluster import Client, Cluster, LedgerHandle
from bkstore.cluster.client.recovery import _Recovery
from bkstore.errors import (
    BookieUnavailable,
    LedgerFenced,
    NotEnoughBookies,
)
from bkstore.formats.entry import Entry, decode, encode
from bkstore.ids import LedgerId
from bkstore.testing.factories import ClusterFactory
from tests.cluster.client.calls import Calls
from tests.cluster.client.dead_writers import ABC, KEY, held, made, put


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

        assert ([], True) == recovery._read_window(range(1, 2))

        cluster.partition("bookie-2")
        with pytest.raises(NotEnoughBookies) as failed:
            recovery._read_window(range(1, 9))
        text = str(failed.value)

        assert "cannot determine whether entry 1 was acknowledged" in text
        assert "bookie-2: BookieUnavailable" in text
        assert "bookie-3: NoSuchEntry" in text
        found, ended = recovery._read_window(range(2))  # one bookie that has it is enough

        assert ([b"zero"], False) == ([entry.payload for entry in found], ended)

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
        last_told = ledger._access.read_length(1, [ledger.read_entry(2)])

        assert 3 == last_told
        assert 3 == ledger._access.read_length(1, [ledger.read_entry(1)])
        assert 3 == ledger._access.read_length(1)
        assert 0 == ledger._access.read_length(-1)

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
        recovery._read_window(range(1, 2))

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
        with pytest.raises(NotEnoughBookies, match="2 of 3 bookies have acknowledged it"):
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


class TestWindows:
    """Entries behind the LAC are looked for and written again many at a time."""

    def test_few_calls(self, bkstore_cluster: ClusterFactory) -> None:
        """300 entries that one bookie has are found, and written to the two others, by some tens
        of calls to each bookie; each tells the entry before it as LAC, and keeps its length."""
        cluster = bkstore_cluster()
        name = made(cluster, (3, 3, 2), (0, ABC))
        for entry in range(300):
            put(cluster, "bookie-2", 0, entry, -1, b"0123456789")
        calls = Calls(cluster)
        metadata = Client(cluster.store, calls.clients).open_ledger(name).metadata

        assert (299, 3000) == (metadata.last_entry_id, metadata.length)
        for bookie in ABC:
            assert list(range(300)) == held(cluster, bookie, name)
            assert len(calls.of(bookie)) < 50
        for bookie in ("bookie-1", "bookie-3"):
            record = decode(cluster.bookies[bookie].read_entry(name, 299), "CRC32C", b"")

            assert (298, 3000) == (record.lac, record.length)

    def test_a_gap_ends_it(self, bkstore_cluster: ClusterFactory) -> None:
        """What lies behind an entry that nobody has was not acknowledged, and is not taken in."""
        cluster = bkstore_cluster()
        name = made(cluster, (3, 3, 2), (0, ABC))
        for entry in (0, 1, 2, 4, 5):
            put(cluster, ABC[entry % 3], 0, entry, -1, b"0123456789")

        assert 2 == cluster.open_ledger(name).last_add_confirmed
        assert [0, 1, 2] == held(cluster, "bookie-1", name)

    def test_a_bookie_that_fails_in_a_window(self, bkstore_cluster: ClusterFactory) -> None:
        """The window is written entry by entry then: a new bookie has all from there on."""
        cluster = bkstore_cluster(4)
        adds = itertools.count()

        def fails(bookie: str, what: str) -> None:
            if (bookie, what) == ("bookie-3", "add_batch") and next(adds) == 1:
                cluster.stop("bookie-3")

        closed, _ = _watched(cluster, 2, 40, fails)

        assert (39, 400) == (closed.last_add_confirmed, closed.length)
        assert [0, 8] == [first for first, _ in closed.metadata.segments]
        assert list(range(8, 40)) == held(cluster, "bookie-4", closed.ledger)
        assert list(range(40)) == held(cluster, "bookie-2", closed.ledger)

    def test_a_silent_bookie_that_nobody_replaces(self, bkstore_cluster: ClusterFactory) -> None:
        """Its silence is waited for twice in a window, not once an entry; where its answer is
        needed for the acknowledgements it is asked all the same."""
        cluster = bkstore_cluster(3)

        def fails(bookie: str, what: str) -> None:
            if bookie == "bookie-3" and what.startswith("add"):
                raise BookieUnavailable("silent")

        closed, calls = _watched(cluster, 2, 100, fails)

        assert (99, 1000) == (closed.last_add_confirmed, closed.length)
        assert list(range(100)) == held(cluster, "bookie-2", closed.ledger)
        windows = calls.of("bookie-2", "add_batch")
        assert 2 * len(windows) >= len(calls.of("bookie-3", "add_entry", "add_batch"))

    def test_a_bookie_that_hangs(
        self, bkstore_cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A silence that takes its time is waited for twice, then not for ten times as long; after
        that the bookie is given entries again."""
        cluster = bkstore_cluster(3)
        clock = _Clock()
        monkeypatch.setattr("bkstore.cluster.client.recovery.time", clock)

        def fails(bookie: str, what: str) -> None:
            if (bookie, what) == ("bookie-2", "add_entry"):
                clock.now += 1.0  # beside one that is left alone entries are written one by one
            if bookie == "bookie-3" and what.startswith("add") and clock.now < 90:
                clock.now += 5.0
                raise BookieUnavailable("hangs")

        closed, calls = _watched(cluster, 2, 300, fails)

        assert 299 == closed.last_add_confirmed
        assert list(range(300)) == held(cluster, "bookie-2", closed.ledger)
        asked = calls.of("bookie-3", "add_entry", "add_batch")
        assert ["add_batch", "add_entry", "add_batch"] == asked
        assert list(range(248, 300)) == held(cluster, "bookie-3", closed.ledger)

    def test_a_bookie_that_answers_no_read(self, bkstore_cluster: ClusterFactory) -> None:
        """Once it was silent it is asked behind the others: in the last window, and no more."""

        def fails(bookie: str, what: str) -> None:
            if bookie == "bookie-2" and what.startswith("read"):
                raise BookieUnavailable("silent")

        closed, calls = _watched(bkstore_cluster(3), 2, 100, fails)

        assert 99 == closed.last_add_confirmed
        assert 2 == len(calls.of("bookie-2", "read_entry", "read_many"))

    def test_silence_of_a_moment(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that was silent once is asked again where too few others have the entry."""
        cluster = bkstore_cluster(3)
        adds = itertools.count()

        def fails(bookie: str, what: str) -> None:
            if (bookie, what) == ("bookie-3", "add_batch") and not next(adds):
                raise BookieUnavailable("silent")

        closed, _ = _watched(cluster, 3, 20, fails)

        assert 19 == closed.last_add_confirmed
        assert list(range(20)) == held(cluster, "bookie-3", closed.ledger)

    def test_large_entries(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie tells about a megabyte at a time: the rest of the window comes with the next."""
        cluster = bkstore_cluster()
        name = made(cluster, (3, 3, 2), (0, ABC))
        for entry in range(40):
            put(cluster, "bookie-1", 0, entry, -1, bytes(100_000))

        assert 39 == cluster.open_ledger(name).last_add_confirmed
        assert list(range(40)) == held(cluster, "bookie-3", name)


class _Clock:
    """Time that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now


def _watched(
    cluster: Cluster, ack_quorum: int, entries: int, before: Callable[[str, str], None]
) -> tuple[LedgerHandle, Calls]:
    """Recover a ledger of three bookies whose entries lie at the first only.

    Return the closed ledger and the calls; `before` is called ahead of each.
    """
    name = made(cluster, (3, 3, ack_quorum), (0, ABC))
    for entry in range(entries):
        put(cluster, "bookie-1", 0, entry, -1, b"0123456789")
    calls = Calls(cluster)
    calls.before = before
    return Client(cluster.store, calls.clients).open_ledger(name), calls
