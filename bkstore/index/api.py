"""The index contract: which entries of a ledger are here, and where they lie.

Arrays are the primitives (int64, sorted, distinct); single calls are thin wrappers. These rules
hold for every backend, and so does what the methods below say; `bkstore.testing.EntryIndexSuite`
checks them. How an index is made, and which threads and processes may share it, is the backend's.

* an unknown ledger lists as empty; asking for its state raises `NoSuchLedger`. `put_many` and
  `set_state` make a ledger known, no question does;
* ledgers come in unsigned order, by scope, then number, as `LedgerId`s sort. The same number in
  another scope is another ledger;
* entry ids are 0 .. 2^63-2, locations 1 .. 2^63-1; 0 in an answer means absent;
* an entry that is put again: `duplicates` says which location stays, within one call, between
  calls and after a reopen;
* ids, scopes, locations and ends of ranges are ints, numpy integers or whatever else has
  ``__index__``; bools, floats and text are refused (`InvalidArgument`), alone and in arrays, for
  unknown ledgers too. `LedgerId.of`, `check_scope`, `check_bounds`, `as_entry_ids` (of
  `bkstore.ids`) and `check_put` do it: a method hands each argument to one of them first;
* arrays handed in are neither changed nor kept; an answer stays as it is when the index goes on;
* bytes that cannot be read raise `CorruptionError`, they are never "not found";
* an index that is not `writable` raises `ReadOnlyError` for every change, of unknown ledgers too.
  `flush` does nothing there; opening it, asking it and `close` change no file and make none;
* a closed index raises `IllegalOperation` for every question about ledgers and entries and for
  every change, one for reading too. Its properties can be asked; `flush` and `close` do nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Self

import numpy as np

from bkstore.arguments import check_batch, data, each, instance
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
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    as_locations,
    check_entry_id,
    is_ascending,
    ledger_stretches,
)
from bkstore.index.many_ledgers import Errors, asked_for, one_by_one

LedgerLike = int | LedgerId

DEFAULT_BATCH = 1 << 18
"""Rows in a scan batch: five int64 columns of it are 10 MiB."""


class LedgerState(NamedTuple):
    """What an index keeps of a ledger beside its entries.

    `master_key` may be empty (not known). `explicit_lac` is the whole body as a client sent it
    (ledger, LAC, digest). Both are kept byte for byte, whatever is in them; `limbo` where the
    index `supports_limbo`. Printed, it keeps the key to itself.

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
    """Index rows as five equally long int64 columns; ids in two's complement.

    `dir_index` tells which of several directories a row is from, all rows of a ledger from one;
    where there is only one, it is 0.
    """

    dir_index: Int64Array
    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    location: Int64Array

    @classmethod
    def of_ledger(
        cls, ledger: LedgerId, entries: Int64Array, locations: Int64Array, dir_index: int = 0
    ) -> IndexBatch:
        """Return rows of one ledger; the constant columns take no memory."""
        scope, number = ledger.signed
        shape = entries.shape
        return cls(
            np.broadcast_to(np.int64(dir_index), shape),
            np.broadcast_to(np.int64(scope), shape),
            np.broadcast_to(np.int64(number), shape),
            entries,
            locations,
        )

    @classmethod
    def joined(cls, parts: Sequence[IndexBatch]) -> IndexBatch:
        """Return the rows of batches one behind the other; of a single one itself."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate(columns) for columns in zip(*parts)))

    def by_ledger(self) -> Iterator[tuple[LedgerId, Int64Array, Int64Array]]:
        """Yield (ledger, entries, locations) for each stretch of rows of one ledger."""
        for ledger, start, stop in ledger_stretches(self.scope_id, self.ledger_id):
            yield ledger, self.entry_id[start:stop], self.location[start:stop]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd or damaged that was met and passed by: where, and what.

    `severity` is "damage" where data could not be read, "oddity" where a bookie would get
    along but an operator wants to know.
    """

    severity: Literal["damage", "oddity"]
    detail: str
    file: str | None = None
    offset: int | None = None
    ledger: LedgerId | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    entries: int | None = None

    @classmethod
    def of(cls, error: BkstoreError, ledger: LedgerId | None = None) -> Finding:
        """Return the damage that an error reports.

        Raises the error itself where it says nothing about the data: what the machine lacks, and a
        missing package, are never findings.
        """
        if isinstance(error, (SystemRefused, MissingDependency)):
            raise error
        if isinstance(error, CorruptionError):
            return cls("damage", error.reason, error.file, error.offset, ledger)
        return cls("damage", str(error), None, None, ledger)

    def __str__(self) -> str:
        parts = [] if self.file is None else [self.file]
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ": ".join([*parts, self.detail])


