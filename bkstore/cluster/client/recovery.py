"""Recovery: close a ledger whose writer is gone, without losing acknowledged entries.

The steps: set the state IN_RECOVERY in the metadata; fence the last ensemble's bookies, until no
write set is left that could acknowledge an entry; read the entries after the highest LAC that they
return, and write them again to their whole write sets, several at a time (`recoveryReadBatchSize`);
set last entry, length and state CLOSED. Several clients may do each step at once, and repeat it
after any failure: one closes the ledger, and the others return its metadata. W and A are write
quorum and ack quorum; a window is the run of entry ids that is read together. Source:
`client/LedgerRecoveryOp`, `client/ReadLastConfirmedOp`, `client/ReadOnlyLedgerHandle`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bkstore.cluster.client.appends.quorum_add import (
    QuorumAdd,
    add_segment,
    add_to_all,
    choose_replacement,
)
from bkstore.cluster.client.bookie_answers import BookieAnswer, describe_answers
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.many_entries import ManyEntries, read_entries_from
from bkstore.errors import BookieUnavailable, CorruptionError, IllegalOperation, NotEnoughBookies
from bkstore.formats.entry import Entry, RecordBatch
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import is_covered

LAST_ENTRY = -1

_FIRST_WINDOW, _MAX_WINDOW = 8, 256
"""Entries read together: few at first, as there are mostly none after the LAC."""

_MAX_BYTES_PER_BOOKIE = 1 << 20
"""About how many bytes are read from each bookie at a time."""

_BACKOFF_FACTOR = 10
"""A bookie that did not respond is skipped for this many times as long as it delayed writes."""


def recover_ledger(access: LedgerAccess) -> LedgerMetadata:
    """Close a ledger and return its metadata; a closed ledger is left as it is.

    Raises `NotEnoughBookies` if it stays unknown whether an entry was acknowledged, or if fewer
    than A bookies store an entry; the ledger stays IN_RECOVERY then, and the next attempt starts
    over. Cost: a read and W writes for each entry after the LAC, up to 256 concurrently.
    """
    metadata = access.update(_set_in_recovery)
    return metadata if metadata.closed else _Recovery(access, metadata).run()


def _set_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata | None:
    return replace(metadata, state="IN_RECOVERY") if metadata.state == "OPEN" else None


class _WindowRead(NamedTuple):
    """The entries of a window that were read so far. `answers` has the errors of bookies without an
    entry; `skipped` are entries not asked for somewhere because of the byte limit."""

    entries: dict[int, Entry]
    answers: dict[int, list[BookieAnswer[Entry]]]
    skipped: set[int]

    def needs_next_replica(self, entry_id: int) -> bool:
        return entry_id not in self.entries and entry_id not in self.skipped

    def record_result(self, bookie: str, entry_ids: Sequence[int], result: ManyEntries) -> None:
        """Record what a bookie returned for these entries. One with neither a value nor an error
        was left out, because the answer had reached its byte limit: `skipped`, to be asked for
        again."""
        self.entries.update(result.entries)
        for entry in entry_ids:
            error = result.errors.get(entry)
            if error is not None:
                self.answers[entry].append(BookieAnswer(bookie, None, error))
            elif entry not in result.entries:
                self.skipped.add(entry)


class _Recovery:
    """One recovery. Entries are read from the last ensemble of the metadata at its start."""

    def __init__(self, access: LedgerAccess, initial: LedgerMetadata) -> None:
        self.access = access
        self.initial_metadata = initial
        self.changed_metadata = initial
        """With the ensemble changes, not stored until the ledger is closed: another recovery may be
        running, and must see the writer's ensemble in the metadata store."""
        self.last_entries: list[Entry] = []
        """The entries read last, from which the ledger's length may be known."""
        self.unresponsive: set[str] = set()
        """Bookies that did not respond: they are asked for entries after the others."""
        self.skipped_bookies: dict[str, tuple[BookieAnswer[int], float]] = {}
        """Bookies that did not respond to a write: the answer, and until when they are skipped."""

    def run(self) -> LedgerMetadata:
        """Fence the ledger, copy its readable tail to full quorums, close it, and return the
        metadata."""
        last, window_size = self._fence_last_ensemble(), _FIRST_WINDOW
        is_end = False
        while not is_end:
            entries, is_end = self._read_window(range(last + 1, last + 1 + window_size))
            if entries:
                self._write_again(entries)
                self.last_entries = entries[-1:]
                last, window_size = entries[-1].entry_id, min(2 * window_size, _MAX_WINDOW)
        length = self.access.read_length(last, self.last_entries)
        return self._close_ledger(last, length)

    def _fence_last_ensemble(self) -> int:
        """Fence the last ensemble; return the highest entry that is known to be confirmed, by an
        LAC, or because a writer confirms all entries before it adds the last segment."""
        metadata = self.initial_metadata
        segment_start, ensemble = metadata.segments[-1]
        answers = list(self.access.call_bookies((bookie, self._fence_at) for bookie in ensemble))
        self._record_unresponsive(answers)
        has_answered = [answer.value is not None or answer.is_not_found for answer in answers]
        # Entries may still be acknowledged unless the bookies that answered cover all write sets.
        if not is_covered(has_answered, metadata.write_quorum_size, metadata.ack_quorum_size):
            raise NotEnoughBookies(
                f"ledger {self.access.ledger}: too few bookies could be fenced: "
                f"{describe_answers(answers)}"
            )
        self.last_entries = [entry for answer in answers for entry in answer.value or []]
        return max([segment_start - 1, *(entry.lac for entry in self.last_entries)])

    def _record_unresponsive(self, answers: Iterable[BookieAnswer[Any]]) -> None:
        self.unresponsive |= {
            answer.bookie for answer in answers if isinstance(answer.error, BookieUnavailable)
        }

    def _fence_at(self, client: BookieClient) -> list[Entry]:
        """Fence the ledger at a bookie; return its last entry, none if its digest is wrong: such a
        bookie counts as fenced, but contributes no LAC."""
        access = self.access
        record = client.read_entry(access.ledger, LAST_ENTRY, fence=True, master_key=access.key)
        try:
            return [access.verify_record(record)]
        except CorruptionError:
            return []

    def _read_window(self, window: range) -> tuple[list[Entry], bool]:
        """Return the entries before a window's first missing one, and whether the ledger ends. It
        does if more than W - A bookies state that they lack that entry: it cannot have been
        acknowledged, and, as reads fence, those bookies will not accept it any more."""
        metadata = self.initial_metadata
        max_lacking = metadata.write_quorum_size - metadata.ack_quorum_size
        window_read = self._read_replicas(window)
        entries: list[Entry] = []
        for entry_id in window:
            entry = window_read.entries.get(entry_id)
            if entry is not None:
                entries.append(entry)
                continue
            answers = window_read.answers[entry_id]
            if sum(answer.is_not_found for answer in answers) > max_lacking:
                return entries, True
            if entries or entry_id in window_read.skipped:  # in the next window it comes first
                return entries, False
            raise NotEnoughBookies(
                f"ledger {self.access.ledger}: cannot determine whether entry {entry_id} was "
                f"acknowledged: {describe_answers(answers)}"
            )
        return entries, False

    def _read_replicas(self, window: range) -> _WindowRead:
        """Read entries, each from its first replica that has it, unresponsive ones asked last."""
        ensemble = self.initial_metadata.segments[-1].ensemble
        is_unresponsive = self.unresponsive.__contains__
        window_read = _WindowRead({}, {entry: [] for entry in window}, set())
        replica_order = {
            entry: sorted(self.access.write_set_of(entry, ensemble), key=is_unresponsive)
            for entry in window
        }
        # In each round, a bookie is asked at once for all entries of which it is the next replica.
        for replica_index in range(self.initial_metadata.write_quorum_size):
            shares: dict[str, list[int]] = {}
            for entry in filter(window_read.needs_next_replica, window):
                shares.setdefault(replica_order[entry][replica_index], []).append(entry)
            results = self.access.map(self._read_share, shares.items())
            for (bookie, entries), result in zip(shares.items(), results):
                window_read.record_result(bookie, entries, result)
        for answers in window_read.answers.values():
            self._record_unresponsive(answers)
        return window_read

    def _read_share(self, share: tuple[str, list[int]]) -> ManyEntries:
        return read_entries_from(self.access, *share, _MAX_BYTES_PER_BOOKIE, fence=True)

    def _write_again(self, entries: Sequence[Entry]) -> None:
        """Write entries to their whole write sets: the writer may have reached one bookie only. A
        bookie that does not respond, and for which there is no replacement, is skipped for some
        time, unless an entry would have fewer than A replicas without it."""
        # All at once, unless a bookie is skipped. The LAC in each record is the entry before it, as
        # from a writer with one entry in flight.
        coder = self.access.coder
        records = [coder.encode(entry._replace(lac=entry.entry_id - 1)) for entry in entries]
        batch = RecordBatch.of(records, [entry.entry_id for entry in entries])
        ensemble = self.changed_metadata.segments[-1].ensemble
        started = time.monotonic()
        skipped = {
            bookie: answer
            for bookie, (answer, skip_until) in self.skipped_bookies.items()
            if started < skip_until
        }
        previously_skipped = set(skipped)
        may_batch = len(entries) > 1 and not previously_skipped
        if may_batch and add_to_all(self.access, batch, ensemble, recovery=True):
            return
        # Singly: bookies that fail are replaced; those that do not respond are added to `skipped`.
        for entry, record in zip(entries, records):
            self._rewrite_entry(entry.entry_id, record, skipped)
        finished = time.monotonic()
        skip_until = finished + _BACKOFF_FACTOR * (finished - started)
        for bookie in skipped.keys() - previously_skipped:
            self.skipped_bookies[bookie] = (skipped[bookie], skip_until)

    def _rewrite_entry(
        self, entry_id: int, record: bytes, unresponsive: dict[str, BookieAnswer[int]]
    ) -> None:
        """Add one entry; ensemble changes are made in `changed_metadata` only."""

        def change(failed: Sequence[int], excluded: Collection[str]) -> tuple[str, ...] | None:
            """Replace failed bookies in this recovery's metadata; None if there are no others."""
            new_ensemble = choose_replacement(self.access, self.changed_metadata, failed, excluded)
            if new_ensemble is not None:
                self.changed_metadata = add_segment(self.changed_metadata, entry_id, new_ensemble)
            return new_ensemble

        ensemble = self.changed_metadata.segments[-1].ensemble
        quorum_add = QuorumAdd(
            self.access,
            entry_id,
            record,
            ensemble,
            change,
            recovery=True,
            unresponsive=unresponsive,
        )
        quorum_add.run()

    def _close_ledger(self, last: int, length: int) -> LedgerMetadata:
        """Close the ledger in the metadata store, with the ensembles of this recovery; return its
        metadata. Another recovery, or the writer, may have closed it already."""
        last_index = len(self.initial_metadata.segments) - 1

        def close_metadata(metadata: LedgerMetadata) -> LedgerMetadata | None:
            """Return the closed ledger's metadata, None if it is closed already."""
            if metadata.closed:  # by another recovery, or by the writer
                return None
            if metadata.segments[last_index:] != self.initial_metadata.segments[last_index:]:
                message = f"ledger {metadata.ledger}: its ensembles changed during recovery"
                raise IllegalOperation(message)
            # Older segments may have had a lost bookie replaced meanwhile; the last, and those that
            # follow it, are as this recovery wrote the entries.
            new_segments = self.changed_metadata.segments[last_index:]
            segments = (*metadata.segments[:last_index], *new_segments)
            closed = replace(metadata, state="CLOSED", last_entry_id=last, length=length)
            return replace(closed, segments=segments)

        return self.access.update(close_metadata)
