"""LedgerHandle: a ledger that a client has open for writing or for reading.

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0. Source:
`client/LedgerHandle`, `client/ReadOnlyLedgerHandle`, `client/api`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Self

from bkstore.arguments import bytes_like as as_data, iterable, number
from bkstore.cluster.client.appends.pending_append import PendingAppend
from bkstore.cluster.client.appends.writer import LedgerWriter
from bkstore.cluster.client.batch_reads import BatchReader
from bkstore.cluster.client.last_add_confirmed import LacRead, read_lac, wait_for_advance
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.range_reads import RangeReader
from bkstore.errors import IllegalOperation, InvalidArgument, NoSuchEntry
from bkstore.formats.entry import NO_ENTRY, Entry
from bkstore.ids import Int64Array, LedgerId, check_entry_id, check_integer
from bkstore.ledger_metadata import LedgerMetadata

_check_seconds = number(0)

_LONG_POLL_SECONDS = 1.0
"""How long a bookie is asked to wait for a LAC; by then the metadata are read again."""

_MIN_POLL_SECONDS = 0.1
"""Time from one question for the LAC to the next, if it did not advance."""


class LedgerHandle:
    """One open ledger. `Client.create_ledger` returns a handle that writes; other handles read.

    Every call raises `NoSuchLedger` if it finds that the ledger was deleted meanwhile. A ``with``
    block closes the ledger at its end, unless by an exception: then it stays open, and the next
    `open_ledger` recovers it. Threads: appends run one at a time in one process, and overlap over a
    network; reads are concurrent with all. Fork: the child's handle is closed if it writes.

    >>> import tempfile
    >>> from bkstore.cluster import Cluster
    >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top) as cluster:
    ...     with cluster.create_ledger() as ledger:
    ...         entry = ledger.append(b"hello")
    ...         ledger.read_entry(entry).payload, ledger.last_add_confirmed, ledger.length
    (b'hello', 0, 5)
    """

    def __init__(
        self,
        access: LedgerAccess,
        writer: LedgerWriter | None = None,
        lac_read: LacRead | None = None,
    ) -> None:
        """Make a handle that writes, with a `writer`, or one that reads up to the LAC."""
        self._access = access
        self._writer = writer
        self._batches = BatchReader(access)
        self._ranges = RangeReader(access, self._batches)
        self._lac = NO_ENTRY
        self._length: int | None = 0  # up to the LAC; None if it is not read yet
        self._lac_entries: list[Entry] = []  # entries received with the LAC
        if writer is None:
            self._advance_lac(lac_read or read_lac(access))

    def __repr__(self) -> str:
        role, lac = "reader" if self._writer is None else "writer", self.last_add_confirmed
        return f"<LedgerHandle {self.ledger} {self.metadata.state} {role} {lac}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    # -- state

    @property
    def ledger(self) -> LedgerId:
        """The ledger's 128-bit id."""
        return self._access.ledger

    @property
    def scope_id(self) -> int:
        """The ledger's scope, unsigned; 0 is BookKeeper's own."""
        return self.ledger.scope

    @property
    def id(self) -> int:
        """The ledger's number in its scope, unsigned."""
        return self.ledger.ledger

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this handle last saw it."""
        return self._access.metadata

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, as far as this handle knows."""
        return self.metadata.closed

    @property
    def last_add_pushed(self) -> int:
        """The highest entry that was sent, -1 if none was; a reader's is the LAC."""
        return self.last_add_confirmed if self._writer is None else self._writer.last_pushed

    @property
    def last_add_confirmed(self) -> int:
        """The LAC as this handle knows it, -1 if nothing is confirmed; sends no request."""
        return self._lac if self._writer is None else self._writer.last_confirmed

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC. A reader may have to read that entry, and raises what `read`
        raises."""
        if self._writer is not None:
            return self._writer.length
        if self._length is None:
            self._length = self._access.read_length(self._lac, self._lac_entries)
        return self._length

    # -- writing

    def _require_writer(self) -> LedgerWriter:
        """Return the writer; raises `IllegalOperation` if the handle reads."""
        if self._writer is None:
            raise IllegalOperation(f"ledger {self.ledger} was opened for reading")
        return self._writer

    def append(self, data: bytes, *, sync: bool = True) -> int:
        """Add an entry; return its id once A of the W bookies of its write set have it.

        A bookie that fails is replaced, from the first unconfirmed entry on; if no other bookie is
        available, A acknowledgements are enough. Raises `NotEnoughBookies` if there are fewer,
        `LedgerFenced` if another client closes or has closed the ledger, `IllegalOperation` if the
        handle is closed or failed before, and `InvalidArgument` if the entry is too large; then
        nothing is sent. A failed append is never acknowledged later. Without `sync` the bookies
        have the entry in memory only, and the LAC does not advance until `force`; if a bookie fails
        before that, the writer has failed. Cost: W syncs.
        """
        return self._require_writer().append(as_data("data", data), sync)

    def append_later(self, data: bytes) -> PendingAppend:
        """Add an entry without waiting for it; call `result` of the returned object to wait.

        Over a network, entries are batched while others are in flight: the first is sent at once,
        the next ones when responses arrive, and all of them by a call that waits. This call blocks
        only while about `ClientOptions.window` entries, or 16 MiB, are in flight. In one process
        the entry is appended at return. Raises as `append`, here or at `result`; if an entry fails,
        so do all in flight, for good. A failed bookie is replaced at the next append or wait.

        >>> import tempfile
        >>> from bkstore.cluster import Cluster
        >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top) as cluster:
        ...     ledger = cluster.create_ledger()
        ...     pending = [ledger.append_later(b"x") for _ in range(3)]
        ...     [append.result() for append in pending], ledger.flush()
        ([0, 1, 2], 2)
        """
        return self._require_writer().append_later(data)

    def flush(self) -> int:
        """Wait until every appended entry has A acknowledgements; return the LAC. Raises as
        `append`. Entries added without sync are not made durable: `force` does that."""
        return self._require_writer().flush()

    def append_many(self, payloads: Iterable[bytes]) -> Int64Array:
        """Add entries in order and return their ids, int64[n]; syncs once for each 256 of them.
        Raises as `append`, `last_add_confirmed` being the last appended. About 30 us an entry."""
        return self._require_writer().append_many(iterable("payloads", payloads))

    def force(self) -> int:
        """Make entries durable that were added without sync; return the LAC, which covers them.
        Raises `NotEnoughBookies` unless every bookie of the ensemble synced; the writer has failed
        then. Entries lost by a bookie that restarted in between are not detected."""
        return self._require_writer().force()

    def write_explicit_lac(self) -> int:
        """Send the LAC to the write set of the last entry, for tailing readers; return it. Raises
        `NotEnoughBookies` if fewer than A bookies stored it."""
        return self._require_writer().write_explicit_lac()

    def close(self) -> None:
        """Set state, last entry (the LAC) and length in the metadata. Idempotent. Does nothing on a
        handle that reads. Raises `LedgerFenced` if another client closes or has closed the ledger,
        unless with the same values. A writer that failed may be closed."""
        if self._writer is not None:
            self._writer.close()

    # -- reading

    def read(self, first: int, last: int) -> list[Entry]:
        """Return the entries first..last (inclusive), verified, from whichever replica has them.

        Raises `InvalidArgument` if the range is reversed or goes beyond the LAC; for an entry that
        no replica returns, `NoSuchEntry` if all of the write set state that they lack it, else
        `BookieUnavailable` or `CorruptionError`, with each bookie's answer. Cost: as `scan`.
        """
        return list(self.scan(first, last))

    def scan(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the entries first..last (inclusive) in order; as `read`, with bounded memory.

        All bookies of the range are asked at once, each for up to 512 entries or about 1 MiB, and
        for as many again while these are yielded: by batch reads if every bookie has every entry,
        otherwise by concurrent single reads. An entry that a bookie lacks is read from the next one
        of the write set; unresponsive bookies are asked last from then on. Only an invalid range
        raises at once. Use the iterator in one thread, and not in a forked child.

        >>> import tempfile
        >>> from bkstore.cluster import Cluster
        >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top) as cluster:
        ...     ledger = cluster.create_ledger()
        ...     ids = ledger.append_many(b"%d" % number for number in range(1000))
        ...     sum(int(entry.payload) for entry in ledger.scan(0, 999))
        499500
        """
        self._check_range(first, last)
        lac = self.last_add_confirmed
        if last > lac:
            raise InvalidArgument(f"entry {last} of ledger {self.ledger} is beyond the LAC, {lac}")
        return self._ranges.scan(first, last)

    def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Return the entries first..last as `read` does, but without regard to the LAC."""
        self._check_range(first, last)
        return list(self._ranges.scan(first, last))

    def _check_range(self, first: int, last: int) -> None:
        if check_integer(last, "last entry") < check_entry_id(first):
            raise InvalidArgument(f"entries {first}..{last}: the last is less than the first")

    def read_entry(self, entry_id: int) -> Entry:
        """Return one entry; as `read`."""
        return self.read(entry_id, entry_id)[0]

    def read_last(self) -> Entry:
        """Return the entry at the LAC; raises `NoSuchEntry` if nothing is confirmed."""
        last = self.last_add_confirmed
        if last < 0:
            raise NoSuchEntry(f"ledger {self.ledger} has no confirmed entry")
        return self.read_entry(last)

    def read_last_confirmed(self) -> int:
        """Ask the bookies for the LAC and return it; updates a reader's `last_add_confirmed`. It is
        the highest of the last ensemble's bookies, explicit LACs included, a closed ledger's last
        entry, or a writer's own. Raises `NotEnoughBookies` if too few bookies answered."""
        if self._writer is None:
            self._advance_lac(read_lac(self._access))
        return self.last_add_confirmed

    def wait_for_last_confirmed(self, seconds: float) -> int:
        """Wait until the LAC advances or the ledger is closed, for about `seconds` at most; return
        the LAC, as `read_last_confirmed` does.

        Over a network, a bookie that will have the next entries answers when it learns of a higher
        LAC (a long poll). Bookies in one process, and ones that do not support long polls, are
        asked every 0.1 s. A writer's handle returns its LAC at once.
        """
        deadline = time.monotonic() + _check_seconds("seconds", seconds)
        lac = self.last_add_confirmed
        while self._writer is None and not self.closed:
            started = time.monotonic()
            seconds_left = max(0.0, deadline - started)
            wait_for_advance(self._access, lac, min(seconds_left, _LONG_POLL_SECONDS))
            if self.read_last_confirmed() > lac or time.monotonic() >= deadline:
                break
            # A bookie answers at once if the ledger is fenced, or if it cannot wait.
            time.sleep(max(0.0, min(started + _MIN_POLL_SECONDS, deadline) - time.monotonic()))
        return self.last_add_confirmed

    def tail(self, first: int = 0) -> Iterator[Entry]:
        """Yield the entries from `first` on, each once it is confirmed, until the ledger is closed.

        Waits as `wait_for_last_confirmed` does, without a limit, and raises as `read` does. A
        writer states its LAC with the next entry: its last one comes with the next append, with
        `write_explicit_lac`, or when the ledger is closed.
        """
        next_entry = check_entry_id(first)
        while True:
            lac = self.last_add_confirmed
            if next_entry <= lac:
                yield from self.scan(next_entry, lac)
                next_entry = lac + 1
            elif self.closed:
                return
            else:
                self.wait_for_last_confirmed(_LONG_POLL_SECONDS)

    def read_explicit_lac(self) -> int:
        """Return the highest explicit LAC of the last ensemble's bookies, -1 if there is none or
        the ledger is closed. Raises `NotEnoughBookies` if too few bookies answered."""
        return read_lac(self._access).explicit_lac

    def _advance_lac(self, lac_read: LacRead) -> None:
        """Advance this reader's LAC to one that was read; it never goes back."""
        metadata = self.metadata
        if metadata.closed:
            self._lac, self._length = metadata.last_entry_id, metadata.length
        elif lac_read.lac > self._lac:
            self._lac, self._lac_entries, self._length = lac_read.lac, lac_read.last_entries, None

    # -- batch reads

    def read_batch(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries from `start` to at most the LAC by one request (`docs/batch-reads.md`).

        Returns at most `max_count` entries (0 = any number) and about `max_size` bytes (0 = the
        frame limit), as BP-62 counts them, and at least one. Damage or a gap ends the batch; if the
        first entry is damaged or missing, the next replica is asked. With `fence` the bookie that
        answers fences the ledger. Raises `IllegalOperation` if the ledger is striped, or batch
        reads are disabled or not supported (which the handle remembers), and otherwise as `read`.
        """
        return self._batches.read(start, max_count, max_size, self.last_add_confirmed, fence=fence)

    def read_batch_with_fallback(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries as `read_batch` does, by single reads where that is not possible."""
        last = self.last_add_confirmed
        return self._batches.read_with_fallback(start, max_count, max_size, last, fence=fence)

    def read_batch_unconfirmed(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries as `read_batch` does, but without regard to the LAC."""
        return self._batches.read(start, max_count, max_size, None, fence=fence)

    def read_batch_unconfirmed_with_fallback(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries as `read_batch_with_fallback` does, but without regard to the LAC."""
        return self._batches.read_with_fallback(start, max_count, max_size, None, fence=fence)
