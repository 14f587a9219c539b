"""BookieClientSuite: the contract of `BookieClient` as tests for any client of a bookie. Subclass
it in a test module and define how a bookie is served; pytest collects the tests:

    class TestMine(BookieClientSuite):
        def serve(self, path):
            return MyServedBookie(path)
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from bkstore import errors
from bkstore.availability import Availability
from bkstore.cluster.client.bookie_client import BatchAdder, BookieClient, LacResponse
from bkstore.formats.entry import Coder, Entry, RecordBatch, encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike

KEY = b"k" * 20
OTHER_KEY = b"o" * 20
SCOPED_LEDGER = LedgerId(2**64 - 1, 2**63 + 5)

_CODER = Coder("CRC32C", "pw")


class ServedBookie(Protocol):
    """A new bookie for one test, and a client of it."""

    client: BookieClient

    def stop(self) -> None:
        """Stop serving the bookie, which keeps its data."""
        ...

    def start(self) -> None:
        """Serve it again at the same address."""
        ...

    def close(self) -> None:
        """Close the client and the bookie."""
        ...


def _encode_record(entry: int, payload: bytes = b"payload", ledger: LedgerLike = 7) -> bytes:
    return _CODER.encode(Entry(ledger, entry, entry - 1, len(payload) * (entry + 1), payload))


def _encode_batch(first: int, count: int, ledger: LedgerLike = 7, size: int = 20) -> RecordBatch:
    payloads = [bytes([entry % 251]) * size for entry in range(first, first + count)]
    entries = np.arange(first, first + count)
    return _CODER.encode_batch(ledger, entries, payloads, lac=entries - 1, length=first * size)


class BookieClientSuite:
    """The contract of a bookie's client, over a real bookie; subclass it with `serve`. `scopes`:
    whether it supports ledgers of scopes other than 0; `batches`: batch reads."""

    scopes = True
    batches = True

    def serve(self, path: Path) -> ServedBookie:
        """Return a new, served bookie with its files below `path`, and a client of it."""
        pytest.fail(f"{type(self).__name__} does not define serve()")

    @pytest.fixture
    def served(self, tmp_path: Path) -> Iterator[ServedBookie]:
        """Yield a served bookie; close it after the test."""
        bookie = self.serve(tmp_path)
        try:
            yield bookie
        finally:
            bookie.close()

    @pytest.fixture
    def client(self, served: ServedBookie) -> BookieClient:
        """Return a client of a new bookie."""
        return served.client

    def test_implements_the_protocols(self, client: BookieClient) -> None:
        """The client has all calls, `add_batch` and a bookie id."""
        assert isinstance(client, BookieClient)
        assert isinstance(client, BatchAdder)
        assert isinstance(client.bookie_id, str)
        assert client.batch_reads is self.batches

    def test_first_add_creates_the_ledger(self, client: BookieClient) -> None:
        """A ledger exists from its first add on, with the master key of that add."""
        with pytest.raises(errors.NoSuchLedger):
            client.read_entry(7, 0)

        assert 3 == client.add_entry(_encode_record(3), KEY)
        assert _encode_record(3) == client.read_entry(7, 3)
        with pytest.raises(errors.UnauthorizedAccess):
            client.add_entry(_encode_record(4), OTHER_KEY)
        with pytest.raises(errors.NoSuchEntry):
            client.read_entry(7, 4)

    def test_entries_in_any_order(self, client: BookieClient) -> None:
        """Entries are read byte for byte as added; -1 reads the one with the highest id."""
        records = {entry: _encode_record(entry, bytes(entry)) for entry in (5, 0, 300, 7)}
        for record in records.values():
            client.add_entry(record, KEY)

        assert records == {entry: client.read_entry(7, entry) for entry in records}
        assert records[300] == client.read_entry(7, -1)
        with pytest.raises(errors.NoSuchEntry):
            client.read_entry(7, 6)

    def test_large_records(self, client: BookieClient) -> None:
        """Records of several megabytes are added and read whole."""
        large = _encode_record(0, bytes(range(256)) * 16000)
        client.add_entry(large, KEY)

        assert large == client.read_entry(7, 0)

    def test_batches_of_adds(self, client: BookieClient) -> None:
        """`add_batch` stores all of its records, even thousands."""
        assert isinstance(client, BatchAdder)
        batch = _encode_batch(0, 3000)
        client.add_batch(batch, KEY)
        client.add_batch(RecordBatch.of([], []), KEY)

        assert 3000 == len(client.availability(7))
        for entry in (0, 1, 255, 256, 257, 2999):
            assert bytes(batch[entry]) == client.read_entry(7, entry)

    def test_a_batch_of_adds_that_is_refused(self, client: BookieClient) -> None:
        """The error is that of a single add, and has the number of records certainly stored."""
        assert isinstance(client, BatchAdder)
        client.add_batch(_encode_batch(0, 10), KEY)
        with pytest.raises(errors.UnauthorizedAccess) as caught:
            client.add_batch(_encode_batch(10, 10), OTHER_KEY)

        assert 0 == caught.value.stored
        assert Availability.from_entries(range(10)) == client.availability(7)

    def test_adds_without_sync(self, client: BookieClient) -> None:
        """Adds without sync can be read at once; `force` makes them durable."""
        client.add_entry(_encode_record(0), KEY, sync=False)
        client.add_entry(_encode_record(1), KEY, sync=False)

        assert _encode_record(1) == client.read_entry(7, 1)

        client.force(7)
        client.force(8)  # does nothing for an unknown ledger

    def test_fencing(self, client: BookieClient) -> None:
        """A fenced ledger accepts recovery adds only, and is read as before."""
        client.add_entry(_encode_record(0), KEY)

        assert _encode_record(0) == client.read_entry(7, -1, fence=True, master_key=KEY)
        with pytest.raises(errors.LedgerFenced):
            client.add_entry(_encode_record(1), KEY)
        assert 1 == client.add_entry(_encode_record(1), KEY, recovery=True)
        with pytest.raises(errors.UnauthorizedAccess):
            client.add_entry(_encode_record(2), OTHER_KEY, recovery=True)
        with pytest.raises(errors.LedgerFenced):
            client.add_entry(_encode_record(2), KEY)
        assert _encode_record(1) == client.read_entry(7, -1, fence=True, master_key=KEY)

    def test_fencing_needs_the_key(self, client: BookieClient) -> None:
        """A fencing read without a key or with a wrong one raises, and does not fence."""
        client.add_entry(_encode_record(0), KEY)
        with pytest.raises(errors.InvalidArgument):
            client.read_entry(7, 0, fence=True)
        with pytest.raises(errors.UnauthorizedAccess):
            client.read_entry(7, 0, fence=True, master_key=OTHER_KEY)

        assert 1 == client.add_entry(_encode_record(1), KEY)

    def test_a_missing_entry_is_fenced_too(self, client: BookieClient) -> None:
        """A fencing read of a missing entry fences, too; an unknown ledger is created fenced."""
        client.add_entry(_encode_record(0), KEY)
        with pytest.raises(errors.NoSuchEntry):
            client.read_entry(7, 9, fence=True, master_key=KEY)
        with pytest.raises(errors.NoSuchEntry):
            client.read_entry(8, 0, fence=True, master_key=KEY)
        for ledger in (7, 8):
            with pytest.raises(errors.LedgerFenced):
                client.add_entry(_encode_record(1, ledger=ledger), KEY)

    def test_a_batch_read_fences(self, client: BookieClient) -> None:
        """A batch read fences if asked to, which needs the master key."""
        if not self.batches:
            pytest.skip("no batch reads")
        client.add_entry(_encode_record(0), KEY)

        assert [_encode_record(0)] == client.read_entries(
            7, 0, fence=True, master_key=KEY
        ).records()
        with pytest.raises(errors.LedgerFenced):
            client.add_entry(_encode_record(1), KEY)
        with pytest.raises(errors.InvalidArgument):
            client.read_entries(7, 0, fence=True)

    def test_batch_reads(self, client: BookieClient) -> None:
        """A batch read returns consecutive entries up to a gap, a count or a size (BP-62)."""
        records = {entry: _encode_record(entry, bytes(10)) for entry in (0, 1, 2, 3, 5, 6)}
        for record in records.values():
            client.add_entry(record, KEY)
        if not self.batches:
            with pytest.raises(errors.IllegalOperation):
                client.read_entries(7, 0)
            return
        # `max_size` counts 36 bytes for the response's header, and 4 for the size of each record.
        size_of_two = 36 + 2 * (4 + len(records[0]))

        def read(start: int, max_count: int = 0, max_size: int = 0) -> list[int]:
            batch = client.read_entries(7, start, max_count, max_size)
            ids: list[int] = batch.entries.tolist()

            assert [records[entry] for entry in ids] == batch.records()

            return ids

        assert [0, 1, 2, 3] == read(0)
        assert [1, 2, 3] == read(1, max_count=50, max_size=1 << 20)
        assert [0, 1] == read(0, max_count=2)
        assert [5, 6] == read(5, max_count=2)
        assert [0] == read(0, max_size=1)  # one entry at least
        assert [0, 1] == read(0, max_size=size_of_two)
        assert [0] == read(0, max_size=size_of_two - 1)
        assert [6] == read(-1, max_count=3)  # -1 is the last entry
        with pytest.raises(errors.NoSuchEntry):
            client.read_entries(7, 4)
        with pytest.raises(errors.NoSuchLedger):
            client.read_entries(8, 0)
        with pytest.raises(errors.InvalidArgument):  # a negative count
            client.read_entries(7, 0, -1)

    def test_a_batch_as_large_as_a_frame(self, client: BookieClient) -> None:
        """Without limits a batch read returns as many entries as fit in a frame of 5 MiB."""
        if not self.batches:
            pytest.skip("no batch reads")
        batch = _encode_batch(0, 70, size=100_000)
        assert isinstance(client, BatchAdder)
        client.add_batch(batch, KEY)
        answer = client.read_entries(7, 0)

        # In the frame, 4 bytes with its size are before each record.
        assert (5 << 20) // (int(batch.sizes[0]) + 4) == len(answer)
        assert batch.first(len(answer)).records() == answer.records()

    def test_lac(self, client: BookieClient) -> None:
        """`read_lac` returns the last record and the explicit LAC (a last add confirmed that is
        sent without an entry), which only a client with the master key can write."""
        with pytest.raises(errors.NoSuchEntry):
            client.read_lac(7)
        client.add_entry(_encode_record(0), KEY)
        client.add_entry(_encode_record(1), KEY)

        assert LacResponse(None, _encode_record(1)) == client.read_lac(7)

        body = encode_explicit_lac(7, 1, "CRC32C", "pw")
        client.write_lac(7, body, KEY)

        assert LacResponse(body, _encode_record(1)) == client.read_lac(7)
        with pytest.raises(errors.UnauthorizedAccess):
            client.write_lac(7, encode_explicit_lac(7, 0, "CRC32C", "pw"), OTHER_KEY)
        assert LacResponse(body, _encode_record(1)) == client.read_lac(7)

        # A lower explicit LAC replaces it, even of a fenced ledger.
        lower = encode_explicit_lac(7, 0, "CRC32C", "pw")
        client.read_entry(7, 0, fence=True, master_key=KEY)
        client.write_lac(7, lower, KEY)

        assert LacResponse(lower, _encode_record(1)) == client.read_lac(7)

    def test_availability(self, client: BookieClient) -> None:
        """Availability is that of the added entries, for one ledger or many; unknown ones raise."""
        for entry in (0, 2, 4, 9):
            client.add_entry(_encode_record(entry), KEY)
        for entry in range(5):
            client.add_entry(_encode_record(entry, ledger=9), KEY)
        expected = {7: Availability.from_entries([0, 2, 4, 9])}
        expected[9] = Availability.from_entries(range(5))

        assert expected == {ledger: client.availability(ledger) for ledger in (7, 9)}
        with pytest.raises(errors.NoSuchLedger):
            client.availability(8)

        list_many: Any = getattr(client, "availability_many", None)
        if list_many is not None:
            failures: dict[LedgerId, errors.BkstoreError] = {}
            listing = list_many([9, 8, 7], failures)

            assert expected == {ledger_id.ledger: value for ledger_id, value in listing}
            assert [LedgerId(0, 8)] == list(failures)
            assert isinstance(failures[LedgerId(0, 8)], errors.NoSuchLedger)

    def test_scopes(self, client: BookieClient) -> None:
        """A ledger of another scope is a separate ledger, or every call refuses it."""
        record = _encode_record(3, ledger=SCOPED_LEDGER)
        if not self.scopes:
            for call in (
                lambda: client.add_entry(record, KEY),
                lambda: client.read_entry(SCOPED_LEDGER, 3),
                lambda: client.read_lac(SCOPED_LEDGER),
                lambda: client.force(SCOPED_LEDGER),
                lambda: client.availability(SCOPED_LEDGER),
            ):
                with pytest.raises(errors.IllegalOperation):
                    call()
            return
        assert 3 == client.add_entry(record, KEY)
        assert record == client.read_entry(SCOPED_LEDGER, 3)
        assert record == client.read_entry(SCOPED_LEDGER, -1)
        assert Availability.from_entries([3]) == client.availability(SCOPED_LEDGER)
        with pytest.raises(errors.NoSuchLedger):
            client.read_entry(LedgerId(SCOPED_LEDGER.scope, 7), 3)
        body = encode_explicit_lac(SCOPED_LEDGER, 3, "CRC32C", "pw")
        client.write_lac(SCOPED_LEDGER, body, KEY)
        assert LacResponse(body, record) == client.read_lac(SCOPED_LEDGER)
        if self.batches:
            assert [record] == client.read_entries(SCOPED_LEDGER, 3).records()
        client.force(SCOPED_LEDGER)

    def test_threads(self, client: BookieClient) -> None:
        """Calls from several threads do not disturb each other."""

        def work(ledger: int) -> None:
            for entry in range(30):
                record = _encode_record(entry, b"%d" % ledger, ledger)
                client.add_entry(record, KEY)
                assert record == client.read_entry(ledger, entry)

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))

        assert [30] * 6 == [len(client.availability(ledger)) for ledger in range(6)]

    def test_a_bookie_that_is_down(self, served: ServedBookie) -> None:
        """Calls raise `BookieUnavailable` while the bookie is down, and work again afterwards."""
        client = served.client
        client.add_entry(_encode_record(0), KEY)
        served.stop()
        assert isinstance(client, BatchAdder)
        for call in (
            lambda: client.add_entry(_encode_record(1), KEY),
            lambda: client.add_batch(_encode_batch(1, 3), KEY),
            lambda: client.read_entry(7, 0),
            lambda: client.read_lac(7),
            lambda: client.force(7),
            lambda: client.availability(7),
        ):
            with pytest.raises(errors.BookieUnavailable):
                call()
        served.start()

        assert _encode_record(0) == client.read_entry(7, 0)
        assert 1 == client.add_entry(_encode_record(1), KEY)
