"""Add entries to their write sets; `QuorumAdd` adds one entry and replaces bookies that fail.

Writers and recoveries use it. E, W and A are ensemble size, write quorum and ack quorum; a bookie
is given by its index in the ensemble. All responses of a round are received before anything is
decided, while BookKeeper acts on each. Source: `client/PendingAddOp`, `client/EnsembleUtils`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from bkstore.cluster.client.bookie_answers import BookieAnswer, describe_answers
from bkstore.cluster.client.bookie_client import BatchAdder, BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
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

_FATAL_ERRORS = (LedgerFenced, UnauthorizedAccess, InvalidArgument)
"""Errors that fail the add at once: replacing the bookie would not help."""

_Replace = Callable[[Sequence[int], Collection[str]], tuple[str, ...] | None]
"""Called with (failed indexes, failed bookies); returns the new ensemble or None."""


@dataclass
class QuorumAdd:
    """The add of one entry to its W bookies.

    `replace` gets the indexes of failed bookies, chooses the new ensemble and records it in the
    metadata. Bookies in `unresponsive`, which `run` adds to, did not respond to an earlier entry:
    they count as failed, and are asked only if fewer than A others store this one.
    """

    access: LedgerAccess
    entry_id: int
    record: bytes
    ensemble: tuple[str, ...]
    replace: _Replace
    recovery: bool = False
    sync: bool = True
    unresponsive: dict[str, BookieAnswer[int]] = field(default_factory=dict)
    acks: set[int] = field(default_factory=set)
    answers: dict[str, BookieAnswer[int]] = field(default_factory=dict)
    _skipped: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Send the entry until W bookies have it, or at least A if no replacements are left. Raises
        `NotEnoughBookies` with every bookie's answer if fewer than A have it, and `LedgerFenced`,
        `UnauthorizedAccess` or `InvalidArgument` as soon as a bookie answers with one of these."""
        metadata = self.access.metadata
        indexes = write_set(self.entry_id, metadata.ensemble_size, metadata.write_quorum_size)
        indexes_to_send = indexes
        while indexes_to_send:
            self._send(indexes_to_send)
            failed = [index for index in indexes if index not in self.acks]
            has_quorum = len(self.acks) >= metadata.ack_quorum_size
            if not failed or (has_quorum and self.access.context.options.delay_ensemble_change):
                return
            indexes_to_send = self._replace_failed(failed)
            if not indexes_to_send and not has_quorum:  # ask the skipped bookies after all
                indexes_to_send = self._readmit_skipped()
        if not has_quorum:
            raise NotEnoughBookies(
                f"entry {self.entry_id} of ledger {self.access.ledger}: {len(self.acks)} of "
                f"{metadata.ack_quorum_size} bookies have acknowledged it: "
                f"{describe_answers(list(self.answers.values()))}"
            )

    def _send(self, indexes: Sequence[int]) -> None:
        """Send the entry to the bookies at these indexes, and record their answers. Those in
        `unresponsive` are not asked: they count as failed with the answer given there."""

        def add(client: BookieClient) -> int:
            return client.add_entry(
                self.record, self.access.key, recovery=self.recovery, sync=self.sync
            )

        asked = [index for index in indexes if self.ensemble[index] not in self.unresponsive]
        for index in set(indexes).difference(asked):
            self.answers[self.ensemble[index]] = self.unresponsive[self.ensemble[index]]
            self._skipped.append(index)
        answers = self.access.call_bookies((self.ensemble[index], add) for index in asked)
        for index, answer in zip(asked, answers):
            self.answers[answer.bookie] = answer
            raise_if_fatal(answer)
            if answer.error is None:
                self.acks.add(index)
            elif isinstance(answer.error, BookieUnavailable):
                self.unresponsive[answer.bookie] = answer

    def _readmit_skipped(self) -> list[int]:
        """Regard the bookies that `_send` skipped as responsive again, so that the entry is sent to
        them after all; return their indexes."""
        skipped, self._skipped = self._skipped, []
        # The bookie at a skipped index may have been replaced since.
        indexes = [index for index in skipped if self.ensemble[index] in self.unresponsive]
        for index in indexes:
            del self.unresponsive[self.ensemble[index]]
        return indexes

    def _replace_failed(self, failed_indexes: list[int]) -> list[int]:
        """Replace as many of the failed bookies as possible; return the indexes replaced."""
        for count in range(len(failed_indexes), 0, -1):
            ensemble = self.replace(failed_indexes[:count], self._failed_bookies())
            if ensemble is not None:
                self.ensemble = ensemble
                return failed_indexes[:count]
        return []

    def _failed_bookies(self) -> set[str]:
        return {bookie for bookie, answer in self.answers.items() if answer.error is not None}


