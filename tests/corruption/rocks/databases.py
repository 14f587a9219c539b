"""Databases with known answers, and what may become of the answers when files are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bkstore import (
    BkstoreError,
    CorruptionError,
    UnsupportedLayout,
)
from bkstore.index.api import LedgerState
from bkstore.index.rocks import RocksIndex

ENTRIES = 4000
LEDGERS = range(1, 6)

Answers = dict[str, Any]
QUESTIONS: dict[str, Callable[[RocksIndex], object]] = {
    "ledgers": lambda index: index.ledgers(),
    "scan": lambda index: [
        row for b in index.scan(1000) for row in zip(b.ledger_id.tolist(), b.entry_id.tolist())
    ],
    "ledgers_with_entries": lambda index: index.ledgers_with_entries(),
}
for _ledger in (1, 3, 5, 6):
    QUESTIONS |= {
        f"entries {_ledger}": lambda index, n=_ledger: index.entries(n).tolist(),
        f"availability {_ledger}": lambda index, n=_ledger: index.availability(n).ranges().tolist(),
        f"some {_ledger}": lambda index, n=_ledger: index.entries(n, 3000, 3010).tolist(),
        f"items {_ledger}": lambda index, n=_ledger: [c.tolist() for c in index.items(n)],
        f"last {_ledger}": lambda index, n=_ledger: index.last_entry(n),
        f"get {_ledger}": lambda index, n=_ledger: [index.get(n, e) for e in (0, 1, 4000, 7998)],
        f"many {_ledger}": lambda index, n=_ledger: index.get_many(n, [7998, 4000, 0, 1]).tolist(),
        f"dense {_ledger}": lambda index, n=_ledger: index.get_many(n, range(90)).tolist(),
    }
for _ledger in (1, 3, 5):
    QUESTIONS[f"state {_ledger}"] = lambda index, n=_ledger: index.state(n)


def answers_of(index: RocksIndex) -> Answers:
    """Return the answer to each question, or the error that came for it."""
    found: Answers = {}
    for name, ask in QUESTIONS.items():
        try:
            found[name] = ask(index)
        except CorruptionError as error:
            found[name] = error
    return found


def fill(index: RocksIndex) -> None:
    """Give every ledger the even entry ids at random locations, and a state."""
    for ledger in LEDGERS:
        places = np.random.default_rng(ledger).integers(1, 2**62, ENTRIES)
        index.put_many(ledger, np.arange(ENTRIES) * 2, places)
        index.set_state(ledger, LedgerState(b"k" * 20, ledger % 2 == 0, ledger == 3, bytes(20)))


def flush(index: RocksIndex) -> None:
    """Turn the memtables into table files."""
    for database in index._databases.values():
        database._handle.flush()


@contextmanager
def changed(file: Path, data: bytes) -> Iterator[None]:
    """Give a file other bytes for a while; the reading must not touch it."""
    original = file.read_bytes()
    file.write_bytes(data)
    try:
        yield
        assert data == file.read_bytes()
    finally:
        file.write_bytes(original)


def only_file(folder: Path, pattern: str) -> Path:
    """Return the one file of that name pattern that is not empty."""
    (found,) = (path for path in folder.glob(pattern) if path.stat().st_size)
    return found


def _opened(top: Path) -> Answers | BkstoreError:
    try:
        with RocksIndex(top) as index:
            return answers_of(index)
    except (CorruptionError, UnsupportedLayout) as error:
        return error


def check(top: Path, expected: Answers) -> str:
    """Assert that each answer is right or an error; return what happened, for the caller."""
    found = _opened(top)
    if isinstance(found, BkstoreError):
        assert str(top) in str(found)
        assert "bkstore-rocksdb-" not in str(found)
        return "refused"
    wrong = {
        name: answer
        for name, answer in found.items()
        if not isinstance(answer, CorruptionError) and answer != expected[name]
    }

    assert {} == wrong
    refusals = [answer for answer in found.values() if isinstance(answer, CorruptionError)]
    for refusal in refusals:
        assert str(top) in str(refusal)
        assert "bkstore-rocksdb-" not in str(refusal)
    return "partly" if refusals else "right"


def flip(data: bytes, at: int) -> bytes:
    """Return the bytes with one bit of the byte at `at` changed."""
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def zero(data: bytes, at: int) -> bytes:
    """Return the bytes with zeros in 16 of them."""
    return data[:at] + bytes(len(data[at : at + 16])) + data[at + 16 :]


def cut(data: bytes, at: int) -> bytes:
    """Return the bytes before `at`."""
    return data[:at]


DAMAGE = [flip, zero, cut]
