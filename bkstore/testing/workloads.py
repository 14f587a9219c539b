"""Workloads: the streams of records that bookies receive, made from a seed.

A workload yields encoded entries, with the LAC and length that a real writer would send, in their
order of arrival, and the entries that must be stored at the end; the same for the same arguments.
Two bookies of one ensemble (`striped` with two indexes) get the same bytes for the entries that
both store. It is no load generator: making a record takes some 10 us.

Memory: some 60 records of each ledger that is being written, and those of `window`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np

from bkstore.arguments import (
    check_batch,
    check_fields,
    choice,
    instance,
    integer,
    number,
    pair,
    sequence_of,
)
from bkstore.errors import InvalidArgument
from bkstore.formats.entry import NO_ENTRY, Coder, Entry, master_key
from bkstore.formats.entry.digest import digest_name
from bkstore.ids import Int64Array, LedgerId
from bkstore.testing import generators

_T = TypeVar("_T")

WriteOrder = Literal["in turn", "round robin", "random"]

_CHUNK = 64  # entries made at once; a change would change the payloads


class LedgerShape(NamedTuple):
    """A ledger with entries from 0 on, and one bookie's position in its ensemble. The bookie is the
    `bookie_index`-th of `ensemble_size`; `write_quorum` of them get each entry."""

    ledger: LedgerId
    entry_count: int
    bookie_index: int = 0
    ensemble_size: int = 1
    write_quorum: int = 1

    def entries(self) -> Int64Array:
        """Return the entry ids that this bookie gets, ascending."""
        position = (self.bookie_index, self.ensemble_size, self.write_quorum)
        return generators.striped(self.entry_count - 1, *position)

    def is_stored_here(self, entry: int) -> bool:
        """Return whether this bookie gets the entry."""
        return (self.bookie_index - entry) % self.ensemble_size < self.write_quorum


class Arrivals(NamedTuple):
    """Ids in the order of arrival, one row each: unsigned scopes and ledgers, entries."""

    scope: np.ndarray[tuple[int], np.dtype[np.uint64]]
    ledger: np.ndarray[tuple[int], np.dtype[np.uint64]]
    entry: Int64Array


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Records of several ledgers in the order of arrival.

    `writers` is how ledgers take turns: one after the other ("in turn"), entry by entry ("round
    robin"), or at random. A share of `late` arrives up to `window` records after its turn, a share
    of `duplicate` arrives a second time within `window` records, with the same bytes. Payloads have
    `payload[0]`..`payload[1]` bytes. A writer's LAC is `in_flight` entries behind.

    >>> load = Workload(ledgers=(LedgerShape(LedgerId(ledger=7), 3),), payload=(5, 5))
    >>> [len(record) for record in load.records()], load.expected
    ([41, 41, 41], {LedgerId(scope=0, ledger=7): array([0, 1, 2])})
    """

    ledgers: tuple[LedgerShape, ...]
    writers: WriteOrder = "in turn"
    late: float = 0.0
    duplicate: float = 0.0
    window: int = 64
    payload: tuple[int, int] = (64, 512)
    in_flight: int = 1
    digest: str = "CRC32C"
    password: bytes = b"workload"
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)
        if len({shape.ledger for shape in self.ledgers}) != len(self.ledgers):
            raise InvalidArgument("a ledger has only one writer")

    @property
    def master_key(self) -> bytes:
        """The master key of all ledgers."""
        return master_key(self.password)

    @property
    def expected(self) -> dict[LedgerId, Int64Array]:
        """The entry ids that must be stored at the end by ledger, int64[n] ascending. A ledger
        without entries here has an empty array. Memory: 8 bytes an entry."""
        return {shape.ledger: shape.entries() for shape in self.ledgers}

    def records(self) -> Iterator[bytes]:
        """Yield the records in the order of arrival. About 10 us each."""
        return self._arrange_items(self._records_of)

    def ids(self, batch: int = 1 << 16) -> Iterator[Arrivals]:
        """Return the ids of the same records, up to `batch` rows at once. About 1 us a row."""
        rows, size = self._arrange_items(_ids_of), check_batch("batch", batch)
        return map(_columns_of, iter(lambda: list(islice(rows, size)), []))  # until no row is left

    def _arrange_items(self, items_of: Callable[[LedgerShape], Iterator[_T]]) -> Iterator[_T]:
        items = _take_turns([items_of(shape) for shape in self.ledgers], self.writers, self.seed)
        return _delay_and_repeat(items, self) if self.late or self.duplicate else items

    def _records_of(self, shape: LedgerShape) -> Iterator[bytes]:
        """Yield a ledger's records for this bookie; lengths count all entries of the ledger."""
        coder, ledger_length, ledger_id = Coder(self.digest, self.password), 0, shape.ledger
        min_size, max_size = self.payload
        for first in range(0, shape.entry_count, _CHUNK):
            # Payloads depend on seed, ledger and entry only, so all bookies get the same.
            rng = np.random.default_rng((self.seed, ledger_id.scope, ledger_id.ledger, first))
            stop = min(first + _CHUNK, shape.entry_count)
            sizes = rng.integers(min_size, max_size + 1, _CHUNK).tolist()
            payloads, payload_start = rng.bytes(sum(sizes)), 0
            for entry, size in zip(range(first, stop), sizes):
                ledger_length += size
                payload_end = payload_start + size
                if shape.is_stored_here(entry):
                    lac = max(entry - self.in_flight, NO_ENTRY)
                    payload = payloads[payload_start:payload_end]
                    yield coder.encode(Entry(ledger_id, entry, lac, ledger_length, payload))
                payload_start = payload_end