class Closing(ABC):
    """Something to close, by `close` or by leaving its ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Release files. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class EntrySource(ABC):
    """Anything that knows which entries of which ledgers are here."""

    @abstractmethod
    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the known ledgers in unsigned order; None means of every scope."""

    @abstractmethod
    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids here, int64[n] sorted and distinct, of first..last inclusive.

        None is no end. The ends may lie anywhere, below 0, beyond int64 and last before first
        too: what is in between is listed, if anything. `check_bounds` brings them into int64.
        """

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id here, None if there is none."""
        entries = self.entries(ledger)
        return int(entries[-1]) if entries.size else None

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here, condensed. Opens no entry log."""
        return Availability.from_entries(self.entries(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of ledgers in unsigned order, each once, one by one.

        None are those that `ledgers` lists when it is called. The answers are what single calls
        would give: nothing of an unknown ledger, or of one that was deleted meanwhile; a change
        that comes after the call may be in them or not. Index data only, as there.

        With `errors`, a `BkstoreError` about one ledger goes there under its name, at the latest
        when the next ledger's answer comes, and the others follow; without, it is raised when
        its turn comes. What `ledgers` and `LedgerId.of` raise, this call raises; that the source
        is closed (`IllegalOperation`) is raised in any case, behind answers that were made.

        Memory: the names, and a part of the answers that does not grow with their number; an
        answer may share its memory with its neighbours. Done here by a call for each; a backend
        overrides it where one pass over many ledgers is cheaper.
        """
        return one_by_one(self.availability, self._names_asked(ledgers), errors)

    def _names_asked(self, ledgers: Iterable[LedgerLike] | None) -> list[LedgerId]:
        return self.ledgers() if ledgers is None else asked_for(ledgers)


