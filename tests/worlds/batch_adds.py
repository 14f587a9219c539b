"""Adds in batches: random records, cut at random, to be held against single adds.

What is made here is what a writer, or a careless one, may send: ledgers in turns, ids in any
order, again, far apart, records that are none.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.formats.entry import Coder, Entry, RecordBatch
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.errors import BAD_RECORDS
from tests.worlds.batches import SHAPES, shaped

__all__ = [
    "KEY",
    "LARGEST",
    "NAMES",
    "Sent",
    "add_in_batches",
    "add_one_by_one",
    "answers",
    "files_below",
    "rows_of",
    "sendings",
    "told",
]

NAMES = [
    LedgerId(0, 7),
    LedgerId(0, 8),
    LedgerId(0, 2**63 - 1),
    LedgerId(1, 7),
    LedgerId(2**64 - 1, 2**63),
]
LARGEST = 5000
"""The `max_entry_size` that these records are made for; some are larger."""

KEY = b"k" * 20
"""The master key of all ledgers; any other is another writer's."""

_CODER = Coder("CRC32C", "pw")
_SPOILERS = ["none"] * 12 + ["bad", "large", "huge", "says another", "unknown", "high", "copies"]


class Sent(NamedTuple):
    """Records in order, and how they go: in which cuts and shapes, with what beside them.

    `says` are the entry ids that the batches claim, of which one may be wrong.
    """

    records: list[bytes]
    says: list[int]
    wrong: int | None
    cuts: list[int]
    shapes: list[str]
    key: bytes | None
    recovery: bool

    def __repr__(self) -> str:
        """Return what is sent, records as entry id and size only."""
        rows = " ".join(
            f"{record[:8].hex().lstrip('0')}:{entry}({len(record)})"
            for record, entry in zip(self.records, self.says, strict=True)
        )
        how = f"cuts={self.cuts} shapes={self.shapes} key={self.key!r} recovery={self.recovery}"
        return f"<Sent {rows} wrong={self.wrong} {how}>"

    @classmethod
    def of(cls, records: list[bytes], **how: Any) -> Sent:
        """Return records whose batches say the ids that they say themselves."""
        return cls(records, list(map(_entry_of, records)), wrong=None, **how)

    def truthful(self) -> Sent:
        """Return the same without a wrong claim, which only a batch can make."""
        return self._replace(says=list(map(_entry_of, self.records)), wrong=None)

    def claiming(self, at: int, by: int) -> Sent:
        """Return the same with a claim about record `at` that is wrong by `by`."""
        says = list(self.says)
        says[at] += by
        return self._replace(says=says, wrong=at)

    def batches(self) -> Iterator[tuple[int, RecordBatch]]:
        """Yield (number of the first record, batch)."""
        ends = sorted({0, len(self.records), *self.cuts})
        for number, (start, stop) in enumerate(pairwise(ends)):
            shape = self.shapes[number % len(self.shapes)]
            yield start, shaped(shape, self.records[start:stop], self.says[start:stop])


# -- what is sent


@st.composite
def sendings(draw: Any, most: int = 60) -> Sent:
    """Return some stretches of ledgers, one behind the other or in turns, maybe spoilt."""
    rnd = random.Random(draw(st.integers(0, 2**32)))
    stretches = [draw(_stretches(most, rnd)) for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3])))]
    mixed = _in_turns(stretches, rnd) if draw(st.booleans()) else list(chain(*stretches))
    how = draw(st.sampled_from(_SPOILERS))
    _spoil(mixed, how, rnd)
    sent = Sent.of(
        mixed,
        cuts=draw(st.lists(st.integers(0, len(mixed)), max_size=3)),
        shapes=draw(st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=2)),
        key=draw(st.sampled_from([KEY] * 8 + [None, None, b"another", b"", bytes(20)])),
        recovery=draw(st.sampled_from([False, False, True])),
    )
    if how == "says another":
        return sent.claiming(rnd.randrange(len(mixed)), rnd.choice((-1, 1)))
    return sent


