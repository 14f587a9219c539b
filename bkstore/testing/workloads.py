"""Workloads: whole streams of records as bookies get them, made from a seed.

What this is: encoded entries with the LAC and length that a real writer would send, in the order
in which they arrive, and which entries must be there at the end. The same for the same arguments.
Two bookies of one ensemble (`striped` with two indexes) get the same bytes for the entries that
both have. What it is not: a load generator; making a record costs some 10 us.

Memory: some 60 records of each ledger that is being written, and of `window`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np

from bkstore.arguments import (
    any_of,
    check_batch,
    check_fields,
    choice,
    instance,
    number,
    pair,
    whole,
)
from bkstore.errors import InvalidArgument
from bkstore.formats.entry import NO_ENTRY, Coder, Entry, master_key
from bkstore.formats.entry.digest import digest_name
from bkstore.ids import Int64Array, LedgerId
from bkstore.testing import generators

_T = TypeVar("_T")

Writers = Literal["in turn", "round robin", "random"]

_CHUNK = 64  # entries made at once; decides the bytes, do not change


class LedgerShape(NamedTuple):
    """One ledger: entries 0..written-1, of which a bookie of a stripe gets some.

    The bookie has `bookie_index` of `ensemble_size`, each entry goes to `write_quorum` of them.
    """

    ledger: LedgerId
    written: int
    bookie_index: int = 0
    ensemble_size: int = 1
    write_quorum: int = 1

    def entries(self) -> Int64Array:
        """Return the ids that arrive here, ascending."""
        return generators.striped(
            self.written - 1, self.bookie_index, self.ensemble_size, self.write_quorum
        )

    def has(self, entry: int) -> bool:
        """Return whether the entry arrives here."""
        return (self.bookie_index - entry) % self.ensemble_size < self.write_quorum


class Arrivals(NamedTuple):
    """Ids in the order of arrival: unsigned scopes and ledgers, entries; one row each."""

    scope: np.ndarray[tuple[int], np.dtype[np.uint64]]
    ledger: np.ndarray[tuple[int], np.dtype[np.uint64]]
    entry: Int64Array


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Records of several ledgers in the order of arrival.

    `writers` says how ledgers take turns: one behind the other ("in turn"), entry by entry
    ("round robin"), or at random. A share of `late` arrives up to `window` records after its
    turn, a share of `duplicate` arrives a second time within `window` records, byte for byte the
    same. Payloads have `payload[0]`..`payload[1]` bytes. A writer has `in_flight` entries on
    their way: so far its LAC lies behind.

    >>> load = Workload(ledgers=(LedgerShape(LedgerId(ledger=7), 3),), payload=(5, 5))
    >>> [len(record) for record in load.records()], load.expected
    ([41, 41, 41], {LedgerId(scope=0, ledger=7): array([0, 1, 2])})
    """

    ledgers: tuple[LedgerShape, ...]
    writers: Writers = "in turn"
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
            raise InvalidArgument("a ledger has one writer, not two")

    @property
    def master_key(self) -> bytes:
        """The key under which all of its ledgers are made."""
        return master_key(self.password)

    @property
    def expected(self) -> dict[LedgerId, Int64Array]:
        """Which entries must be there at the end, int64[n] ascending for each ledger.

        Also where nothing arrived for a ledger (an empty array). 8 bytes an entry.
        """
        return {shape.ledger: shape.entries() for shape in self.ledgers}

    def records(self) -> Iterator[bytes]:
        """Yield the records in the order of arrival. About 10 us each."""
        return self._arriving(self._records_of)

    def ids(self, batch: int = 1 << 16) -> Iterator[Arrivals]:
        """Return the ids of the same arrivals, up to `batch` rows at once. About 1 us a row."""
        return self._id_batches(check_batch("batch", batch))

    def _id_batches(self, batch: int) -> Iterator[Arrivals]:
        rows: list[tuple[int, int, int]] = []
        for row in self._arriving(_ids_of):
            rows.append(row)
            if len(rows) == batch:
                yield _arrivals(rows)
                rows = []
        if rows:
            yield _arrivals(rows)

    def _arriving(self, items_of: Callable[[LedgerShape], Iterator[_T]]) -> Iterator[_T]:
        taken = _taking_turns([items_of(shape) for shape in self.ledgers], self.writers, self.seed)
        if self.late or self.duplicate:
            return _disturbed(taken, self.late, self.duplicate, self.window, self.seed)
        return taken

    def _records_of(self, shape: LedgerShape) -> Iterator[bytes]:
        """Yield a ledger's records that arrive here; all entries count for the lengths."""
        coder, length, name = Coder(self.digest, self.password), 0, shape.ledger
        for first in range(0, shape.written, _CHUNK):
            rng = np.random.default_rng((self.seed, name.scope, name.ledger, first))
            stop = min(first + _CHUNK, shape.written)
            sizes = rng.integers(self.payload[0], self.payload[1] + 1, _CHUNK).tolist()
            content, at = rng.bytes(sum(sizes)), 0
            for entry in range(first, stop):
                size = sizes[entry - first]
                length += size
                if shape.has(entry):
                    lac = max(entry - self.in_flight, NO_ENTRY)
                    part = content[at : at + size]
                    yield coder.encode(Entry(name, entry, lac, length, part))
                at += size


def _ids_of(shape: LedgerShape) -> Iterator[tuple[int, int, int]]:
    scope, ledger = shape.ledger
    return ((scope, ledger, e) for e in range(shape.written) if shape.has(e))


def _arrivals(rows: list[tuple[int, int, int]]) -> Arrivals:
    scope, ledger, entry = zip(*rows)
    return Arrivals(
        np.array(scope, np.uint64), np.array(ledger, np.uint64), np.array(entry, np.int64)
    )