def _ids_of(shape: LedgerShape) -> Iterator[tuple[int, int, int]]:
    scope, ledger = shape.ledger
    stored = filter(shape.is_stored_here, range(shape.entry_count))
    return ((scope, ledger, entry) for entry in stored)


def _columns_of(rows: list[tuple[int, int, int]]) -> Arrivals:
    scope, ledger, entry = zip(*rows)
    return Arrivals(
        np.array(scope, np.uint64), np.array(ledger, np.uint64), np.array(entry, np.int64)
    )


def _take_turns(streams: list[Iterator[_T]], order: WriteOrder, seed: int) -> Iterator[_T]:
    """Yield the items of all streams, each stream's in order, interleaved as `order` says."""
    rng = random.Random(f"turns {seed}")  # noqa: S311  # not for secrets
    unfinished = list(streams)
    turn = 0
    while unfinished:
        if order == "random":
            turn = rng.randrange(len(unfinished))
        try:
            yield next(unfinished[turn])
        except StopIteration:
            del unfinished[turn]  # it is now the next one's turn, after the last the first one's
            turn = turn % len(unfinished) if unfinished else 0
        else:
            if order == "round robin":  # else the same one goes on until it ends
                turn = (turn + 1) % len(unfinished)


def _delay_and_repeat(stream: Iterator[_T], load: Workload) -> Iterator[_T]:
    """Delay some items and repeat some, by at most `window` turns."""
    rng = random.Random(f"late {load.seed}")  # noqa: S311  # not for secrets
    # A heap of (due turn, number, item); the numbers order equal turns, so items are not compared.
    delayed: list[tuple[int, int, _T]] = []
    number = 0
    for turn, item in enumerate(stream):
        while delayed and delayed[0][0] <= turn:  # the item that is due first is due now
            _, _, due_item = heapq.heappop(delayed)
            yield due_item
        is_late, is_repeated = rng.random() < load.late, rng.random() < load.duplicate
        if not is_late:
            yield item
        for _ in range(is_late + is_repeated):  # once if it is late, once more if it is repeated
            number += 1
            heapq.heappush(delayed, (turn + rng.randint(1, load.window), number, item))
    yield from (item for _, _, item in sorted(delayed))


def _ledger_ids(count: int, first_ledger: int, scopes: Sequence[int]) -> list[LedgerId]:
    return [LedgerId(scopes[i % len(scopes)], first_ledger + i) for i in range(count)]


