"""The index contract: which entries of a ledger are stored, and their locations.

Arrays are the primitives (int64, sorted, distinct); single calls are thin wrappers. These rules
and the method docstrings hold for every backend; `bkstore.testing.EntryIndexSuite` checks them.
Each backend defines how an index is created and which threads and processes may share it.

* an unknown ledger lists as empty; reading its state raises `NoSuchLedger`. `put_many` and
  `set_state` make a ledger known, reads never do;
* ledgers come in unsigned order, by scope, then number, as `LedgerId`s sort. The same number in
  another scope is another ledger;
* entry ids are 0 .. 2^63-2, locations 1 .. 2^63-1; a returned location of 0 means absent;
* if an entry is put again, `duplicates` says which location stays, within one call, between
  calls and after a reopen;
* ids, scopes, locations and range bounds are ints, numpy integers or anything else with
  ``__index__``; bools, floats and text are refused (`InvalidArgument`), alone and in arrays, for
  unknown ledgers too. Each method first passes its arguments to `LedgerId.of`, `check_scope`,
  `check_bounds`, `as_entry_ids` (all of `bkstore.ids`) or `check_put`, which check this;
* arrays passed in are neither changed nor kept; later changes do not affect a returned array;
* bytes that cannot be read raise `CorruptionError`, they are never "not found";
* an index that is not `writable` raises `ReadOnlyError` for every change, of unknown ledgers too.
  `flush` does nothing there; opening, reading and closing it neither change nor create a file;
* a closed index raises `IllegalOperation` for every read of ledgers and entries and for every
  change, also if it was read-only. Its properties stay readable; `flush` and `close` do nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

import numpy as np

from bkstore.arguments import bytes_like, check_batch, instance, iterable
from bkstore.availability import Availability
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    InvalidArgument,
    MissingDependency,
    SystemRefused,
)
from bkstore.formats.state_checks import state_oddities
from bkstore.ids import (
    EntryLocations,
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    as_locations,
    check_entry_id,
    is_ascending,
    ledger_runs,
)
from bkstore.index.bulk_listing import LedgerErrors, list_one_by_one, normalize_ledger_ids

LedgerLike = int | LedgerId

DEFAULT_BATCH = 1 << 18
"""Rows in a scan batch: five int64 columns of it are 10 MiB."""


class LedgerState(NamedTuple):
    """What an index stores for a ledger besides its entries.

    `master_key` may be empty (not known). `explicit_lac` is the whole body as a client sent it
    (ledger, LAC, digest). Both are stored byte for byte, without a check; `limbo` (the bookie may
    have lost entries) is stored if the index `supports_limbo`. The repr does not show the key.

    >>> LedgerState(b"secret", fenced=True)
    LedgerState(master_key=<6 bytes>, fenced=True, limbo=False, explicit_lac=None)
    """

    master_key: bytes = b""
    fenced: bool = False
    limbo: bool = False
    explicit_lac: bytes | None = None

    def __repr__(self) -> str:
        return (
            f"LedgerState(master_key=<{len(self.master_key)} bytes>, fenced={self.fenced}, "
            f"limbo={self.limbo}, explicit_lac={self.explicit_lac!r})"
        )


_check_state = instance(LedgerState)


class IndexBatch(NamedTuple):
    """Index rows as five equally long int64 columns; ids in two's complement. `dir_index` is the
    index directory's number, 0 if there is only one; it is the same in all rows of a ledger."""

    dir_index: Int64Array
    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    location: Int64Array

    @classmethod
    def of_ledger(
        cls, ledger: LedgerId, entries: Int64Array, locations: Int64Array, dir_index: int = 0
    ) -> IndexBatch:
        """Return the rows of one ledger. The columns of directory index, scope and ledger id have
        one value in all rows: they are broadcast, and take no memory."""
        values = (dir_index, *ledger.signed)  # `signed`: scope and ledger id in two's complement
        dir_indexes, scope_ids, ledger_ids = (
            np.broadcast_to(np.int64(value), entries.shape) for value in values
        )
        return cls(dir_indexes, scope_ids, ledger_ids, entries, locations)

    @classmethod
    def joined(cls, parts: Sequence[IndexBatch]) -> IndexBatch:
        """Return the batches concatenated in order; a single batch is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate(columns) for columns in zip(*parts)))

    def by_ledger(self) -> Iterator[tuple[LedgerId, Int64Array, Int64Array]]:
        """Yield (ledger, entries, locations) for each stretch of consecutive rows of one ledger."""
        for ledger, start, stop in ledger_runs(self.scope_id, self.ledger_id):
            yield ledger, self.entry_id[start:stop], self.location[start:stop]


Severity = Literal["damage", "oddity"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd or damaged that a reader skipped: what it is, and where. `severity` is "damage"
    if data could not be read, "oddity" if a bookie can work with it but an operator should know."""

    severity: Severity
    detail: str
    file: str | None = None
    offset: int | None = None
    ledger: LedgerId | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    entries: int | None = None

    @classmethod
    def of(cls, error: BkstoreError, ledger: LedgerId | None = None) -> Finding:
        """Return the damage that an error reports. An error that is not about the data (a refusal
        of the operating system, a missing package) is raised instead."""
        if isinstance(error, (SystemRefused, MissingDependency)):
            raise error
        if isinstance(error, CorruptionError):
            return cls("damage", error.reason, error.file, error.offset, ledger)
        return cls("damage", str(error), file=None, offset=None, ledger=ledger)

    def __str__(self) -> str:
        parts = [] if self.file is None else [self.file]
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ": ".join([*parts, self.detail])