def _taking_turns(streams: list[Iterator[_T]], writers: Writers, seed: int) -> Iterator[_T]:
    """Merge the streams of the writers; each stays in order."""
    rng = random.Random(f"turns {seed}")  # noqa: S311  # not for secrets
    alive = list(streams)
    at = 0
    while alive:
        if writers == "random":
            at = rng.randrange(len(alive))
        try:
            yield next(alive[at])
        except StopIteration:
            del alive[at]
            at = at % len(alive) if alive else 0
        else:
            if writers == "round robin":
                at = (at + 1) % len(alive)


def _disturbed(
    stream: Iterator[_T], late: float, duplicate: float, window: int, seed: int
) -> Iterator[_T]:
    """Hold some back, send some twice; at most `window` places behind their turn."""
    rng = random.Random(f"late {seed}")  # noqa: S311  # not for secrets
    waiting: list[tuple[int, int, _T]] = []  # due place, number, item
    numbers = 0
    for place, item in enumerate(stream):
        while waiting and waiting[0][0] <= place:
            yield heapq.heappop(waiting)[2]
        is_late, is_double = rng.random() < late, rng.random() < duplicate
        if not is_late:
            yield item
        for _ in range(is_late + is_double):
            numbers += 1
            heapq.heappush(waiting, (place + rng.randint(1, window), numbers, item))
    while waiting:
        yield heapq.heappop(waiting)[2]


# -- shapes


def _names(count: int, first_ledger: int, scopes: Sequence[int]) -> list[LedgerId]:
    return [LedgerId(scopes[at % len(scopes)], first_ledger + at) for at in range(count)]


def ledger_shaped(
    ledgers: int = 10,
    entries: int = 1000,
    *,
    skew: float = 1.0,
    seed: int = 0,
    first_ledger: int = 1,
    scopes: Sequence[int] = (0,),
) -> Workload:
    """Return ledgers one behind the other, of skewed sizes, `entries` in all.

    The k-th largest has a share of 1 / k^skew (0: all alike), in an order of the seed's; each
    has one entry at least. `scopes` are given to the ledgers by turns.

    >>> load = ledger_shaped(3, 11, seed=1)
    >>> sorted(shape.written for shape in load.ledgers), sum(1 for record in load.records())
    ([2, 4, 5], 11)
    """
    if not 1 <= ledgers <= entries:
        raise InvalidArgument(f"{entries} entries in {ledgers} ledgers")
    weights = 1.0 / np.arange(1, ledgers + 1) ** skew
    rest = entries - ledgers
    bounds = np.rint(np.cumsum(weights) / weights.sum() * rest).astype(np.int64)
    counts = 1 + np.diff(bounds, prepend=0)
    mixed = np.random.default_rng(seed).permutation(counts).tolist()
    names = _names(ledgers, first_ledger, scopes)
    shapes = tuple(LedgerShape(name, count) for name, count in zip(names, mixed))
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
    """Return what one bookie of an ensemble gets of ledgers with `entries` entries each.

    >>> striped(0, 3, 2, entries=9).expected[LedgerId(ledger=1)].tolist()
    [0, 2, 3, 5, 6, 8]
    """
    if not (0 <= bookie_index < ensemble_size and 1 <= write_quorum <= ensemble_size):
        raise InvalidArgument(
            f"bookie {bookie_index} of {ensemble_size}, write quorum {write_quorum}"
        )
    shapes = tuple(
        LedgerShape(name, entries, bookie_index, ensemble_size, write_quorum)
        for name in _names(ledgers, first_ledger, scopes)
    )
    return Workload(ledgers=shapes, seed=seed)


def interleaved(
    writers: int = 8,
    entries: int = 100,
    *,
    order: Literal["round robin", "random"] = "round robin",
    seed: int = 0,
    first_ledger: int = 1,
    scopes: Sequence[int] = (0,),
) -> Workload:
    """Return ledgers that are written at the same time, `entries` each.

    >>> [ids] = interleaved(2, 3).ids()
    >>> ids.ledger.tolist(), ids.entry.tolist()
    ([1, 2, 1, 2, 1, 2], [0, 0, 1, 1, 2, 2])
    """
    shapes = tuple(LedgerShape(name, entries) for name in _names(writers, first_ledger, scopes))
    return Workload(ledgers=shapes, writers=order, seed=seed)


_SHAPE = {
    "ledger": instance(LedgerId),
    "written": whole(),
    "bookie_index": whole(),
    "ensemble_size": whole(1),
    "write_quorum": whole(1),
}


def _check_shape(name: str, shape: LedgerShape) -> LedgerShape:
    instance(LedgerShape)(name, shape)
    for field, check in _SHAPE.items():
        check(f"{name}.{field}", getattr(shape, field))
    return shape


def _check_digest(name: str, value: str) -> str:
    return digest_name(instance(str)(name, value))


_CHECKS = {
    "ledgers": any_of(_check_shape),
    "writers": choice(*get_args(Writers)),
    "late": number(0, 1),
    "duplicate": number(0, 1),
    "window": whole(1),
    "payload": pair(whole()),
    "in_flight": whole(1),
    "digest": _check_digest,
    "password": instance(bytes),
    "seed": whole(-(2**63)),
}


def late_and_duplicate(
    workload: Workload, late: float = 0.05, duplicate: float = 0.05, window: int = 64
) -> Workload:
    """Return the same workload, of which a share arrives out of order and a share twice.

    What must be there at the end is the same.

    >>> load = late_and_duplicate(interleaved(1, 100), duplicate=1.0)
    >>> sum(1 for record in load.records()), len(load.expected[LedgerId(ledger=1)])
    (200, 100)
    """
    return replace(workload, late=late, duplicate=duplicate, window=window)
