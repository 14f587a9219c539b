"""LedgerHandle: a ledger as a client has it open, to write it or to read it.

Source: `client/LedgerHandle`, `client/ReadOnlyLedgerHandle`, `client/api`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from bkstore.arguments import data as as_data, each
from bkstore.cluster.client.appends.later import PendingAppend
from bkstore.cluster.client.appends.writer import LedgerWriter
from bkstore.cluster.client.batch_reads import BatchReader
from bkstore.cluster.client.last_add_confirmed import ConfirmedRead, read_confirmed
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.cluster.client.range_reads import RangeReader
from bkstore.errors import IllegalOperation, InvalidArgument, NoSuchEntry
from bkstore.formats.entry import NO_ENTRY, Entry
from bkstore.ids import Int64Array, LedgerId, check_entry_id, check_integer
from bkstore.ledger_metadata import LedgerMetadata


class LedgerHandle:
    """One open ledger. `Client.create_ledger` gives one that writes, the others read.

    Every call raises `NoSuchLedger` where the ledger was deleted meanwhile and that shows. A
    ``with`` block closes the ledger at its end, but not where it is left by an error: then the
    ledger stays open, for the next `open_ledger` to recover. Threads: appends take turns, over a
    network they go together; reads go on beside them and each other. Fork: in the child a handle
    that writes is closed, and closes no ledger.

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
        confirmed: ConfirmedRead | None = None,
    ) -> None:
        """Take what a `Client` made."""
        self._access = access
        self._writer = writer
        self._batches = BatchReader(access)
        self._ranges = RangeReader(access, self._batches)
        self._lac = NO_ENTRY
        self._length: int | None = 0
        self._told: list[Entry] = []
        if writer is None:
            self._follow(confirmed or read_confirmed(access))

    def __repr__(self) -> str:
        """Return the ledger's id, its state and its LAC."""
        role = "reader" if self._writer is None else "writer"
        return f"<LedgerHandle {self.ledger} {self.metadata.state} {role} {self._last()}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    # -- what is known

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
        return self._last() if self._writer is None else self._writer.pushed

    @property
    def last_add_confirmed(self) -> int:
        """The LAC as this handle knows it, -1 if nothing is confirmed; asks nobody."""
        return self._last()

    def _last(self) -> int:
        return self._lac if self._writer is None else self._writer.confirmed

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC; a reader may have to read that entry: raises as `read`."""
        if self._writer is not None:
            return self._writer.length
        if self._length is None:
            self._length = self._access.length_at(self._lac, self._told)
        return self._length

    # -- writing

    def _writing(self) -> LedgerWriter:
        if self._writer is None:
            raise IllegalOperation(f"ledger {self.ledger} was opened for reading")
        return self._writer

    def append(self, data: bytes, *, sync: bool = True) -> int:
        """Add an entry and return its id, when A of the W bookies of its write set have it.

        A bookie that fails is replaced, from the first unconfirmed entry on; where there is no
        other one, A acknowledgements are enough. Raises `NotEnoughBookies` if there are fewer,
        `LedgerFenced` if another client closes or has closed the ledger, `IllegalOperation` on
        a handle that is closed or that failed before: an append that failed is never
        acknowledged later. `InvalidArgument` for one that is too large; nothing is sent then.

        Without `sync` the bookies have it in memory only, and the LAC stays where it is until
        `force`. A bookie that fails meanwhile ends the writer. Cost: W syncs.
        """
        return self._writing().append(as_data("data", data), sync)

    def append_later(self, data: bytes) -> PendingAppend:
        """Add an entry without waiting for it; `result` of what is returned waits.

        Over a network entries gather while others are under way, and go out together: the first
        at once, the next when answers come, and all at a call that waits. It waits itself only
        while about `ClientOptions.window` entries, or 16 MiB, are under way. In one process the
        entry is appended at return. Raises as `append`, here or at `result`; when one fails, all
        that are under way fail with it, and none of them is acknowledged later. A bookie that
        fails is replaced by the next call that appends or waits.

        >>> import tempfile
        >>> from bkstore.cluster import Cluster
        >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top) as cluster:
        ...     ledger = cluster.create_ledger()
        ...     pending = [ledger.append_later(b"x") for _ in range(3)]
        ...     [each.result() for each in pending], ledger.flush()
        ([0, 1, 2], 2)
        """
        return self._writing().append_later(data)

    def flush(self) -> int:
        """Wait until all that was appended has its A acknowledgements; return the LAC.

        Raises as `append`. What was added without sync is not made durable: `force` does that.
        """
        return self._writing().flush()

    def append_many(self, payloads: Iterable[bytes]) -> Int64Array:
        """Add entries in order and return their ids, int64[n]; a sync for each 256 of them.

        Raises as `append`; `last_add_confirmed` tells how far it came. About 30 us an entry.
        """
        return self._writing().append_many(each("payloads", payloads))

    def force(self) -> int:
        """Make durable what was added without sync, and return the LAC, which then covers it.

        Raises `NotEnoughBookies` unless every bookie of the ensemble did; the writer has ended
        then. (One that lost its memory in between and came back is not noticed.)
        """
        return self._writing().force()

    def write_explicit_lac(self) -> int:
        """Tell the write set of the last entry the LAC, for readers that follow; return it.

        Raises `NotEnoughBookies` if fewer than A bookies took it.
        """
        return self._writing().write_explicit_lac()

    def close(self) -> None:
        """Set state, last entry (the LAC) and length in the metadata. Idempotent.

        A handle that reads has nothing to close. Raises `LedgerFenced` if another client closes
        or has closed the ledger, unless with the same end. A writer that failed may be closed.
        """
        if self._writer is not None:
            self._writer.close()

    # -- reading

    def read(self, first: int, last: int) -> list[Entry]:
        """Return the entries first..last (inclusive), verified, from whichever replica has them.

        Raises `InvalidArgument` for a range that is reversed or goes beyond the LAC. If no
        replica has an entry: `NoSuchEntry` only where all of the write set say so, else
        `BookieUnavailable` or `CorruptionError`; the message has each bookie's answer.
        Cost: many entries are under way together (`scan`).
        """
        return list(self.scan(first, last))

    def scan(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the entries first..last (inclusive) in order; as `read`, with bounded memory.

        All bookies that have them are asked at once, each for up to 512 entries or about 1 MiB,
        and for as many more while these are handed out: by batches where every bookie has every
        entry, else by single reads under way together. What a bookie does not have comes from the
        next of the write set; one that gave no answer is asked last from then on. A range is
        refused at once, an entry that cannot be had when it is its turn. Threads: each iterator
        is for one thread. Fork: it is the parent's.

        >>> import tempfile
        >>> from bkstore.cluster import Cluster
        >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top) as cluster:
        ...     ledger = cluster.create_ledger()
        ...     ids = ledger.append_many(b"%d" % number for number in range(1000))
        ...     sum(int(entry.payload) for entry in ledger.scan(0, 999))
        499500
        """
        self._check_range(first, last)
        if last > self._last():
            raise InvalidArgument(
                f"entry {last} of ledger {self.ledger} is beyond the LAC, {self._last()}"
            )
        return self._ranges.scan(first, last)

    def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Return the entries first..last, whatever the LAC; otherwise as `read`."""
        self._check_range(first, last)
        return list(self._ranges.scan(first, last))

    def _check_range(self, first: int, last: int) -> None:
        if check_integer(last, "last entry") < check_entry_id(first):
            raise InvalidArgument(f"entries {first}..{last}: the last is below the first")

    def read_entry(self, entry: int) -> Entry:
        """Return one entry; as `read`."""
        return self.read(entry, entry)[0]

    def read_last(self) -> Entry:
        """Return the entry at the LAC; `NoSuchEntry` if nothing is confirmed."""
        last = self._last()
        if last < 0:
            raise NoSuchEntry(f"ledger {self.ledger} has no confirmed entry")
        return self.read_entry(last)

    def read_last_confirmed(self) -> int:
        """Ask the bookies for the LAC, and return it; a reader's `last_add_confirmed` follows.

        The highest of what the last ensemble's bookies tell, explicit LACs included; of a closed
        ledger its last entry. A writer knows it. `NotEnoughBookies` if too few answered.
        """
        if self._writer is None:
            self._follow(read_confirmed(self._access))
        return self._last()

    def read_explicit_lac(self) -> int:
        """Return the highest explicit LAC of the last ensemble's bookies, -1 if there is none.

        `NotEnoughBookies` if too few answered; of a closed ledger nobody is asked: -1.
        """
        return read_confirmed(self._access).explicit

    def _follow(self, confirmed: ConfirmedRead) -> None:
        metadata = self.metadata
        if metadata.closed:
            self._lac, self._length = metadata.last_entry_id, metadata.length
        elif confirmed.lac > self._lac:
            self._lac, self._told, self._length = confirmed.lac, confirmed.seen, None

    # -- batch reads

    def read_batch(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries from `start` on by one request: at least one, none beyond the LAC.

        At most `max_count` (0 = any number) and about `max_size` bytes (0 = the frame limit), as
        BP-62 counts them; the first entry always comes. Damage or a gap behind it ends the
        batch; where the first entry is concerned, the next replica is asked. With `fence` the
        bookie that answers fences the ledger.

        Raises `IllegalOperation` where the ledger is striped, batch reads are switched off, or
        no bookie that could answer knows them (which the handle remembers), and otherwise as
        `read`. `docs/batch-reads.md` has it all in tables.
        """
        return self._batches.read(start, max_count, max_size, self._last(), fence=fence)

    def read_batch_with_fallback(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return the same; by single reads where `read_batch` raises `IllegalOperation`."""
        last = self._last()
        return self._batches.read_with_fallback(start, max_count, max_size, last, fence=fence)

    def read_batch_unconfirmed(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries as `read_batch`, whatever the LAC."""
        return self._batches.read(start, max_count, max_size, None, fence=fence)

    def read_batch_unconfirmed_with_fallback(
        self, start: int, max_count: int = 0, max_size: int = 0, *, fence: bool = False
    ) -> list[Entry]:
        """Return entries as `read_batch_with_fallback`, whatever the LAC."""
        return self._batches.read_with_fallback(start, max_count, max_size, None, fence=fence)