class UnknownLedgers(NamedTuple):
    """The ledgers from `first` to `last`, both inclusive: damage hides which of them an index has,
    and their states. Of several directories, only ledgers L with ``L mod directories`` equal to
    `dir_index` belong to the damaged one, and of a folder of index files only those whose
    `low_16_bits` its path has.

    >>> unknown = UnknownLedgers(LedgerId(0, 5), LedgerId(0, 9))
    >>> [unknown.includes(LedgerId(0, number)) for number in (4, 5, 9, 10)]
    [False, True, True, False]
    """

    first: LedgerId
    last: LedgerId
    dir_index: int = 0
    directories: int = 1
    low_16_bits: range = range(1 << 16)

    def includes(self, ledger: LedgerId) -> bool:
        """Return whether the ledger is one of these."""
        if not self.first <= ledger <= self.last:
            return False
        is_own_directory = ledger.ledger % self.directories == self.dir_index
        return is_own_directory and ledger.ledger & 0xFFFF in self.low_16_bits


@dataclass(frozen=True, slots=True)
class LedgerListing:
    """The ledgers that an index lists in its sound parts. Others may be in it, too, if they are in
    `unknown`; `findings` has the damage there, one for each range in the same order. Findings after
    these are of rows that are not a ledger's, and hide none.

    >>> listing = LedgerListing([LedgerId(0, 1)], [UnknownLedgers(LedgerId(0, 5), LedgerId(0, 9))])
    >>> [listing.may_include(LedgerId(0, number)) for number in (1, 7)]
    [False, True]
    """

    ledgers: list[LedgerId]
    unknown: list[UnknownLedgers] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def may_include(self, ledger: LedgerId) -> bool:
        """Return whether damage hides if the index has the ledger, or what its state is."""
        return any(unknown.includes(ledger) for unknown in self.unknown)


Findings = list[Finding] | None
"""Where a scan appends the damage that it passes over; None: it raises instead."""


class Closeable(ABC):
    """Something that `close` or the end of its ``with`` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Release files. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class EntrySource(ABC):
    """Anything that knows which entries of which ledgers are stored."""

    @abstractmethod
    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the known ledgers of `scope` (None: of every scope) in unsigned order."""

    @abstractmethod
    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the stored entry ids in first..last inclusive, int64[n], sorted and distinct. With
        `last` None the range has no end. Bounds may be negative or beyond int64 (`check_bounds`
        clips them), and `last` may be below `first`: then nothing is listed."""

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest stored entry id, None if there is none."""
        entries = self.entries(ledger)
        return int(entries[-1]) if entries.size else None

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are stored, as sequence groups. Opens no entry log."""
        return Availability.from_entries(self.entries(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return an iterator of (ledger, `availability`), in unsigned order, each ledger once. With
        `ledgers` None, these are the ledgers that `ledgers()` returns at the call. Each result
        equals that of a single call: empty for a ledger that is unknown or was deleted meanwhile;
        it may or may not reflect changes made after the call. Reads index data only.

        With `errors`, a `BkstoreError` about one ledger is stored there by its ledger id, at the
        latest before the next result, and the iteration goes on; without `errors`, it is raised
        when its turn comes. This call itself raises what `ledgers` and `LedgerId.of` raise. If the
        source is closed, `IllegalOperation` is raised in any case, after results already made.

        Memory: the ledger ids, and some results at a time, however many ledgers there are; results
        may share memory. This implementation makes one call for each ledger; a backend overrides it
        if one pass over many ledgers is cheaper.
        """
        return list_one_by_one(self.availability, self._ledgers_to_list(ledgers), errors)

    def _ledgers_to_list(self, ledgers: Iterable[LedgerLike] | None) -> list[LedgerId]:
        """Return the ledgers to list, sorted and distinct; None means all known ones."""
        return self.ledgers() if ledgers is None else normalize_ledger_ids(ledgers)


