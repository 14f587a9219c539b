"""Entries in a row from all bookies that have them at once, in order, with bounded memory.

A range is cut into pieces, and a piece into shares: a share is read from one bookie, and what that
one does not have from the next of the write set. The shares of a piece go out together, and the
next piece is under way while one is handed out. Where every bookie has every entry (E = W) a share
is read in batches. Upstream sends a single read for each entry of the range at once, whatever their
number: `client/LedgerHandle.asyncReadEntriesInternal`, `client/PendingReadOp`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from bkstore.cluster.client.batch_reads import BatchReader
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.many_entries import ManyEntries, ask_for_entries, take
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.errors import BkstoreError, BookieUnavailable, IllegalOperation
from bkstore.formats.entry import Entry

_SHARE_ENTRIES = 512
SHARE_BYTES = 1 << 20
"""What one bookie is asked for together, about."""

_LEAST = 64
"""Entries below which a share is not cut again, and which the first ones have."""

_AROUND = 64
"""Bytes of a record around its payload, and a frame's: header, digest, size."""

_PIECES = 2
_PLAIN_SECONDS = 30.0
"""How long a bookie that fell silent over a batch is asked for single entries: it may be one that
ends the connection, as it does not know batch reads."""


class _Share(NamedTuple):
    """Entries that have the same bookies, in the order in which those are asked."""

    entries: range
    bookies: tuple[str, ...]


class _Piece(NamedTuple):
    """Entries in a row, their shares, and what is told of each share, in the same order."""

    entries: range
    shares: list[_Share]
    answers: Iterator[ManyEntries]


class RangeReader:
    """Reads ranges of one handle's ledger. Threads: each `scan` is for one thread.

    Memory: for each bookie two shares of about 1 MiB, or of 16 entries if those are more. Behind
    small entries a share may once be 256 large ones, as no bookie tells sizes before.
    """

    def __init__(self, access: LedgerAccess, batches: BatchReader) -> None:
        self._access = access
        self._batches = batches
        self._plain: dict[str, float] = {}
        """Bookies that are asked for single entries, and until when."""

    def scan(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the entries first..last in order; raises as `LedgerAccess.read` at the first that
        no replica has, when it comes to that."""
        ahead: deque[_Piece] = deque()
        silent: set[str] = set()
        at, turn, most = first, 0, _LEAST
        while at <= last or ahead:
            while at <= last and len(ahead) < _PIECES:
                ahead.append(self._begun(range(at, last + 1), most, turn, silent))
                at, turn = ahead[-1].entries.stop, turn + 1
            largest = 0
            for entry in self._told(ahead.popleft(), silent):
                largest = max(largest, len(entry.payload))
                yield entry
            most = max(1, min(_SHARE_ENTRIES, SHARE_BYTES // (largest + _AROUND)))

    def _told(self, piece: _Piece, silent: set[str]) -> Iterator[Entry]:
        """Yield the entries of a piece."""
        found: dict[int, Entry] = {}
        failed: set[int] = set()
        for answers in piece.answers:
            found |= answers.found
            failed |= answers.errors.keys()
        for entry in piece.entries:
            if piece.shares and entry not in found and entry not in failed:  # larger than expected
                (share,) = (share for share in piece.shares if entry in share.entries)
                rest = share.entries[share.entries.index(entry) :]
                answers = self._read(silent, _Share(rest, share.bookies))
                found |= answers.found
                failed |= answers.errors.keys()
            known = found.pop(entry, None)
            # What no bookie gave is asked for again where the metadata of now say that it is.
            yield known if known is not None else self._access.read(entry)

    # -- who is asked for what

    def _begun(self, left: range, most: int, turn: int, silent: set[str]) -> _Piece:
        """Ask for the next piece, which lies in one segment."""
        metadata = self._access.metadata
        starts = (segment.first_entry for segment in metadata.segments)
        end = min((start for start in starts if start > left.start), default=left.stop)
        left = left[: end - left.start]
        ensemble = metadata.ensemble_at(left.start)
        if metadata.write_quorum_size < len(ensemble):
            shares = self._striped(left[: most * len(ensemble)], ensemble)
        else:
            shares = _spread(left, ensemble, most, turn)
        entries = left[: sum(len(share.entries) for share in shares)]
        if len(entries) == 1:  # by itself
            return _Piece(entries, [], iter(()))
        return _Piece(entries, shares, self._access.each(partial(self._read, silent), shares))

    def _striped(self, entries: range, ensemble: Sequence[str]) -> list[_Share]:
        size = len(ensemble)
        return [
            _Share(entries[nth::size], tuple(self._access.replicas(first, ensemble)))
            for nth, first in enumerate(entries[:size])
        ]

    # -- one share, in a thread of the workers

    def _read(self, silent: set[str], share: _Share) -> ManyEntries:
        """Ask the bookies of a share in turn, those that were silent last; the errors are of
        entries that none of them has."""
        answers = ManyEntries({}, {})
        left: Sequence[int] = share.entries
        for nth, bookie in enumerate(sorted(share.bookies, key=silent.__contains__)):
            answers.errors.clear()
            if nth == 0 and self._batched(bookie):
                left = self._in_batches(bookie, share.entries, answers)
            more = ask_for_entries(self._access, bookie, left, SHARE_BYTES)
            answers.found.update(more.found)
            answers.errors.update(more.errors)
            if any(isinstance(error, BookieUnavailable) for error in answers.errors.values()):
                silent.add(bookie)
            left = sorted(answers.errors)
            if not left:
                break
        return answers

    def _batched(self, bookie: str) -> bool:
        known_plain = time.monotonic() < self._plain.get(bookie, 0.0)
        return not known_plain and self._batches.cannot() is None

    def _in_batches(self, bookie: str, entries: range, answers: ManyEntries) -> Sequence[int]:
        """Take entries by batch reads; return those that are left for single reads.

        A gap, damage and a bookie without batch reads leave the rest; enough bytes leave none.
        """
        at = entries.start

        def read(client: BookieClient) -> None:
            nonlocal at
            held = 0
            if not client.batch_reads:
                raise IllegalOperation(f"{bookie} does not know batch reads")
            while at < entries.stop and held < SHARE_BYTES:
                batch = client.read_entries(
                    self._access.ledger, at, entries.stop - at, SHARE_BYTES - held
                )
                take(self._access, batch, answers)
                at += len(batch)
                held += int(batch.sizes.sum())

        error = self._access.ask(bookie, read).error
        if error is None:
            return ()
        self._note(bookie, error)
        left = entries[at - entries.start :]
        if isinstance(error, BookieUnavailable):
            answers.errors.update(dict.fromkeys(left, error))
            return ()
        return left

    def _note(self, bookie: str, error: BkstoreError) -> None:
        if isinstance(error, (IllegalOperation, BookieUnavailable)):
            self._plain[bookie] = time.monotonic() + _PLAIN_SECONDS


def _spread(left: range, ensemble: Sequence[str], most: int, turn: int) -> list[_Share]:
    """Cut entries that every bookie has; each bookie is the first to be asked for its part."""
    size = len(ensemble)
    count = min(max(size, 2), -(-len(left) // _LEAST))
    each = min(most, -(-len(left) // count))
    parts = (left[start : start + each] for start in range(0, min(len(left), count * each), each))
    return [
        _Share(part, (*ensemble[(turn + nth) % size :], *ensemble[: (turn + nth) % size]))
        for nth, part in enumerate(parts)
    ]