class EntryIndex(EntrySource, Closing):
    """An entry source with locations and ledger states: a bookie's index.

    Usable as a context manager; leaving it closes. What a backend can do is said by the
    properties `writable`, `durable`, `supports_limbo` and `duplicates`; `layout` is any text that
    names it, the same however it is opened. A durable index can be reopened once it was closed,
    also if nothing was put, and has all changes then: rows, states and deletes.
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
        """Whether this index takes changes; else they raise `ReadOnlyError`."""

    @abstractmethod
    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Store locations for entries, any integers in any order, equally many of both.

        An unknown ledger becomes known, without entries too, its state `LedgerState()`; a known
        one's state stays. Raises `InvalidArgument` before anything is stored or made known: for
        what `check_put` refuses, and for entry ids that this backend has no place for (asked for
        them, it says absent).
        """

    @abstractmethod
    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return int64[n]: the location of each entry asked for, 0 where absent; in the order
        asked, as often as asked."""

    @abstractmethod
    def items(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of first..last, int64[n] each; the ends as in `entries`."""

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids of `items`; for a backend to override that can read them alone."""
        return self.items(ledger, first, last)[0]

    def has_ledger(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger is known: one of `ledgers`."""
        name = LedgerId.of(ledger)
        return name in self.ledgers(name.scope)

    @abstractmethod
    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return the ledger's state; `NoSuchLedger` if it is unknown."""

    def checked_state(self, ledger: LedgerLike) -> tuple[LedgerState, list[Finding]]:
        """Return the ledger's state, and what in it contradicts itself; raises as `state`.

        The state is as it is stored in any case. Costs little more than `state`.
        """
        name = LedgerId.of(ledger)
        state = self.state(name)
        odd = state_oddities(name, state.master_key, state.explicit_lac)
        return state, [Finding("oddity", detail, ledger=name) for detail in odd]

    @abstractmethod
    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Store the ledger's state in place of the one it had, making the ledger known; its
        entries stay. `UnsupportedLayout`, and nothing is stored, for what the backend cannot
        keep (limbo, or an explicit LAC in an old header)."""

    def can_store_explicit_lac(self, ledger: LedgerLike) -> bool:
        """Return whether `set_state` takes an explicit LAC of the ledger; True in most backends.

        Index files have no field for it in header version 0 (`FileInfo`).
        """
        LedgerId.of(ledger)
        return True

    @abstractmethod
    def delete(self, ledger: LedgerLike) -> None:
        """Forget the ledger: state and entries, so that it begins empty if it comes again.
        Nothing happens if it is unknown."""

    def delete_many(self, ledgers: Iterable[LedgerLike]) -> None:
        """Forget several ledgers."""
        for name in [LedgerId.of(ledger) for ledger in each("ledgers", ledgers)]:
            self.delete(name)

    @abstractmethod
    def flush(self) -> None:
        """Make every change durable, where the backend is `durable`; at any time, also where
        there is nothing to do."""

    @abstractmethod
    def close(self) -> None:
        """Release files; what a durable backend has not flushed is flushed. Idempotent."""

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store the location of one entry."""
        self.put_many(ledger, [entry], [location])

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry, None if absent."""
        location = int(self.get_many(ledger, [check_entry_id(entry)])[0])
        return location or None

    def scan(
        self, batch: int = DEFAULT_BATCH, findings: list[Finding] | None = None
    ) -> Iterator[IndexBatch]:
        """Return every row on disk in batches of about `batch` rows, by ledger and entry.

        No batch is empty; `batch` may be larger than any memory. Raises `InvalidArgument` for a
        `batch` below 1 or no integer (`check_batch`), here or at the first row. Rows of ledgers
        that are not listed (`findings` names them) are among them. Over several databases the
        order is by directory first.
        Memory is bounded by the batch. With a `findings` list, damage is appended to it and
        the scan goes on with the next ledger; without, it raises.

        Done here ledger by ledger, from what `_pieces` reads: that is the method for a backend
        to override whose ledgers may be larger than its memory.
        """
        return self._in_batches(check_batch("batch", batch), findings)

    def _in_batches(self, batch: int, findings: list[Finding] | None) -> Iterator[IndexBatch]:
        for ledger in self.ledgers():
            try:
                for entries, locations in self._pieces(ledger, batch):
                    yield IndexBatch.of_ledger(ledger, entries, locations)
            except CorruptionError as error:
                if findings is None:
                    raise
                findings.append(Finding.of(error, ledger))

    def _pieces(self, ledger: LedgerId, batch: int) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield (entries, locations) of a ledger in pieces of 1 to about `batch` rows, in order.

        Here they are cut from all of its `items`.
        """
        entries, locations = self.items(ledger)
        for at in range(0, entries.size, batch):
            yield entries[at : at + batch], locations[at : at + batch]

    def findings(self) -> list[Finding]:
        """Return oddities that opening and listing met: stray files, orphan rows, leftovers.

        None in an index that is new, or was closed and is as it was left.
        """
        return []


def check_state(state: LedgerState) -> None:
    """Raise `InvalidArgument` for what is no `LedgerState` of bytes; shows no key."""
    _check_state("state", state)
    data("master key", state.master_key)
    if state.explicit_lac is not None:
        data("explicit LAC", state.explicit_lac)


def check_put(entries: IntArrayLike, locations: IntArrayLike) -> tuple[Int64Array, Int64Array]:
    """Return checked entry ids and locations of equal length; else `InvalidArgument`."""
    ids, places = as_entry_ids(entries), as_locations(locations)
    if ids.size != places.size:
        raise InvalidArgument(f"{ids.size} entries, {places.size} locations")
    return ids, places


def locations_of(wanted: Int64Array, entries: Int64Array, locations: Int64Array) -> Int64Array:
    """Return the location of each wanted entry, 0 where sorted `entries` lack it."""
    if not entries.size:
        return np.zeros(wanted.size, np.int64)
    at = np.minimum(np.searchsorted(entries, wanted), entries.size - 1)
    return np.where(entries[at] == wanted, locations[at], np.int64(0))


def sorted_distinct(
    entries: Int64Array, values: Int64Array, duplicates: Literal["first", "last"]
) -> tuple[Int64Array, Int64Array]:
    """Return both sorted by entry, one row an entry; O(n) if they are already.

    `duplicates` says which of equal entries stays.
    """
    if is_ascending(entries):
        return entries, values
    order = np.argsort(entries, kind="stable")
    entries, values = entries[order], values[order]
    changes = entries[1:] != entries[:-1]
    keep = np.concatenate(([True], changes) if duplicates == "first" else (changes, [True]))
    return entries[keep], values[keep]
