"""FinishedSegments: the ledgers of a store as far as they can no longer change, for an audit.

An audit skips open ledgers and marked ones. A repair needs both: the segments of an open ledger
before its last one do not grow any more, and a marked ledger is what there is to repair. So it
audits this view, in which an open ledger ends where its last segment begins, and has no marks. A
scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from bkstore.cluster.store.api import MetadataStore, ValuesOrErrors, Versioned
from bkstore.errors import CorruptionError
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata


class FinishedSegments:
    """The calls of a `MetadataStore` that an audit uses, for some ledgers (None: all).

    `with_departed` collects, from the metadata that are read, the ledgers that name a bookie that
    is not in `registered` (None: unknown, none is collected). Threads: one audit at a time.
    """

    def __init__(
        self,
        store: MetadataStore,
        registered: frozenset[str] | None,
        ledgers: Iterable[LedgerId] | None = None,
    ) -> None:
        """Make a view of `ledgers` in `store`; `registered` are the bookies that are not
        departed."""
        self._store = store
        self._registered = registered
        self._ledgers = None if ledgers is None else sorted(ledgers)
        self.with_departed: set[LedgerId] = set()

    def as_store(self) -> MetadataStore:
        """Return the view as an audit takes it: an audit calls the methods below only."""
        return cast(MetadataStore, self)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """As `MetadataStore.ledgers`, of the chosen ones."""
        if self._ledgers is None:
            return self._store.ledgers(scope)
        return [ledger for ledger in self._ledgers if scope in (None, ledger.scope)]

    def read_many(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[Versioned]:
        """Yield (ledger, metadata and version) in order, or an error for damaged metadata; open
        ledgers end before their last segment. Adds to `with_departed`."""
        for ledger_id, versioned in self._store.read_many(ledgers):
            if isinstance(versioned, CorruptionError):
                yield ledger_id, versioned
                continue
            metadata = versioned.metadata
            if self._registered is not None and not metadata.bookies <= self._registered:
                self.with_departed.add(ledger_id)
            yield ledger_id, Versioned(finished_part(metadata), versioned.version)

    def marked(self) -> frozenset[LedgerId]:
        """Return no ledger: a mark does not keep a ledger from being repaired."""
        return frozenset()

    def marks_of(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[UnderreplicatedMark]:
        """Return no marks."""
        return iter(())

    def registered_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.registered_bookies`."""
        return self._registered

    def unavailable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.unavailable_bookies`."""
        return self._store.unavailable_bookies()


def finished_part(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return the metadata of an open ledger as if it were closed at the end of its last segment but
    one; of other ledgers, and of those with one segment or with problems, the metadata themselves.

    Entries before the last segment are confirmed: a writer adds a segment after its last confirmed
    entry only (`client/LedgerHandle.handleBookieFailure`).

    >>> ledger = LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"]), (5, ["b1", "b3"])])
    >>> finished_part(ledger).segments_with_ends()
    [SegmentRange(first_entry=0, last_entry=4, ensemble=('b1', 'b2'))]
    """
    if metadata.closed or len(metadata.segments) < 2 or metadata.problems():
        return metadata
    *finished, last = metadata.segments
    return replace(
        metadata, state="CLOSED", segments=tuple(finished), last_entry_id=last.first_entry - 1
    )
