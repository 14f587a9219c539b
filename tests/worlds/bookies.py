"""Directories of bookies made by operations, and what any reader must find in them.

For the families about rewrites: several ledgers of several scopes, small entry logs, entries added
again, ledgers deleted, a compaction, and, if wanted, a tail that only the journals have.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bkstore import Bookie, BookieDir, LedgerId
from bkstore.formats.entry import Coder, Entry, encode_explicit_lac
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions

SCOPED = LedgerId(0xF00D, 0x8000000000000001)
JOURNAL = JournalOptions(preallocate=0, max_backups=0)
CODER = Coder("CRC32C", "pw")

Answers = dict[LedgerId, tuple[LedgerState, dict[int, bytes]]]
"""For each ledger: its state, and record by entry."""


class Made(NamedTuple):
    """A bookie's root, and the ledgers that it has."""

    root: Path
    storage: StorageKind
    ledgers: list[LedgerId]


def make_bookie(
    root: Path,
    storage: StorageKind,
    seed: int = 1,
    *,
    directories: int = 1,
    journals: int = 1,
    scopes: bool = True,
    checkpoint: bool = True,
    indexes: int = 0,
    limbo: bool = False,
) -> Made:
    """Make a bookie below `root` and close it; without `checkpoint` its journals have a tail.

    An entry that is added again has another payload; with a tail the same, as which of two copies
    a replay keeps depends on the storage.
    """
    rng = random.Random(seed)
    names = [LedgerId.of(number) for number in rng.sample(range(300), 5)]
    names += [SCOPED, LedgerId(SCOPED.scope, 3)] if scopes else []
    bookie = Bookie.open(
        None,
        storage,
        ledger_dirs=_folders(root, "ledgers", directories),
        journal_dirs=_folders(root, "journal", journals),
        index_dirs=_folders(root, "index", indexes) if indexes else None,
        bookie_id="bookie-1:3181",
        options=StorageOptions(entry_log_size=8000, choose=rng.randrange),
        journal=JOURNAL,
    )
    for turn in range(3):
        for name in names:
            _add(bookie, name, turn, rng, checkpoint)
        bookie.storage.flush()
    bookie.fence(names[0], _key(names[0]))
    lac = encode_explicit_lac(names[1], 5, "CRC32C", "pw")
    bookie.set_explicit_lac(names[1], lac, _key(names[1]))
    if limbo:
        bookie.storage.set_limbo(names[2])
    bookie.delete_ledger(names[3])
    bookie.storage.flush()
    bookie.storage.collect_garbage()
    _add(bookie, names[4], 9, rng, checkpoint)
    bookie.close(checkpoint=checkpoint)
    return Made(root, storage, sorted({*names} - {names[3]}))


def _folders(root: Path, name: str, count: int) -> list[Path]:
    return [root / name] if count == 1 else [root / f"{name}{at}" for at in range(count)]


def _key(name: LedgerId) -> bytes:
    return hashlib.sha1(name.qualified_name.encode()).digest()


def _add(bookie: Bookie, name: LedgerId, turn: int, rng: random.Random, other: bool) -> None:
    """Add entries of a turn: new ones with gaps, and some that are there already."""
    ids = [20 * turn + n for n in range(20) if rng.random() < 0.8]
    if turn:
        ids += [rng.randrange(20 * turn) for _ in range(2)]
    for entry in dict.fromkeys(ids):
        source = rng if other else random.Random(f"{name} {entry}")
        payload = source.randbytes(source.randrange(20, 200))
        bookie.add_entry(CODER.encode(Entry(name, entry, entry - 1, 50, payload)), _key(name))


def answers(index: EntryIndex, bookie: BookieDir) -> Answers:
    """Return all that a copied directory says: states, and the record of each entry."""
    return {
        name: (
            index.state(name),
            {entry: bookie.read_entry(name, entry) for entry in index.entries(name).tolist()},
        )
        for name in index.ledgers()
    }


def directory_answers(root: Path) -> Answers:
    """Return what `BookieDir` finds below a root."""
    with BookieDir(root) as bookie:
        return answers(bookie.index, bookie)


def bookie_answers(root: Path, scratch: Path) -> Answers:
    """Return what a `Bookie` that starts on a copy of a root answers, its journals replayed."""
    shutil.copytree(root, scratch)
    with Bookie.open(scratch, journal=JOURNAL) as bookie:
        bookie.storage.flush()
        return {
            name: (
                bookie.storage.state(name),
                {
                    entry: bytes(bookie.read_entry(name, entry))
                    for entry in bookie.entries(name).tolist()
                },
            )
            for name in bookie.ledgers()
        }


def tree_bytes(root: Path) -> Mapping[str, str]:
    """Return the digest of each file below a folder, by its path there."""
    return {
        os.path.relpath(os.path.join(folder, name), root): hashlib.sha256(
            Path(folder, name).read_bytes()
        ).hexdigest()
        for folder, _, names in os.walk(root)
        for name in names
    }