class EntryIndex(EntrySource, Closeable):
    """An entry source with locations and ledger states: a bookie's index.

    `writable`, `durable`, `supports_limbo` and `duplicates` describe what a backend can do;
    `layout` names it, the same for reading and for writing. A durable index can be reopened after
    it was closed, also if nothing was put, and then has all changes: rows, states and deletes.
    """

    layout: str
    duplicates: Literal["first", "last"] = "last"
    supports_limbo: bool = True
    durable: bool = True

    @property
    def storage_flags(self) -> int | None:
        """A RocksDB index's storage flags (bit 0 = needs integrity check), else None."""
        return None

    @property
    @abstractmethod
    def writable(self) -> bool:
        """Whether this index can be changed; if not, changes raise `ReadOnlyError`."""

    @abstractmethod
    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Store a location for each entry; both sequences are equally long, in any order. An
        unknown ledger becomes known with state `LedgerState()`, even if `entries` is empty; a known
        ledger's state stays. Raises `InvalidArgument`, before anything changes, for what
        `check_put` refuses and for ids that this backend cannot store (they read as absent)."""

    @abstractmethod
    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return int64[n]: the location of each of `entries`, in their order, 0 where absent."""

    @abstractmethod
    def items(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> EntryLocations:
        """Return (entries, locations) of first..last, int64[n] each; bounds as in `entries`."""

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids of `items`; a backend that can read ids alone overrides this."""
        return self.items(ledger, first, last)[0]

    def list_readable_ledgers(self, scope: int | None = None) -> LedgerListing:
        """Return the `ledgers` of sound parts of the index, and where others are unknown because of
        damage. This implementation is for an index without such parts: `ledgers` raises at any
        damage that hides ledgers."""
        return LedgerListing(self.ledgers(scope))

    def has_ledger(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger is known, that is, one of `ledgers`. Raises `CorruptionError`
        if damage hides that."""
        ledger_id = LedgerId.of(ledger)
        return ledger_id in self.ledgers(ledger_id.scope)

    @abstractmethod
    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return the ledger's state; `NoSuchLedger` if it is unknown."""

    def checked_state(self, ledger: LedgerLike) -> tuple[LedgerState, list[Finding]]:
        """Return the `state`, and a finding for each contradiction in it, at little more cost."""
        ledger_id = LedgerId.of(ledger)
        state = self.state(ledger_id)
        oddities = state_oddities(ledger_id, state.master_key, state.explicit_lac)
        return state, [Finding("oddity", detail, ledger=ledger_id) for detail in oddities]

    @abstractmethod
    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Replace the ledger's state, making it known; its entries stay. Raises
        `UnsupportedLayout`, storing nothing, if the backend cannot store it (such as limbo)."""

    def can_store_explicit_lac(self, ledger: LedgerLike) -> bool:
        """Return whether `set_state` can store an explicit LAC for the ledger: not in index files
        with header version 0, which has no field for it (`FileInfo`)."""
        LedgerId.of(ledger)  # raises if it is no ledger id
        return True

    @abstractmethod
    def delete(self, ledger: LedgerLike) -> None:
        """Remove the ledger's state and entries; does nothing if it is unknown."""

    def delete_many(self, ledgers: Iterable[LedgerLike]) -> None:
        """Remove several ledgers."""
        for ledger_id in [LedgerId.of(ledger) for ledger in iterable("ledgers", ledgers)]:
            self.delete(ledger_id)

    @abstractmethod
    def flush(self) -> None:
        """Make every change durable if the backend is `durable`; may be called at any time."""

    @abstractmethod
    def close(self) -> None:
        """Flush if the backend is durable, and release files. Idempotent."""

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store the location of one entry."""
        self.put_many(ledger, [entry], [location])

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry, None if absent."""
        return int(self.get_many(ledger, [check_entry_id(entry)])[0]) or None

    def scan(self, batch: int = DEFAULT_BATCH, findings: Findings = None) -> Iterator[IndexBatch]:
        """Return every row on disk in batches of about `batch` rows, by ledger and entry.

        No batch is empty; `batch` may be larger than any memory. Raises `InvalidArgument` for a
        `batch` below 1 or no integer (`check_batch`), here or at the first row. Includes rows of
        ledgers that are not listed (`findings` names them). Over several databases the order is by
        directory first. Memory is bounded by the batch. With a `findings` list, damage is appended
        to it and the scan goes on with the next ledger; without, it raises. This implementation
        reads ledger by ledger from `_row_chunks`, which a backend with ledgers larger than memory
        overrides.
        """
        return self._scan_by_ledger(check_batch("batch", batch), findings)

    def _scan_by_ledger(self, batch: int, findings: Findings) -> Iterator[IndexBatch]:
        """Yield all rows ledger by ledger; damage of one becomes a finding, or raises without
        `findings`."""
        for ledger in self.ledgers():
            try:
                for entries, locations in self._row_chunks(ledger, batch):
                    yield IndexBatch.of_ledger(ledger, entries, locations)
            except CorruptionError as error:
                if findings is None:
                    raise
                findings.append(Finding.of(error, ledger))

    def _row_chunks(self, ledger: LedgerId, batch: int) -> Iterator[EntryLocations]:
        """Yield (entries, locations) of a ledger in slices of 1 to about `batch` rows, in order."""
        entries, locations = self.items(ledger)
        for start in range(0, entries.size, batch):
            yield entries[start : start + batch], locations[start : start + batch]

    def findings(self) -> list[Finding]:
        """Return the oddities found by opening and listing: stray files, orphan rows, leftovers;
        none in an index that is new, or unchanged since it was closed."""
        return []


def check_state(state: LedgerState) -> None:
    """Raise `InvalidArgument` unless `state` is a valid `LedgerState`; the message shows no key."""
    _check_state("state", state)
    bytes_like("master key", state.master_key)
    if state.explicit_lac is not None:
        bytes_like("explicit LAC", state.explicit_lac)


def check_put(entries: IntArrayLike, locations: IntArrayLike) -> tuple[Int64Array, Int64Array]:
    """Return entry ids and locations as int64; `InvalidArgument` if invalid or not equally many."""
    entry_ids, checked_locations = as_entry_ids(entries), as_locations(locations)
    if entry_ids.size != checked_locations.size:
        raise InvalidArgument(f"{entry_ids.size} entries, {checked_locations.size} locations")
    return entry_ids, checked_locations


def locations_of(wanted: Int64Array, entries: Int64Array, locations: Int64Array) -> Int64Array:
    """Return the location of each wanted entry, 0 where sorted `entries` lack it."""
    if not entries.size:
        return np.zeros(wanted.size, np.int64)
    # An entry above all others is compared with the last one, which differs from it.
    positions = np.minimum(np.searchsorted(entries, wanted), entries.size - 1)
    return np.where(entries[positions] == wanted, locations[positions], np.int64(0))


def sorted_distinct(
    entries: Int64Array, values: Int64Array, duplicates: Literal["first", "last"]
) -> tuple[Int64Array, Int64Array]:
    """Return entries and values sorted by entry, one row for each entry. If an entry has several
    rows, the first or the last of them counts, by `duplicates`. O(n) if already sorted."""
    if is_ascending(entries):
        return entries, values
    sort_order = np.argsort(entries, kind="stable")  # equal entries stay in their order
    entries, values = entries[sort_order], values[sort_order]
    differs = entries[1:] != entries[:-1]
    # Keep the rows that differ from the one before (first of equal ones) or after (last).
    keep = np.concatenate(([True], differs) if duplicates == "first" else (differs, [True]))
    return entries[keep], values[keep]
