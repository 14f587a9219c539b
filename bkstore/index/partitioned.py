"""PartitionedIndex: the indexes of several directories as one. As in db storage, ledger L is in
directory ``L mod n`` of the configured order (`DbLedgerStorage.getLedgerStorage`, `signSafeMod`);
in scopes other than 0 too, by the unsigned ledger half."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bkstore.arguments import check_batch
from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, IntArrayLike, LedgerId
from bkstore.index.api import (
    DEFAULT_BATCH,
    EntryIndex,
    Finding,
    IndexBatch,
    LedgerLike,
    LedgerState,
)
from bkstore.index.bulk_listing import LedgerErrors, list_from_parts


class PartitionedIndex(EntryIndex):
    """Several indexes of one layout, which it closes; ledger L belongs to part ``L mod n``. In
    another part a bookie cannot read it: it is not listed, but in `findings`. Threads: as the
    parts."""

    def __init__(self, parts: Sequence[EntryIndex]) -> None:
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

    def _part_of(self, ledger: LedgerLike) -> EntryIndex:
        return self.parts[self.part_index_of(ledger)]

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers that are in the part where they belong, in unsigned order."""
        lists = (
            [ledger for ledger in part.ledgers(scope) if self.part_index_of(ledger) == part_index]
            for part_index, part in enumerate(self.parts)
        )
        return list(heapq.merge(*lists))

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Inherited."""
        return self._part_of(ledger).entries(ledger, first, last)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Inherited."""
        return self._part_of(ledger).last_entry(ledger)

    def availability(self, ledger: LedgerLike) -> Availability:
        """Inherited."""
        return self._part_of(ledger).availability(ledger)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return the results of the parts, in ledger order."""
        return list_from_parts(
            self.parts, self.part_index_of, self._ledgers_to_list(ledgers), errors
        )

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Inherited."""
        return self._part_of(ledger).get(ledger, entry)

    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Inherited."""
        return self._part_of(ledger).get_many(ledger, entries)

    def items(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array]:
        """Inherited."""
        return self._part_of(ledger).items(ledger, first, last)

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Inherited."""
        self._part_of(ledger).put_many(ledger, entries, locations)

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Inherited."""
        return self._part_of(ledger).state(ledger)

    def checked_state(self, ledger: LedgerLike) -> tuple[LedgerState, list[Finding]]:
        """Inherited."""
        return self._part_of(ledger).checked_state(ledger)

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Inherited."""
        self._part_of(ledger).set_state(ledger, state)

    def can_store_explicit_lac(self, ledger: LedgerLike) -> bool:
        """Inherited."""
        return self._part_of(ledger).can_store_explicit_lac(ledger)

    def delete(self, ledger: LedgerLike) -> None:
        """Inherited."""
        self._part_of(ledger).delete(ledger)

    def flush(self) -> None:
        """Inherited."""
        for part in self.parts:
            part.flush()

    def close(self) -> None:
        """Inherited."""
        for part in self.parts:
            part.close()

    def scan(
        self, batch: int = DEFAULT_BATCH, findings: list[Finding] | None = None
    ) -> Iterator[IndexBatch]:
        """Return the rows of one part after the other, without ledgers in a part where they do not
        belong; `part_index_of` is the part's index."""
        return self._scan_parts(check_batch("batch", batch), findings)

    def _scan_parts(self, batch: int, findings: list[Finding] | None) -> Iterator[IndexBatch]:
        for part_index, part in enumerate(self.parts):
            for rows in part.scan(batch, findings):
                home_of_row = rows.ledger_id.view(np.uint64) % np.uint64(len(self.parts))
                if not (home_of_row == part_index).all():
                    rows = IndexBatch(*(column[home_of_row == part_index] for column in rows))
                if rows.entry_id.size:
                    yield rows._replace(dir_index=rows.dir_index + part_index)

    def findings(self) -> list[Finding]:
        """Return the parts' findings, and one for each ledger in the wrong part."""
        findings = [finding for part in self.parts for finding in part.findings()]
        for part_index, part in enumerate(self.parts):
            for ledger in part.ledgers():
                home = self.part_index_of(ledger)
                if home != part_index:
                    detail = (
                        f"ledger {ledger} is in directory {part_index}, a bookie searches {home}"
                    )
                    findings.append(Finding("oddity", detail, ledger=ledger))
        return findings