@st.composite
def _stretches(draw: Any, most: int, rnd: random.Random) -> list[bytes]:
    name = draw(st.sampled_from(NAMES))
    first = draw(st.integers(0, 12) | st.sampled_from([40, 1000, 1020, 3000]))
    count = draw(st.integers(1, most))
    step = draw(st.sampled_from([1, 1, 1, 2, 3, 700]))
    size = draw(st.sampled_from([0, 1, 30, 100, 400, 2500]))
    entries = [first + step * at for at in range(count)]
    order = draw(st.sampled_from(["ascending"] * 4 + ["descending", "mixed", "again"]))
    if order == "descending":
        entries.reverse()
    elif order == "mixed":
        rnd.shuffle(entries)
    elif order == "again":
        entries += rnd.sample(entries, len(entries) // 2 + 1)
    equal = draw(st.booleans())
    return [_made(name, entry, size if equal else rnd.randint(0, size), rnd) for entry in entries]


def _made(name: LedgerId, entry: int, size: int, rnd: random.Random) -> bytes:
    lac = max(-1, entry + rnd.randint(-9, 2))
    return _CODER.encode(Entry(name, entry, lac, 10 * entry, rnd.randbytes(size)))


def _in_turns(stretches: list[list[bytes]], rnd: random.Random) -> list[bytes]:
    """Return all, each stretch in its order, the next from any of them."""
    turns = [number for number, some in enumerate(stretches) for _ in some]
    if rnd.random() < 0.5:
        rnd.shuffle(turns)
    else:
        places = [(at, number) for number, some in enumerate(stretches) for at in range(len(some))]
        turns = [number for _, number in sorted(places)]
    parts = list(map(iter, stretches))
    return [next(parts[number]) for number in turns]


def _spoil(records: list[bytes], how: str, rnd: random.Random) -> None:
    """Put something among the records."""
    at, (name, entry) = rnd.randint(0, len(records)), (rnd.choice(NAMES), rnd.randint(0, 50))
    if how == "bad":
        records.insert(at, BAD_RECORDS[rnd.choice(sorted(BAD_RECORDS))])
    elif how == "large":
        records.insert(at, _made(name, entry, LARGEST - rnd.randint(34, 46), rnd))
    elif how == "huge":
        records.insert(at, _made(name, entry, 3 * LARGEST, rnd))
    elif how == "unknown":
        records.insert(at, _made(LedgerId(9, 9), entry, 10, rnd))
    elif how == "high":
        high = rnd.choice((2**63 - 2, 2**40, 2**63 - 1, -1, -(2**63)))
        records.insert(at, struct.pack(">qqqq", 7, high, -1, 0) + bytes(9))
    elif how == "copies":
        records[at:at] = [_made(name, entry, 10 + number, rnd) for number in range(5)]


def _entry_of(record: bytes) -> int:
    """Return the entry id that a record says, -1 where it says none."""
    return int.from_bytes(_entry_field(record), "big", signed=True)


def _entry_field(record: bytes) -> bytes:
    """Return the bytes of the entry id, -1 where there are none."""
    at = 17 if record[:1] >= b"\x80" else 8
    return record[at : at + 8] if len(record) >= at + 8 else b"\xff" * 8


# -- both ways of adding

Outcome = tuple[str, str, int]
"""The error's class and message ("" where all was taken), and how many records were taken."""


def add_one_by_one(sent: Sent, add: Callable[[bytes], int]) -> Outcome:
    """Add the records by single calls, up to the first that is refused."""
    for at, record in enumerate(sent.records):
        try:
            if at == sent.wrong:
                raise InvalidArgument(  # what only a batch can be refused for
                    f"the batch lists entry {sent.says[at]}, but its record is {_entry_of(record)}"
                )
            add(record)
        except BkstoreError as error:
            return type(error).__name__, str(error), at
    return "", "", len(sent.records)


def add_in_batches(sent: Sent, add_batch: Callable[[RecordBatch], Any]) -> Outcome:
    """Add the records by batches, up to the first that is refused; the ids that are told fit."""
    for start, batch in sent.batches():
        said = batch.entries.tolist()
        try:
            told_ids = add_batch(batch)
        except BkstoreError as error:
            return type(error).__name__, str(error), start + _stored(error, len(batch))
        assert said == told_ids.tolist()
    return "", "", len(sent.records)


def _stored(error: BkstoreError, most: int) -> int:
    """Return how many records an error says are stored: fewer than were given."""
    assert error.stored is not None
    assert 0 <= error.stored < most
    return error.stored


# -- what is there


def told(ask: Callable[[], Any]) -> tuple[str, Any]:
    """Return an answer, or the error's class and message."""
    try:
        return "answer", ask()
    except BkstoreError as error:
        return type(error).__name__, str(error)


def answers(storage: Any, lac: bool) -> dict[Any, Any]:
    """Return everything that a storage or bookie says of its ledgers.

    With `lac` the last add confirmed too: in compat mode asking for it has consequences.
    """
    found: dict[Any, Any] = {"ledgers": storage.ledgers()}
    for name in [*NAMES, LedgerId(9, 9)]:
        entries = storage.entries(name).tolist()
        found[name, "entries"] = entries
        found[name, "availability"] = storage.availability(name).entries().tolist()
        found[name, "last"] = told(lambda name=name: storage.last_entry(name))
        found[name, "state"] = told(lambda name=name: storage.state(name))
        found[name, "single"] = [
            told(lambda name=name, entry=entry: storage.read_entry(name, entry))
            for entry in [*entries[:: len(entries) // 8 + 1], -1]
        ]
        found[name, "batches"] = list(_runs(storage, name, entries))
        if lac:
            found[name, "lac"] = told(lambda name=name: storage.last_add_confirmed(name))
    return found


def _runs(storage: Any, name: LedgerId, entries: list[int]) -> Iterator[tuple[str, Any]]:
    """Yield what batch reads give, one behind the other."""

    def read(start: int) -> tuple[list[int], list[bytes]]:
        batch = storage.read_entries(name, start)
        return batch.entries.tolist(), batch.records()

    at = 0
    while at < len(entries):
        kind, batch = told(partial(read, entries[at]))
        yield kind, batch
        at += len(batch[0]) if kind == "answer" else 1


def files_below(top: Path) -> dict[str, bytes]:
    """Return the bytes of every file below `top`, by relative path; without locks, databases."""
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and not _is_database(path.parent)
    }


def _is_database(folder: Path) -> bool:
    return folder.parent.name == "current" and folder.name.startswith(("ledgers", "locations"))


def rows_of(storage: LedgerStorage) -> list[Any]:
    """Return what the indexes hold, by directory: locations and states of every ledger."""
    return [
        [
            (name, *map(list, path.index.items(name)), path.index.state(name))
            for name in path.index.ledgers()
        ]
        for path in storage.write_paths
    ]
