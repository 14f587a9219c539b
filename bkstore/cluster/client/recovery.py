"""Recovery: ending a ledger whose writer is gone, without losing what it acknowledged.

Order: the metadata says IN_RECOVERY; the last ensemble's bookies are fenced, until no write set
is left that could acknowledge an entry; what lies behind the highest LAC that they tell is read
forward and written again to whole write sets; last entry and length go into the metadata,
CLOSED. Entries are looked for and written again several at a time, as upstream does with a
`recoveryReadBatchSize` above 1. Each step may be done by several clients at once, and again after
any failure: one of them closes the ledger, the others take over what it says. Source:
`client/LedgerRecoveryOp`, `client/ReadLastConfirmedOp`, `client/ReadOnlyLedgerHandle`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bkstore.cluster.client.appends.quorum_add import (
    QuorumAdd,
    all_took,
    replacement,
    with_ensemble,
)
from bkstore.cluster.client.bookie_answers import Answer, told
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.many_entries import ManyEntries, ask_for_entries
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.errors import BookieUnavailable, CorruptionError, IllegalOperation, NotEnoughBookies
from bkstore.formats.entry import Entry, RecordBatch
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import is_covered

LAST_ENTRY = -1

_FIRST, _MOST = 8, 256
"""Entries that are looked for together: few at first, as mostly there is nothing to be found."""

_ENOUGH = 1 << 20
"""Bytes that each bookie tells at a time, about."""

_PEACE = 10
"""For how many times as long as its silence took a bookie is left alone."""


def recover(access: LedgerAccess) -> LedgerMetadata:
    """Close a ledger and return its metadata; a closed one is left as it is.

    Raises `NotEnoughBookies` where the answers leave it open whether an entry was acknowledged,
    or where an entry finds no A bookies to be written to. The ledger stays IN_RECOVERY then, and
    the next try begins anew. Cost: a read and W writes for each entry behind the LAC, up to 256
    entries under way together.
    """
    metadata = access.update(_begun)
    return metadata if metadata.closed else _Recovery(access, metadata).run()


def _begun(metadata: LedgerMetadata) -> LedgerMetadata | None:
    return replace(metadata, state="IN_RECOVERY") if metadata.state == "OPEN" else None


class _Asked(NamedTuple):
    """What is known of the entries of a window.

    `answers` are of bookies that did not have an entry; `passed_over` are those that some bookie
    was not asked for, as it had enough to tell already.
    """

    found: dict[int, Entry]
    answers: dict[int, list[Answer[Entry]]]
    passed_over: set[int]

    def wants(self, entry: int) -> bool:
        """Return whether the next replica is to be asked for an entry."""
        return entry not in self.found and entry not in self.passed_over

    def note(self, bookie: str, entries: Sequence[int], many: ManyEntries) -> None:
        """Take what a bookie told of these entries."""
        self.found.update(many.found)
        for entry in entries:
            error = many.errors.get(entry)
            if error is not None:
                self.answers[entry].append(Answer(bookie, None, error))
            elif entry not in many.found:
                self.passed_over.add(entry)


class _Recovery:
    """One run. `begun` is the metadata at its start: entries are read from its last ensemble.

    Changes of ensemble stay in `changed` until the ledger is closed: another recovery may be
    running, and must find the ensemble that the writer had.
    """

    def __init__(self, access: LedgerAccess, begun: LedgerMetadata) -> None:
        self.access = access
        self.begun = begun
        self.changed = begun
        self.seen: list[Entry] = []
        self.silent: set[str] = set()
        """Bookies that gave no answer: they are asked for entries behind the others."""
        self.left_alone: dict[str, tuple[Answer[int], float]] = {}
        """Bookies that gave no answer to an entry, and until when they are given none."""

    def run(self) -> LedgerMetadata:
        last, window = self._fence(), _FIRST
        ended = False
        while not ended:
            found, ended = self._find(range(last + 1, last + 1 + window))
            if found:
                self._write_again(found)
                self.seen = found[-1:]
                last, window = found[-1].entry_id, min(2 * window, _MOST)
        length = self.access.length_at(last, self.seen)
        return self._close(last, length)

    def _fence(self) -> int:
        """Fence the last ensemble; return the entry up to which all is known to be confirmed.

        What lies before the last segment was confirmed when the segment was made.
        """
        first, ensemble = self.begun.segments[-1]
        answers = list(self.access.ask_each((bookie, self._fenced) for bookie in ensemble))
        self._note_silent(answers)
        known = [answer.value is not None or answer.negative for answer in answers]
        write, ack = self.begun.write_quorum_size, self.begun.ack_quorum_size
        if not is_covered(known, write, ack):
            raise NotEnoughBookies(
                f"ledger {self.access.ledger}: too few bookies are fenced: {told(answers)}"
            )
        self.seen = [entry for answer in answers for entry in answer.value or []]
        return max([first - 1, *(entry.lac for entry in self.seen)])

    def _note_silent(self, answers: Iterable[Answer[Any]]) -> None:
        self.silent |= {one.bookie for one in answers if isinstance(one.error, BookieUnavailable)}

    def _fenced(self, client: BookieClient) -> list[Entry]:
        """Fence the ledger at a bookie; return its last entry, nothing if the digest is wrong.

        With a wrong digest it is fenced all the same, and tells no LAC.
        """
        access = self.access
        record = client.read_entry(access.ledger, LAST_ENTRY, fence=True, master_key=access.key)
        try:
            return [access.verified(record)]
        except CorruptionError:
            return []

    def _find(self, window: range) -> tuple[list[Entry], bool]:
        """Return the entries of a window up to the first that no bookie has, and whether that
        cannot have been acknowledged.

        That is so when more than W - A bookies do not have it: fewer than A can. Every read
        fences: a bookie that does not have an entry will not take it from the writer any more.
        """
        asked = self._asked(window)
        found: list[Entry] = []
        for entry in window:
            known = asked.found.get(entry)
            if known is not None:
                found.append(known)
                continue
            answers = asked.answers[entry]
            lacking = sum(answer.negative for answer in answers)
            if lacking > self.begun.write_quorum_size - self.begun.ack_quorum_size:
                return found, True
            if found or entry in asked.passed_over:  # next time it is the first
                return found, False
            raise NotEnoughBookies(
                f"ledger {self.access.ledger}: whether entry {entry} was acknowledged is not "
                f"known: {told(answers)}"
            )
        return found, False

    def _asked(self, window: range) -> _Asked:
        """Ask for entries: each its first replica, then the next one for what that did not have;
        replicas that were silent before come last."""
        ensemble = self.begun.segments[-1].ensemble
        asked = _Asked({}, {entry: [] for entry in window}, set())
        order = {
            entry: sorted(self.access.replicas(entry, ensemble), key=self.silent.__contains__)
            for entry in window
        }
        for nth in range(self.begun.write_quorum_size):
            left = [entry for entry in window if asked.wants(entry)]
            shares: dict[str, list[int]] = {}
            for entry in left:
                shares.setdefault(order[entry][nth], []).append(entry)
            for (bookie, entries), many in zip(
                shares.items(), self.access.each(self._entries_of, shares.items())
            ):
                asked.note(bookie, entries, many)
        for answers in asked.answers.values():
            self._note_silent(answers)
        return asked

    def _entries_of(self, share: tuple[str, list[int]]) -> ManyEntries:
        return ask_for_entries(self.access, *share, _ENOUGH, fence=True)

    def _write_again(self, found: Sequence[Entry]) -> None:
        """Write entries to all of their write sets: the writer may have reached one bookie only.

        All at once, and one by one where a bookie fails: then it is replaced. One that is silent,
        and that nobody can replace, is waited for twice. Then it is left alone for ten times as
        long as that took, unless the acknowledgements need it.
        """
        coder = self.access.coder
        records = [coder.encode(each._replace(lac=each.entry_id - 1)) for each in found]
        batch = RecordBatch.of(records, [each.entry_id for each in found])
        ensemble = self.changed.segments[-1].ensemble
        began = time.monotonic()
        silent = {name: said for name, (said, until) in self.left_alone.items() if began < until}
        known = set(silent)
        if len(found) > 1 and not known and all_took(self.access, batch, ensemble, recovery=True):
            return
        for each, record in zip(found, records):
            self._write_one(each.entry_id, record, silent)
        ended = time.monotonic()
        for name in silent.keys() - known:
            self.left_alone[name] = silent[name], ended + _PEACE * (ended - began)

    def _write_one(self, entry: int, record: bytes, silent: dict[str, Answer[int]]) -> None:
        def change(failed: Sequence[int], refused: Collection[str]) -> tuple[str, ...] | None:
            now = self.changed.segments[-1].ensemble
            chosen = replacement(self.access.context, self.changed, now, failed, refused)
            if chosen is not None:
                self.changed = with_ensemble(self.changed, entry, chosen)
            return chosen

        ensemble = self.changed.segments[-1].ensemble
        add = QuorumAdd(self.access, entry, record, ensemble, change, recovery=True, silent=silent)
        add.run()

    def _close(self, last: int, length: int) -> LedgerMetadata:
        mine = len(self.begun.segments) - 1

        def closed(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if metadata.closed:  # by another recovery, or by the writer
                return None
            if metadata.segments[mine:] != self.begun.segments[mine:]:
                raise IllegalOperation(
                    f"ledger {metadata.ledger}: its ensembles changed during the recovery"
                )
            # Older segments may have had a lost bookie replaced meanwhile.
            return replace(
                metadata,
                state="CLOSED",
                last_entry_id=last,
                length=length,
                segments=(*metadata.segments[:mine], *self.changed.segments[mine:]),
            )

        return self.access.update(closed)