def add_to_all(
    access: LedgerAccess, batch: RecordBatch, ensemble: Sequence[str], *, recovery: bool = False
) -> bool:
    """Send each bookie of the ensemble its entries, by one call; return whether all stored them."""
    size, quorum = len(ensemble), access.metadata.write_quorum_size
    batches = (select_records(batch, index, size, quorum) for index in range(size))
    requests = (
        (bookie, make_sender(access, bookie_batch, recovery=recovery))
        for bookie, bookie_batch in zip(ensemble, batches)
        if len(bookie_batch)
    )
    return all(answer.error is None for answer in access.call_bookies(requests))


def make_sender(
    access: LedgerAccess, batch: RecordBatch, *, recovery: bool = False
) -> Callable[[BookieClient], None]:
    """Return a function that adds a batch at a bookie, in one call if the bookie supports that."""
    options = {"recovery": True} if recovery else {}

    def send(client: BookieClient) -> None:
        """Send the batch by one call if the client can, else record by record."""
        if isinstance(client, BatchAdder):
            client.add_batch(batch, access.key, **options)
            return
        for record in batch.records():
            client.add_entry(record, access.key, **options)

    return send


def select_records(
    batch: RecordBatch, index: int, ensemble_size: int, write_quorum: int
) -> RecordBatch:
    """Return the records whose write set includes this ensemble index; see `schedule.write_set`."""
    if write_quorum == ensemble_size:
        return batch.framed()
    # With E = 3 and W = 2, entry 7 goes to indexes 1 and 2: (index - 7) % 3 is 0 and 1.
    rows = np.flatnonzero((index - batch.entries) % ensemble_size < write_quorum)
    return batch.take(rows).framed()


def raise_if_fatal(answer: BookieAnswer[_T]) -> None:
    """Raise an answer's error, with the bookie's id, if replacing the bookie would not help:
    `LedgerFenced`, `UnauthorizedAccess`, `InvalidArgument`."""
    for error_type in _FATAL_ERRORS:
        if isinstance(answer.error, error_type):
            raise error_type(f"{answer.bookie}: {answer.error}")


def choose_replacement(
    access: LedgerAccess, metadata: LedgerMetadata, failed: Sequence[int], excluded: Collection[str]
) -> tuple[str, ...] | None:
    """Return the last segment's ensemble with other bookies at the indexes `failed`, None if too
    few writable ones are left. `excluded` are bookies not to choose. `metadata` may have segments
    that are not in the metadata store yet."""
    context = access.context
    available = context.writable_bookies(metadata.ledger.scope) - set(excluded)
    ensemble = metadata.segments[-1].ensemble
    quorums = metadata.write_quorum_size, metadata.ack_quorum_size
    try:
        return context.placement.replace(ensemble, failed, *quorums, available)
    except NotEnoughBookies:
        return None


def add_segment(metadata: LedgerMetadata, first: int, ensemble: Sequence[str]) -> LedgerMetadata:
    """Return the metadata with a new segment, which replaces one that begins at the same entry;
    raises `IllegalOperation` if it would begin before the last segment."""
    last = metadata.segments[-1]
    if first < last.first_entry:
        message = f"ledger {metadata.ledger}: segment {first} is before segment {last.first_entry}"
        raise IllegalOperation(message)
    earlier = metadata.segments[:-1] if first == last.first_entry else metadata.segments
    return replace(metadata, segments=(*earlier, Segment(first, tuple(ensemble))))
