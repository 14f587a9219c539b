"""PartitionedIndex: the indexes of several directories as one. As in db storage, ledger L is in
directory ``L mod n`` of the configured order (`DbLedgerStorage.getLedgerStorage`, `signSafeMod`);
in scopes other than 0 too, by the unsigned ledger half."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from bkstore.arguments import check_batch
from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.index.api import (
    DEFAULT_BATCH,
    EntryIndex,
    Finding,
    Findings,
    IndexBatch,
    LedgerLike,
    LedgerListing,
)
from bkstore.index.bulk_listing import LedgerErrors, list_from_parts

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _of_part(
    method: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[PartitionedIndex, _P], _T]:
    """Return a method that calls the same method of the part to which its ledger belongs."""

    @wraps(method)
    def call(self: PartitionedIndex, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        """Call the method of the part that has the ledger, the first argument."""
        ledger = cast(LedgerLike, arguments[0] if arguments else options["ledger"])
        part = self.parts[self.part_index_of(ledger)]
        result: _T = getattr(part, method.__name__)(*arguments, **options)
        return result

    # `wraps` has copied `__isabstractmethod__` from the method, which may be an abstract one.
    call.__isabstractmethod__ = False  # type: ignore[attr-defined]
    return call


class PartitionedIndex(EntryIndex):
    """Several indexes of one layout, which it closes; ledger L belongs to part ``L mod n``. In
    another part a bookie cannot read it: it is only in `findings`. Threads: as the parts."""

    def __init__(self, parts: Sequence[EntryIndex]) -> None:
        """Put `parts` together, of which number ``L mod n`` has ledger L. The whole supports what
        all parts support."""
        if not parts:
            raise InvalidArgument("no index to partition")
        self.parts = list(parts)
        self.layout = parts[0].layout
        self.duplicates = parts[0].duplicates
        self.supports_limbo = all(part.supports_limbo for part in parts)
        self.durable = all(part.durable for part in parts)

    @property
    def writable(self) -> bool:
        """Inherited."""
        return all(part.writable for part in self.parts)

    @property
    def storage_flags(self) -> int | None:
        """The storage flags, which are in the directory of ledger 0; None if there are none."""
        return self.parts[0].storage_flags

    def part_index_of(self, ledger: LedgerLike) -> int:
        """Return the number of the part that the ledger belongs to."""
        return LedgerId.of(ledger).ledger % len(self.parts)

    entries = _of_part(EntryIndex.entries)
    last_entry = _of_part(EntryIndex.last_entry)
    availability = _of_part(EntryIndex.availability)
    get = _of_part(EntryIndex.get)
    get_many = _of_part(EntryIndex.get_many)
    items = _of_part(EntryIndex.items)
    put_many = _of_part(EntryIndex.put_many)
    state = _of_part(EntryIndex.state)
    has_ledger = _of_part(EntryIndex.has_ledger)
    checked_state = _of_part(EntryIndex.checked_state)
    set_state = _of_part(EntryIndex.set_state)
    can_store_explicit_lac = _of_part(EntryIndex.can_store_explicit_lac)
    delete = _of_part(EntryIndex.delete)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers that are in the part where they belong, in unsigned order."""
        return self._merge_ledgers([part.ledgers(scope) for part in self.parts])

    def list_readable_ledgers(self, scope: int | None = None) -> LedgerListing:
        """Return the ledgers of the parts, and what is unknown in each."""
        listings = [part.list_readable_ledgers(scope) for part in self.parts]
        part_count = len(self.parts)
        return LedgerListing(
            self._merge_ledgers([listing.ledgers for listing in listings]),
            [
                unknown._replace(dir_index=part_index, directories=part_count)
                for part_index, listing in enumerate(listings)
                for unknown in listing.unknown
            ],
            [
                *(finding for each in listings for finding in each.findings[: len(each.unknown)]),
                *(finding for each in listings for finding in each.findings[len(each.unknown) :]),
            ],
        )

    def _merge_ledgers(self, lists: Sequence[list[LedgerId]]) -> list[LedgerId]:
        """Return the ledgers of all parts' lists that belong to their part, in unsigned order."""
        own_ledgers = (
            [ledger for ledger in ledgers if self.part_index_of(ledger) == part_index]
            for part_index, ledgers in enumerate(lists)
        )
        return list(heapq.merge(*own_ledgers))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return the results of the parts, in ledger order."""
        ledger_ids = self._ledgers_to_list(ledgers)
        return list_from_parts(self.parts, self.part_index_of, ledger_ids, errors)

    def flush(self) -> None:
        """Inherited."""
        for part in self.parts:
            part.flush()

    def close(self) -> None:
        """Inherited."""
        for part in self.parts:
            part.close()

    def scan(self, batch: int = DEFAULT_BATCH, findings: Findings = None) -> Iterator[IndexBatch]:
        """Return the rows of one part after the other, without ledgers in a part where they do not
        belong; `part_index_of` is the part's index."""
        return self._scan_parts(check_batch("batch", batch), findings)

    def _scan_parts(self, batch: int, findings: Findings) -> Iterator[IndexBatch]:
        """Yield the rows of `scan`, part by part. Rows of ledgers that belong to another part are
        left out: no look-up finds them (`findings` reports such ledgers)."""
        for part_index, part in enumerate(self.parts):
            for rows in part.scan(batch, findings):
                # The rule of `part_index_of`, which takes unsigned ids, for all rows at once.
                is_home = rows.ledger_id.view(np.uint64) % np.uint64(len(self.parts)) == part_index
                if not is_home.all():
                    rows = IndexBatch(*(column[is_home] for column in rows))
                if rows.entry_id.size:  # a part numbers its only directory 0
                    yield rows._replace(dir_index=rows.dir_index + part_index)

    def findings(self) -> list[Finding]:
        """Return the parts' findings, and one for each ledger in another part than the one that its
        id assigns it to, where neither a bookie nor this index searches for it."""
        findings = [finding for part in self.parts for finding in part.findings()]
        for part_index, part in enumerate(self.parts):
            for ledger in part.list_readable_ledgers().ledgers:
                home = self.part_index_of(ledger)
                if home != part_index:
                    detail = f"is in directory {part_index}, a bookie searches {home}"
                    findings.append(Finding("oddity", f"ledger {ledger} {detail}", ledger=ledger))
        return findings
