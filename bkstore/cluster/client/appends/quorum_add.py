"""Adding entries to their write sets; one by one, bookies that fail are replaced.

Used by writers and by recoveries, which differ in what a replacement does to the metadata.
Source: `client/PendingAddOp`, `client/EnsembleUtils`. Upstream acts on each answer as it comes;
here all of a round are in before anything is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from bkstore.cluster.client.bookie_answers import Answer, told
from bkstore.cluster.client.bookie_client import BookieClient, TakesMany
from bkstore.cluster.client.open_ledger import ClientContext, LedgerAccess
from bkstore.errors import (
    BookieUnavailable,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkstore.formats.entry import RecordBatch
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.schedule import write_set

_T = TypeVar("_T")

_FINAL = (LedgerFenced, UnauthorizedAccess, InvalidArgument)
"""Answers that no other bookie would make good."""

_Replace = Callable[[Sequence[int], Collection[str]], tuple[str, ...] | None]
"""From (failed indexes, bookies that failed) to the new ensemble; None if there is none."""


@dataclass
class QuorumAdd:
    """One entry on its way to W bookies.

    `replace` is called with the indexes of failed bookies, and makes the change of ensemble
    known as its owner has to. Bookies in `silent` gave no answer to an entry before: they count as
    failed, and are asked only where fewer than A others take this one. New ones are noted there.
    """

    access: LedgerAccess
    entry: int
    record: bytes
    ensemble: tuple[str, ...]
    replace: _Replace
    recovery: bool = False
    sync: bool = True
    silent: dict[str, Answer[int]] = field(default_factory=dict)
    acks: set[int] = field(default_factory=set)
    answers: dict[str, Answer[int]] = field(default_factory=dict)
    _passed_over: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Return when at least A bookies have it, and each of W if enough bookies can be had.

        Raises `NotEnoughBookies` with every bookie's answer if fewer than A have it; at once
        `LedgerFenced`, `UnauthorizedAccess`, `InvalidArgument` as a bookie says so.
        """
        metadata = self.access.metadata
        wanted = write_set(self.entry, metadata.ensemble_size, metadata.write_quorum_size)
        todo = wanted
        while todo:
            self._send(todo)
            failed = [index for index in wanted if index not in self.acks]
            enough = len(self.acks) >= metadata.ack_quorum_size
            if not failed or (enough and self.access.context.options.delay_ensemble_change):
                return
            todo = self._replaced(failed)
            if not todo and not enough:
                todo = self._needed_after_all()
        if not enough:
            raise NotEnoughBookies(
                f"entry {self.entry} of ledger {self.access.ledger}: {len(self.acks)} of "
                f"{metadata.ack_quorum_size} bookies took it: {told(list(self.answers.values()))}"
            )

    def _send(self, indexes: Sequence[int]) -> None:
        def add(client: BookieClient) -> int:
            return client.add_entry(
                self.record, self.access.key, recovery=self.recovery, sync=self.sync
            )

        asked = [index for index in indexes if self.ensemble[index] not in self.silent]
        for index in set(indexes).difference(asked):
            self.answers[self.ensemble[index]] = self.silent[self.ensemble[index]]
            self._passed_over.append(index)
        answers = self.access.ask_each((self.ensemble[index], add) for index in asked)
        for index, answer in zip(asked, answers):
            self.answers[answer.bookie] = answer
            raise_if_final(answer)
            if answer.error is None:
                self.acks.add(index)
            elif isinstance(answer.error, BookieUnavailable):
                self.silent[answer.bookie] = answer

    def _needed_after_all(self) -> list[int]:
        """Return the indexes of silent bookies that were not asked, which are asked now."""
        passed, self._passed_over = self._passed_over, []
        needed = [index for index in passed if self.ensemble[index] in self.silent]
        for index in needed:
            del self.silent[self.ensemble[index]]
        return needed

    def _replaced(self, failed: list[int]) -> list[int]:
        """Replace as many of the failed bookies as there are others; return their indexes."""
        for count in range(len(failed), 0, -1):
            ensemble = self.replace(failed[:count], self._refused())
            if ensemble is not None:
                self.ensemble = ensemble
                return failed[:count]
        return []

    def _refused(self) -> set[str]:
        return {name for name, answer in self.answers.items() if answer.error is not None}


def all_took(
    access: LedgerAccess, batch: RecordBatch, ensemble: Sequence[str], *, recovery: bool = False
) -> bool:
    """Send entries to all of their write sets, each bookie its own by one call; return whether
    every bookie took all of them, durably."""
    quorum = access.metadata.write_quorum_size
    parts = (part_of(batch, index, len(ensemble), quorum) for index in range(len(ensemble)))
    questions = (
        (bookie, sender(access, part, recovery=recovery))
        for bookie, part in zip(ensemble, parts)
        if len(part)
    )
    return all(answer.error is None for answer in access.ask_each(questions))


def sender(
    access: LedgerAccess, batch: RecordBatch, *, recovery: bool = False
) -> Callable[[BookieClient], None]:
    """Return what adds a batch at a bookie, in one call if it takes many."""
    options = {"recovery": True} if recovery else {}

    def send(client: BookieClient) -> None:
        if isinstance(client, TakesMany):
            client.add_batch(batch, access.key, **options)
            return
        for record in batch.records():
            client.add_entry(record, access.key, **options)

    return send


def part_of(batch: RecordBatch, index: int, ensemble_size: int, write_quorum: int) -> RecordBatch:
    """Return the records that the bookie at this index has to have; `schedule.write_set`."""
    if write_quorum == ensemble_size:
        return batch.framed()
    rows = np.flatnonzero((index - batch.entries) % ensemble_size < write_quorum)
    return batch.at(rows).framed()


def raise_if_final(answer: Answer[_T]) -> None:
    """Raise the error of an answer that no other bookie would make good, with its bookie's id:
    `LedgerFenced`, `UnauthorizedAccess`, `InvalidArgument`."""
    for kind in _FINAL:
        if isinstance(answer.error, kind):
            raise kind(f"{answer.bookie}: {answer.error}")


def replacement(
    context: ClientContext,
    metadata: LedgerMetadata,
    ensemble: Sequence[str],
    failed: Sequence[int],
    refused: Collection[str],
) -> tuple[str, ...] | None:
    """Return the ensemble with other registered bookies at `failed`, None if there are too few."""
    free = context.writable_bookies(metadata.ledger.scope) - set(refused)
    try:
        return context.placement.replace(
            ensemble, failed, metadata.write_quorum_size, metadata.ack_quorum_size, free
        )
    except NotEnoughBookies:
        return None


def with_ensemble(
    metadata: LedgerMetadata, first_entry: int, ensemble: Sequence[str]
) -> LedgerMetadata:
    """Return the metadata with a new segment; one that begins at the same entry is replaced.

    `IllegalOperation` for one that would begin before the last segment.
    """
    last = metadata.segments[-1]
    if first_entry < last.first_entry:
        raise IllegalOperation(
            f"ledger {metadata.ledger}: segment {first_entry} before segment {last.first_entry}"
        )
    kept = metadata.segments[:-1] if first_entry == last.first_entry else metadata.segments
    return replace(metadata, segments=(*kept, Segment(first_entry, tuple(ensemble))))