def ledger_shaped(
    ledgers: int = 10,
    entries: int = 1000,
    *,
    skew: float = 1.0,
    seed: int = 0,
    first_ledger: int = 1,
    scopes: Sequence[int] = (0,),
) -> Workload:
    """Return ledgers written one after the other, of skewed sizes, `entries` in all.

    The k-th largest has a share of 1 / k^skew (0: equal sizes), in an order chosen by the seed;
    each has at least one entry. `scopes` are dealt out to the ledgers in turn.

    >>> load = ledger_shaped(3, 11, seed=1)
    >>> sorted(shape.entry_count for shape in load.ledgers), sum(1 for record in load.records())
    ([2, 4, 5], 11)
    """
    if not 1 <= ledgers <= entries:
        raise InvalidArgument(f"{entries} entries in {ledgers} ledgers")
    weights = 1.0 / np.arange(1, ledgers + 1) ** skew
    spare = entries - ledgers  # what is left after one entry for each ledger
    bounds = np.rint(np.cumsum(weights) / weights.sum() * spare).astype(np.int64)
    counts = 1 + np.diff(bounds, prepend=0)  # differences of rounded sums: they add up exactly
    shuffled = np.random.default_rng(seed).permutation(counts).tolist()
    ledger_ids = _ledger_ids(ledgers, first_ledger, scopes)
    shapes = tuple(LedgerShape(ledger_id, count) for ledger_id, count in zip(ledger_ids, shuffled))
    return Workload(ledgers=shapes, seed=seed)


def striped(
    bookie_index: int,
    ensemble_size: int = 3,
    write_quorum: int = 2,
    *,
    ledgers: int = 1,
    entries: int = 1000,
    seed: int = 0,
    first_ledger: int = 1,
    scopes: Sequence[int] = (0,),
) -> Workload:
    """Return the workload of one bookie of an ensemble: ledgers of `entries` entries each.

    >>> striped(0, 3, 2, entries=9).expected[LedgerId(ledger=1)].tolist()
    [0, 2, 3, 5, 6, 8]
    """
    if not (0 <= bookie_index < ensemble_size and 1 <= write_quorum <= ensemble_size):
        place = f"bookie {bookie_index} of {ensemble_size}"
        raise InvalidArgument(f"{place}, write quorum {write_quorum}")
    position = (bookie_index, ensemble_size, write_quorum)
    ledger_ids = _ledger_ids(ledgers, first_ledger, scopes)
    shapes = tuple(LedgerShape(ledger_id, entries, *position) for ledger_id in ledger_ids)
    return Workload(ledgers=shapes, seed=seed)


def interleaved(
    writers: int = 8,
    entries: int = 100,
    *,
    write_order: Literal["round robin", "random"] = "round robin",
    seed: int = 0,
    first_ledger: int = 1,
    scopes: Sequence[int] = (0,),
) -> Workload:
    """Return ledgers that are written at the same time, of `entries` entries each.

    >>> [ids] = interleaved(2, 3).ids()
    >>> ids.ledger.tolist(), ids.entry.tolist()
    ([1, 2, 1, 2, 1, 2], [0, 0, 1, 1, 2, 2])
    """
    ledger_ids = _ledger_ids(writers, first_ledger, scopes)
    shapes = tuple(LedgerShape(ledger_id, entries) for ledger_id in ledger_ids)
    return Workload(ledgers=shapes, writers=write_order, seed=seed)


_SHAPE_CHECKS = {
    "ledger": instance(LedgerId),
    "entry_count": integer(),
    "bookie_index": integer(),
    "ensemble_size": integer(1),
    "write_quorum": integer(1),
}


def _check_shape(name: str, shape: LedgerShape) -> LedgerShape:
    instance(LedgerShape)(name, shape)
    for field, check in _SHAPE_CHECKS.items():
        check(f"{name}.{field}", getattr(shape, field))
    return shape


def _check_digest(name: str, value: str) -> str:
    return digest_name(instance(str)(name, value))


_CHECKS = {
    "ledgers": sequence_of(_check_shape),
    "writers": choice(*get_args(WriteOrder)),
    "late": number(0, 1),
    "duplicate": number(0, 1),
    "window": integer(1),
    "payload": pair(integer()),
    "in_flight": integer(1),
    "digest": _check_digest,
    "password": instance(bytes),
    "seed": integer(-(2**63)),
}


def late_and_duplicate(
    workload: Workload, late: float = 0.05, duplicate: float = 0.05, window: int = 64
) -> Workload:
    """Return the same workload with shares of its records arriving late and twice.

    >>> load = late_and_duplicate(interleaved(1, 100), duplicate=1.0)
    >>> sum(1 for record in load.records()), len(load.expected[LedgerId(ledger=1)])
    (200, 100)
    """
    return replace(workload, late=late, duplicate=duplicate, window=window)
