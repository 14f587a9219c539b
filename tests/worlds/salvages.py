"""What a salvage owes: each entry whose frame is whole. For families that damage directories."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bkstore import BookieDir, LedgerId
from bkstore.ids import split_location
from bkstore.offline.rewrite import SalvageResult, salvage
from tests.worlds.bookies import tree_bytes


class Kept(NamedTuple):
    """An entry that the index names: where its frame lies, and its record."""

    ledger: LedgerId
    entry: int
    file: str
    position: int
    record: bytes


def entries_of(root: Path) -> list[Kept]:
    """Return what the index of an undamaged bookie names."""
    found = []
    with BookieDir(root) as bookie:
        for name in bookie.index.ledgers():
            entries, numbers, locations = bookie.locate(name)
            for entry, number, place in zip(entries.tolist(), numbers.tolist(), locations.tolist()):
                log_id, position = split_location(place)
                path = bookie.log_file(log_id, number).path
                record = bookie.read_entry(name, entry)
                file = os.path.relpath(path, root)
                found.append(Kept(name, entry, file, position, record))
    return found


def undamaged(kept: Iterable[Kept], root: Path) -> list[Kept]:
    """Return those whose frames are as they were."""
    data = {os.path.relpath(path, root): path.read_bytes() for path in root.rglob("*.log")}
    return [
        one
        for one in kept
        if data.get(one.file, b"")[one.position - 4 : one.position + len(one.record)]
        == len(one.record).to_bytes(4, "big") + one.record
    ]


def check_salvage(root: Path, kept: list[Kept], target: Path, shown: object) -> SalvageResult:
    """Salvage a damaged root: each entry with a sound frame is there; each other is told."""
    before = tree_bytes(root)
    result = salvage(root, target)
    sound = undamaged(kept, root)
    with BookieDir(target) as bookie:
        there = {
            (name, entry): record
            for name in bookie.index.ledgers()
            for batch in bookie.scan_ledger(name)
            for entry, record in zip(batch.entries.tolist(), batch.records())
        }
        lost = [one for one in sound if (one.ledger, one.entry) not in there]

        assert [] == [one[:4] for one in lost], shown
        for one in sound:
            assert one.record == there[one.ledger, one.entry], (shown, one[:4])
    assert before == tree_bytes(root), shown
    assert result.rewrite.compared
    return result


def logs_of(root: Path) -> list[Path]:
    """Return the entry logs that hold anything."""
    found = [path for path in root.rglob("*.log") if path.parent.name == "current"]
    return sorted(path for path in found if path.stat().st_size > 1024)
