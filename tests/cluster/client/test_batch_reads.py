"""Batch reads by a client: the rules of BP-62, the fallbacks, and what upstream does otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bkstore.cluster import ClientOptions, Cluster, LedgerHandle
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    NoSuchEntry,
)
from bkstore.formats.entry import Entry
from bkstore.ids import LedgerId
from bkstore.testing.factories import ClusterFactory

ENTRIES = 20
SIZES = [40 + 7 * entry for entry in range(ENTRIES)]
RECORD = 36  # a version 1 header and a CRC32C digest


def payload(entry: int) -> bytes:
    """Return the payload of an entry: sizes grow."""
    return bytes([entry]) * SIZES[entry]


def fit(start: int, max_count: int, max_size: int, last: int = ENTRIES - 1) -> list[int]:
    """Return the entries that fit: 36 bytes, and 4 more than its record for each; 1 at least."""
    frame, found = 36, []
    for entry in range(start, last + 1):
        frame += 4 + RECORD + SIZES[entry]
        if found and (frame > max_size or (max_count and len(found) >= max_count)):
            break
        found.append(entry)
    return found


def written(
    cluster: Cluster, numbers: tuple[int, int, int] = (3, 3, 2), **options: Any
) -> LedgerHandle:
    """Return an open ledger with 20 entries."""
    ledger = cluster.create_ledger(*numbers, **options)
    ledger.append_many([payload(entry) for entry in range(ENTRIES)])
    return ledger


def ids(entries: list[Entry]) -> list[int]:
    """Return entry ids, with a look at the payloads."""
    assert [payload(entry.entry_id) for entry in entries] == [entry.payload for entry in entries]
    return [entry.entry_id for entry in entries]


def counted(cluster: Cluster) -> dict[str, list[str]]:
    """Return what each bookie is asked from now on: "batch" or "single"."""
    asked: dict[str, list[str]] = {}
    for name, client in cluster.bookies.items():
        server, calls = client.server, asked.setdefault(name, [])

        def call(_: str, work: Any, server: Any = server, calls: Any = calls) -> Any:
            names = work.__code__.co_names
            calls.append("batch" if "read_entries" in names else "single")
            return type(server).call(server, "", work)

        server.call = call  # type: ignore[method-assign, assignment]
    return asked


def total(asked: dict[str, list[str]]) -> list[str]:
    """Return what all bookies were asked, in no order of bookies."""
    return sorted(kind for calls in asked.values() for kind in calls)


BOTH: list[Callable[..., list[Entry]]] = [
    LedgerHandle.read_batch,
    LedgerHandle.read_batch_with_fallback,
]
UNCONFIRMED: list[Callable[..., list[Entry]]] = [
    LedgerHandle.read_batch_unconfirmed,
    LedgerHandle.read_batch_unconfirmed_with_fallback,
]
all_calls = pytest.mark.parametrize("read", BOTH + UNCONFIRMED)
both_calls = pytest.mark.parametrize("read", BOTH)


class TestOneRequest:
    """What an answer has in it."""

    @pytest.mark.bkstore_storage
    @all_calls
    def test_count_and_size(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """As many entries as count and size allow, from the one request that is made."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        asked = counted(cluster)
        cases = [(s, c, m) for s in (0, 7, 19) for c in (0, 1, 5, 99) for m in (0, 1, 400, 2000)]
        for start, count, size in cases:
            expected = fit(start, count, size or 5 << 20)

            assert expected == ids(read(ledger, start, count, size))
        assert ["batch"] * len(cases) == total(asked)

    @both_calls
    def test_frame_limit(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """A size of 0, or one beyond the frame limit, means the frame limit."""
        ledger = written(bkstore_cluster(client_options=ClientOptions(max_frame=1000)))
        for size in (0, 1000, 1001, 1 << 30):
            assert fit(0, 0, 1000) == ids(read(ledger, 0, 0, size))
        assert fit(0, 0, 999) == ids(read(ledger, 0, 0, 999))

    @all_calls
    def test_bad_numbers(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """A negative start, count or size is refused before anybody is asked."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        asked = counted(cluster)
        for numbers in ((-1, 1, 1), (0, -1, 1), (0, 1, -1)):
            with pytest.raises(InvalidArgument):
                read(ledger, *numbers)
        assert [] == total(asked)

    @pytest.mark.parametrize("numbers", [(3, 3, 2), (4, 3, 2)])
    def test_the_lac(self, bkstore_cluster: ClusterFactory, numbers: tuple[int, int, int]) -> None:
        """A confirmed read begins at the LAC at most and goes no further, however it is done; an
        unconfirmed one takes what is there."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(*numbers)
        for entry in range(5):
            ledger.append(payload(entry))
        reader = cluster.open_ledger_no_recovery(0)

        assert 3 == reader.last_add_confirmed
        assert [2, 3] == ids(reader.read_batch_with_fallback(2, 99))
        assert [2, 3] == ids(reader.read_batch_with_fallback(2))
        assert [2, 3, 4] == ids(reader.read_batch_unconfirmed_with_fallback(2))
        assert [2, 3, 4] == ids(reader.read_batch_unconfirmed_with_fallback(2, 99))
        if numbers[0] == numbers[1]:
            assert [2, 3] == ids(reader.read_batch(2, 99))
            assert [2, 3, 4] == ids(reader.read_batch_unconfirmed(2))
            with pytest.raises(NoSuchEntry, match="batch from entry 5"):
                reader.read_batch_unconfirmed(5)
        for read in BOTH:
            with pytest.raises(InvalidArgument, match="beyond the LAC, 3"):
                read(reader, 4)
        with pytest.raises(NoSuchEntry):
            reader.read_batch_unconfirmed_with_fallback(5)

    @both_calls
    def test_scopes_and_digests(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """128-bit ids and other digests change the sizes, and nothing else."""
        cluster = bkstore_cluster()
        name = LedgerId(2**63, 2**64 - 1)
        ledger = written(cluster, digest_type="HMAC", password=b"pw", ledger=name)
        record = len(cluster.bookies["bookie-1"].read_entry(name, 0))
        size = 36 + sum(4 + record - SIZES[0] + SIZES[entry] for entry in range(4))

        assert 41 + 20 + SIZES[0] == record
        assert [0, 1, 2, 3] == ids(read(ledger, 0, 0, size))
        assert [0, 1, 2] == ids(read(ledger, 0, 0, size - 1))


class TestReplicas:
    """Who is asked, and who next."""

    @both_calls
    def test_in_write_set_order(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """The first bookie of the write set of `start` is asked, and nobody else."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        bookies = ledger.metadata.segments[0].ensemble
        for start in range(3):
            asked = counted(cluster)
            read(ledger, start)

            assert ["batch"] == asked[bookies[start]] == total(asked)

    @both_calls
    @pytest.mark.parametrize("fault", ["stop", "partition", "lose", "corrupt", "header", "slow"])
    def test_the_next_one(self, bkstore_cluster: ClusterFactory, read: Any, fault: str) -> None:
        """A bookie that fails at the first entry is skipped; that is no lack of support."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        first = ledger.metadata.segments[0].ensemble[1]
        if fault == "lose":
            cluster.lose(first, 0, 4)
        elif fault == "corrupt":
            cluster.corrupt(first, 0, 4)
        elif fault == "header":
            cluster.corrupt(first, 0, 4, "header")
        elif fault == "slow":
            cluster.slow(first, 99)
        else:
            getattr(cluster, fault)(first)

        assert list(range(4, 9)) == ids(read(ledger, 4, 5))
        assert list(range(5, 9)) == ids(ledger.read_batch(5, 4))

    @both_calls
    @pytest.mark.parametrize("part", ["payload", "header"])
    def test_late_damage(self, bkstore_cluster: ClusterFactory, read: Any, part: Any) -> None:
        """Damage behind the first entry ends the batch with what is verified; the next call, which
        begins there, has it from another replica."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        cluster.corrupt(ledger.metadata.segments[0].ensemble[0], 0, 6, part)

        assert [3, 4, 5] == ids(read(ledger, 3))
        assert list(range(6, 20)) == ids(read(ledger, 6))

    @both_calls
    def test_late_gap(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """So does an entry that the bookie lacks."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        cluster.lose(ledger.metadata.segments[0].ensemble[0], 0, [5, 6])

        assert [3, 4] == ids(read(ledger, 3))

    @both_calls
    def test_nobody(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """If no replica has the first entry, the error says what each of them answered."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        first, second, third = ledger.metadata.segments[0].ensemble
        cluster.lose(first, 0, 0)
        cluster.corrupt(second, 0, 0)
        cluster.stop(third)
        with pytest.raises(BookieUnavailable, match=f"{first}: NoSuchEntry"):
            read(ledger, 0)
        cluster.start(third)
        cluster.lose(third, 0, 0)
        with pytest.raises(CorruptionError, match=f"{third}: NoSuchEntry"):
            read(ledger, 0)
        cluster.lose(second, 0, 0)
        with pytest.raises(NoSuchEntry):
            read(ledger, 0)

    @both_calls
    def test_segment_of_the_start(self, bkstore_cluster: ClusterFactory, read: Any) -> None:
        """Bookies of the start's segment are asked; those of the next one may have no more."""
        cluster = bkstore_cluster(6)
        ledger = cluster.create_ledger(3, 3, 3)
        for entry in range(4):
            ledger.append(payload(entry))
        old = ledger.metadata.segments[0].ensemble
        for name in old:
            cluster.partition(name)
        for entry in range(4, 8):
            ledger.append(payload(entry))
        for name in old:
            cluster.heal(name)

        assert [0, 4] == [segment.first_entry for segment in ledger.metadata.segments]
        assert set() == set(old) & set(ledger.metadata.segments[1].ensemble)
        assert [2, 3] == ids(read(ledger, 2))
        assert [4, 5, 6, 7] == ids(read(ledger, 4))

    @all_calls
    @pytest.mark.parametrize("numbers", [(3, 3, 2), (3, 2, 2)])
    def test_fencing(
        self, bkstore_cluster: ClusterFactory, read: Any, numbers: tuple[int, int, int]
    ) -> None:
        """With `fence` the bookie that answers fences the ledger, without it nobody does."""
        cluster = bkstore_cluster()
        ledger = written(cluster, numbers)
        plain = read in (LedgerHandle.read_batch, LedgerHandle.read_batch_unconfirmed)
        if plain and numbers[0] != numbers[1]:
            return
        read(ledger, 3, 1)

        assert not any(cluster.bookie(name).is_fenced(0) for name in cluster.bookies)
        assert [3] == ids(read(ledger, 3, 1, fence=True))

        first = ledger.metadata.segments[0].ensemble[0]

        assert [first] == [name for name in cluster.bookies if cluster.bookie(name).is_fenced(0)]


class TestFallback:
    """When single reads take over, and when there is an error instead."""

    def test_striped(self, bkstore_cluster: ClusterFactory) -> None:
        """E > W: the plain call refuses, the other reads singly; nobody is asked for batches."""
        cluster = bkstore_cluster()
        ledger = written(cluster, (3, 2, 2))
        asked = counted(cluster)

        assert list(range(4, 9)) == ids(ledger.read_batch_with_fallback(4, 5))
        assert ["single"] * 5 == total(asked)
        for read in (ledger.read_batch, ledger.read_batch_unconfirmed):
            with pytest.raises(IllegalOperation, match="striped: 2 of 3 bookies have an entry"):
                read(4, 5)
        assert ["single"] * 5 == total(asked)

    def test_switched_off(self, bkstore_cluster: ClusterFactory) -> None:
        """`batch_reads` off at the client: the same."""
        cluster = bkstore_cluster(client_options=ClientOptions(batch_reads=False))
        ledger = written(cluster)
        asked = counted(cluster)

        assert list(range(4, 9)) == ids(ledger.read_batch_with_fallback(4, 5))
        with pytest.raises(IllegalOperation, match="disabled"):
            ledger.read_batch(4, 5)
        assert ["single"] * 5 == total(asked)

    def test_unsupported(self, bkstore_cluster: ClusterFactory) -> None:
        """No bookie knows batch reads: found out once, remembered by the handle for good."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        other = cluster.open_ledger_no_recovery(0)
        for name in cluster.bookies:
            cluster.set_batch_reads(name, False)

        assert [4, 5] == ids(ledger.read_batch_with_fallback(4, 2))

        for name in cluster.bookies:
            cluster.set_batch_reads(name, True)
        asked = counted(cluster)

        assert [4, 5] == ids(ledger.read_batch_with_fallback(4, 2))
        assert ["single", "single"] == total(asked)
        with pytest.raises(IllegalOperation, match="bookie-1 does not support batch reads"):
            ledger.read_batch(4, 2)
        assert [4, 5] == ids(other.read_batch(4, 2))  # another handle, another memory
        assert ["batch", "single", "single"] == total(asked)

    def test_unsupported_by_the_plain_call(self, bkstore_cluster: ClusterFactory) -> None:
        """The plain call finds out as well, and tells each bookie's answer."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        for name in cluster.bookies:
            cluster.set_batch_reads(name, False)
        with pytest.raises(IllegalOperation, match=r"batch from entry 4 .* bookie-2: IllegalOp"):
            ledger.read_batch(4)
        for name in cluster.bookies:
            cluster.set_batch_reads(name, True)
        with pytest.raises(IllegalOperation, match="does not support batch reads"):
            ledger.read_batch(4)

    def test_some_support_is_enough(self, bkstore_cluster: ClusterFactory) -> None:
        """An old server among new ones is skipped like one that failed."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        first = ledger.metadata.segments[0].ensemble[0]
        cluster.set_batch_reads(first, False)

        assert fit(0, 0, 5 << 20) == ids(ledger.read_batch(0))
        assert fit(0, 0, 5 << 20) == ids(ledger.read_batch_with_fallback(0))
        assert list(range(1, 20)) == ids(ledger.read_batch(1))

    def test_down_is_not_old(self, bkstore_cluster: ClusterFactory) -> None:
        """Bookies that are merely down cost no later batch read."""
        cluster = bkstore_cluster()
        ledger = written(cluster)
        for name in cluster.bookies:
            cluster.partition(name)
        for read in (ledger.read_batch, ledger.read_batch_with_fallback):
            with pytest.raises(BookieUnavailable):
                read(0)
        for name in cluster.bookies:
            cluster.heal(name)
        asked = counted(cluster)

        assert ENTRIES == len(ledger.read_batch(0))
        assert ["batch"] == total(asked)

    def test_count_and_size(self, bkstore_cluster: ClusterFactory) -> None:
        """The fallback gives what a batch would: count and size hold, count 0 is no limit."""
        ledger = written(bkstore_cluster(), (3, 2, 2))
        for start in (0, 7, 19):
            for count in (0, 1, 5, 99):
                for size in (0, 1, 400, 2000):
                    expected = fit(start, count, size or 5 << 20)
                    read = ledger.read_batch_with_fallback(start, count, size)
                    unconfirmed = ledger.read_batch_unconfirmed_with_fallback(start, count, size)

                    assert expected == ids(read) == ids(unconfirmed)

    @pytest.mark.parametrize("scope", [0, 5])
    def test_sizes_to_the_byte(self, bkstore_cluster: ClusterFactory, scope: int) -> None:
        """What fills the size exactly comes, and one byte less keeps the last entry out.

        A frame has 36 bytes, and 4 more than each record, whose header has 32 bytes (41 in
        another scope) and whose digest has 4.
        """
        cluster = bkstore_cluster()
        ledgers = [written(cluster, numbers, scope=scope) for numbers in ((3, 3, 2), (3, 2, 2))]
        for start, count in ((0, 1), (0, 2), (3, 5), (17, 3)):
            record = 4 + (41 if scope else 32) + 4
            exact = 36 + sum(record + size for size in SIZES[start : start + count])
            for ledger in ledgers:  # of the first in a batch, of the striped one singly
                for size, expected in ((exact, count), (exact - 1, count - 1)):
                    found = ids(ledger.read_batch_with_fallback(start, 0, size))

                    assert list(range(start, start + max(expected, 1))) == found

    def test_damage(self, bkstore_cluster: ClusterFactory) -> None:
        """The first entry has to be readable; damage to all replicas of a later one ends it."""
        cluster = bkstore_cluster()
        ledger = written(cluster, (3, 2, 2))
        bookies = ledger.metadata.segments[0].ensemble
        cluster.corrupt(bookies[0], 0, 6)  # entry 6 is at indexes 0 and 1

        assert [5, 6, 7] == ids(ledger.read_batch_with_fallback(5, 3))

        cluster.corrupt(bookies[1], 0, 6)

        assert [4, 5] == ids(ledger.read_batch_with_fallback(4, 4))
        with pytest.raises(CorruptionError, match="entry 6 of ledger 0"):
            ledger.read_batch_with_fallback(6, 4)

    def test_across_segments(self, bkstore_cluster: ClusterFactory) -> None:
        """Single reads know every entry's own segment."""
        cluster = bkstore_cluster(6)
        ledger = cluster.create_ledger(4, 2, 2)
        for entry in range(4):
            ledger.append(payload(entry))
        for name in ledger.metadata.segments[0].ensemble[:2]:
            cluster.stop(name)
        for entry in range(4, 10):
            ledger.append(payload(entry))
        for name in ledger.metadata.segments[0].ensemble[:2]:
            cluster.start(name)

        assert 1 < len(ledger.metadata.segments)
        assert list(range(2, 10)) == ids(ledger.read_batch_with_fallback(2))


class TestAsUpstream:
    """What ``compat="bookkeeper"`` does otherwise."""

    COMPAT = ClientOptions(compat="bookkeeper")

    def test_fallback_range(self, bkstore_cluster: ClusterFactory) -> None:
        """The fallback takes no notice of the size, and a count of 0 gives nothing."""
        ledger = written(bkstore_cluster(client_options=self.COMPAT), (3, 2, 2))

        assert list(range(4, 9)) == ids(ledger.read_batch_with_fallback(4, 5, 1))
        assert list(range(15, 20)) == ids(ledger.read_batch_with_fallback(15, 99, 1))
        assert [] == ledger.read_batch_with_fallback(4, 0)
        assert [] == ledger.read_batch_unconfirmed_with_fallback(4, 0)
        with pytest.raises(NoSuchEntry, match="entry 20"):
            ledger.read_batch_unconfirmed_with_fallback(18, 5)

    def test_all_or_nothing(self, bkstore_cluster: ClusterFactory) -> None:
        """One entry of the range that cannot be read fails the whole of it."""
        cluster = bkstore_cluster(client_options=self.COMPAT)
        ledger = written(cluster, (3, 2, 2))
        for bookie in ledger.metadata.segments[0].ensemble[:2]:
            cluster.corrupt(bookie, 0, 6)

        with pytest.raises(CorruptionError, match="entry 6"):
            ledger.read_batch_with_fallback(4, 4)

    def test_down_is_taken_for_old(self, bkstore_cluster: ClusterFactory) -> None:
        """Bookies that are down mark the handle: single reads for good."""
        cluster = bkstore_cluster(client_options=self.COMPAT)
        ledger = written(cluster)
        for name in cluster.bookies:
            cluster.partition(name)
        with pytest.raises(BookieUnavailable):
            ledger.read_batch_with_fallback(0, 2)
        for name in cluster.bookies:
            cluster.heal(name)
        asked = counted(cluster)

        assert [0, 1] == ids(ledger.read_batch_with_fallback(0, 2))
        assert ["single", "single"] == total(asked)

    def test_unknown_compat(self) -> None:
        """There is one compat mode; a frame has room for something."""
        with pytest.raises(InvalidArgument, match="None or 'bookkeeper'"):
            ClientOptions(compat="4.17")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="max_frame"):
            ClientOptions(max_frame=0)
