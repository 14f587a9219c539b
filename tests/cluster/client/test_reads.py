"""Reading ledgers of a cluster: replicas in order, what each answered, who follows."""

from __future__ import annotations

import pytest

from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    InvalidArgument,
    NoSuchEntry,
    NotEnoughBookies,
)
from bkstore.formats.entry import decode, encode_explicit_lac, master_key
from bkstore.ids import LedgerId
from bkstore.schedule import write_set
from bkstore.testing.factories import ClusterFactory

SCOPED = LedgerId(2**64 - 1, 2**63 + 5)
DATA = [b"zero", b"", b"two", b"three" * 50]


class TestReading:
    """Ranges, LACs, and readers that follow."""

    def test_ranges(self, bkstore_cluster: ClusterFactory) -> None:
        """A range is inclusive, not reversed, not negative, and ends at the LAC."""
        ledger = bkstore_cluster().create_ledger()
        for data in DATA:
            ledger.append(data)

        assert DATA[1:3] == [entry.payload for entry in ledger.read(1, 2)]
        assert DATA[3] == ledger.read_last().payload
        for first, last in ((2, 1), (-1, 0), (0, 4), (4, 4)):
            with pytest.raises(InvalidArgument):
                ledger.read(first, last)
        with pytest.raises(InvalidArgument, match="is beyond the LAC, 3"):
            ledger.read_entry(4)
        with pytest.raises(NoSuchEntry, match="entry 4 of ledger 0: bookie-"):
            ledger.read_unconfirmed(4, 4)

    def test_a_reader_follows(self, bkstore_cluster: ClusterFactory) -> None:
        """A reader knows what the last entry's LAC says; the writer goes on undisturbed."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        reader = cluster.client("reader").open_ledger_no_recovery(ledger.ledger)

        assert -1 == reader.last_add_confirmed

        for data in DATA[:3]:
            ledger.append(data)

        assert -1 == reader.last_add_confirmed
        assert 1 == reader.read_last_confirmed()
        assert (1, 4) == (reader.last_add_confirmed, reader.length)
        assert DATA[:3] == [entry.payload for entry in reader.read_unconfirmed(0, 2)]
        with pytest.raises(InvalidArgument):
            reader.read_entry(2)

        ledger.append(DATA[3])
        ledger.close()

        assert not reader.closed
        assert 3 == reader.read_last_confirmed()
        assert reader.closed
        assert (3, 257) == (reader.last_add_confirmed, reader.length)

    def test_explicit_lac(self, bkstore_cluster: ClusterFactory) -> None:
        """An explicit LAC tells readers of the last entry, with the ledger's digest."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(digest_type="HMAC", password=b"pw")
        reader = cluster.open_ledger_no_recovery(ledger.ledger, password=b"pw")
        for data in DATA:
            ledger.append(data)

        assert -1 == reader.read_explicit_lac()
        assert 3 == ledger.write_explicit_lac()
        assert 3 == reader.read_explicit_lac() == reader.read_last_confirmed()
        assert 257 == reader.length

        body = encode_explicit_lac(ledger.ledger, 3, "HMAC", b"pw")
        ensemble = ledger.metadata.segments[0].ensemble
        told = [cluster.bookie(name).state(ledger.ledger).explicit_lac for name in ensemble]

        assert [body if at in write_set(3, 3, 2) else None for at in range(3)] == told

    def test_a_reader_opens_what_is_damaged(self, bkstore_cluster: ClusterFactory) -> None:
        """An entry at the LAC that is lost keeps no reader out; only its length is not known."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2)
        for data in DATA:
            ledger.append(data)
        ledger.write_explicit_lac()
        for name in cluster.bookies:
            cluster.lose(name, 0, 3)
        reader = cluster.open_ledger_no_recovery(0)

        assert 3 == reader.last_add_confirmed
        assert DATA[:3] == [entry.payload for entry in reader.read(0, 2)]
        with pytest.raises(NoSuchEntry):
            assert reader.length

    def test_explicit_lac_of_a_forger(self, bkstore_cluster: ClusterFactory) -> None:
        """An explicit LAC with a wrong digest is no answer; too few others are told so."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(digest_type="HMAC", password=b"pw")
        ledger.append(b"one")
        forged = encode_explicit_lac(ledger.ledger, 99, "HMAC", b"guess")
        for client in cluster.bookies.values():
            client.write_lac(ledger.ledger, forged, master_key(b"pw"))

        with pytest.raises(NotEnoughBookies, match="digest of the explicit LAC"):
            cluster.open_ledger_no_recovery(ledger.ledger, password=b"pw")

    def test_lac_needs_coverage(self, bkstore_cluster: ClusterFactory) -> None:
        """With W = A = 2 of 3 one silent bookie is skipped, two are not; a writer knows."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger()
        ledger.append_many([b"x"] * 4)
        reader = cluster.open_ledger_no_recovery(ledger.ledger)
        cluster.partition("bookie-1")

        assert reader.read_last_confirmed() <= 3

        cluster.partition("bookie-2")
        with pytest.raises(NotEnoughBookies, match=r"bookie-2: BookieUnavailable"):
            reader.read_last_confirmed()
        with pytest.raises(NotEnoughBookies):
            cluster.open_ledger_no_recovery(ledger.ledger)
        assert 3 == ledger.read_last_confirmed()

    def test_a_reader_finds_a_new_ensemble(self, bkstore_cluster: ClusterFactory) -> None:
        """Where all replicas that a reader knows fail, it looks at the metadata again."""
        cluster = bkstore_cluster(5)
        ledger = cluster.create_ledger(2, 2, 1)
        ledger.append(b"zero")
        reader = cluster.client("reader").open_ledger_no_recovery(ledger.ledger)
        for name in ledger.metadata.segments[0].ensemble:
            cluster.stop(name)
        ledger.append(b"one")
        ledger.append(b"two")

        assert b"two" == reader.read_unconfirmed(2, 2)[0].payload
        assert 2 == len(reader.metadata.segments)

    def test_replicas_in_turn(self, bkstore_cluster: ClusterFactory) -> None:
        """The next replica is asked after damage, loss and silence; each answer is told."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"precious")
        first, second, third = ledger.metadata.segments[0].ensemble
        cluster.corrupt(first, ledger.ledger, 0)
        cluster.lose(second, ledger.ledger, 0)

        assert b"precious" == ledger.read_entry(0).payload

        cluster.partition(third)
        with pytest.raises(BookieUnavailable) as unavailable:
            ledger.read_entry(0)
        cluster.heal(third)
        cluster.lose(third, ledger.ledger, 0)
        with pytest.raises(CorruptionError, match=f"{second}: NoSuchEntry"):
            ledger.read_entry(0)
        cluster.lose(first, ledger.ledger, [0])
        with pytest.raises(NoSuchEntry):
            ledger.read_entry(0)

        text = str(unavailable.value)

        assert f"{first}: CorruptionError: " in text
        assert f"{second}: NoSuchEntry: " in text
        assert f"{third}: BookieUnavailable: {third} cannot be reached" in text

    def test_an_entry_in_the_wrong_place(self, bkstore_cluster: ClusterFactory) -> None:
        """A record that names another entry, or has another password's digest, is damage."""
        cluster = bkstore_cluster()
        ledger = cluster.create_ledger(3, 3, 2, password=b"pw", digest_type="HMAC")
        forger = cluster.create_ledger(3, 3, 2, password=b"guess", digest_type="HMAC")
        ledger.append(b"true")
        forger.append(b"false")
        record = cluster.bookies["bookie-1"].read_entry(forger.ledger, 0)
        made = bytes(8) + record[8:]

        assert b"false" in decode(made).payload
        with pytest.raises(CorruptionError, match="HMAC digest"):
            ledger._access.verify_record(made, 0)
        with pytest.raises(CorruptionError, match="entry 0, not 1"):
            ledger._access.verify_record(cluster.bookies["bookie-1"].read_entry(0, 0), 1)
