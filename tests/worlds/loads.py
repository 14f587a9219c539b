"""Random worlds of ledgers for the families about loads, and reading indexes back plainly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.formats.entry import encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.tables import ENTRIES, LEDGERS, Schema, Table

World = dict[LedgerId, tuple[dict[int, int], LedgerState]]
"""For each ledger: location by entry, and the state."""

_SCOPES = (0, 0, 1, 2**63 - 1, 2**63, 2**64 - 1)


def make_world(seed: int, ledgers: int = 12, limbo: bool = False) -> World:
    """Return ledgers of many scopes, half with the top bit set, with entries in rising logs."""
    rng = np.random.default_rng(seed)
    world: World = {}
    for _ in range(ledgers):
        scope = _SCOPES[int(rng.integers(len(_SCOPES)))]
        ledger = int(rng.integers(2**63)) + (2**63 if scope and rng.random() < 0.5 else 0)
        name = LedgerId(scope, int(rng.integers(5)) if rng.random() < 0.3 else ledger)
        ids = np.flatnonzero(rng.random(int(rng.integers(0, 400))) < 0.8) + int(rng.integers(50))
        places = rng.choice(2**31 - 1, ids.size, replace=False) * 2**32 + rng.integers(2**32)
        state = LedgerState(
            rng.bytes(20) if rng.random() < 0.8 else b"",
            bool(rng.random() < 0.5),
            limbo and bool(rng.random() < 0.3),
            encode_explicit_lac(name, 7, "DUMMY") if rng.random() < 0.5 else None,
        )
        world[name] = dict(zip(ids.tolist(), (places + 1).tolist())), state
    return world


def fill(index: EntryIndex, world: World) -> None:
    """Put the world, and close."""
    with index:
        for name, (entries, state) in world.items():
            index.set_state(name, state)
            index.put_many(name, list(entries), list(entries.values()))


def read_world(index: EntryIndex) -> World:
    """Return what an index says, by its single look-ups of ledgers."""
    found: World = {}
    for name in index.ledgers():
        entries, locations = index.items(name)
        found[name] = dict(zip(entries.tolist(), locations.tolist())), index.state(name)
    return found


def scanned(index: EntryIndex) -> list[tuple[LedgerId, int, int]]:
    """Return the rows of a scan, in its order."""
    return [
        (name, *row)
        for rows in index.scan(1000)
        for name, entries, locations in rows.by_ledger()
        for row in zip(entries.tolist(), locations.tolist())
    ]


def entry_row(name: LedgerId, entry: int, location: int, bookie: str = "b") -> tuple[Any, ...]:
    """Return a row of `entries`."""
    return (bookie, 0, *name.signed, entry, location >> 32, location & 0xFFFFFFFF, None)


def ledger_row(name: LedgerId, state: LedgerState, layout: str = "idx") -> tuple[Any, ...]:
    """Return a row of `ledgers`, its counts unknown."""
    counts = (None, None, None)
    flags = (state.fenced, state.limbo, state.explicit_lac, state.master_key)
    return ("b", *name.signed, name.qualified_name, *counts, *flags, layout)


def write_table(
    path: Path, schema: Schema, rows: Iterable[tuple[Any, ...]], row_group: int = 1000
) -> None:
    """Write rows as a plain Parquet file, as any other program would."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(Table.from_rows(schema, list(rows)).to_arrow(), path, row_group_size=row_group)


def plain_dump(top: Path, world: World, rows: list[tuple[Any, ...]], files: int = 3) -> Path:
    """Write a folder of Parquet without a manifest: `rows` as `entries`, the world's states."""
    for at in range(files):
        write_table(top / "entries" / f"part-{at}.parquet", ENTRIES, rows[at::files])
    states = [ledger_row(name, state) for name, (_, state) in world.items()]
    write_table(top / "ledgers" / "part-0.parquet", LEDGERS, states)
    return top


def jumbled(world: World, seed: int) -> tuple[list[tuple[Any, ...]], World]:
    """Return the world's rows in any order, some of them several times, and what they mean.

    Of the rows of one entry that with the highest location counts.
    """
    rng = np.random.default_rng(seed)
    rows, expected = [], {}
    for name, (entries, state) in world.items():
        best = dict(entries)
        for entry, location in entries.items():
            rows.append(entry_row(name, entry, location))
            if rng.random() < 0.2:
                other = int(rng.integers(1, 2**63 - 1))
                rows += [entry_row(name, entry, other)] * int(rng.integers(1, 3))
                best[entry] = max(location, other)
        expected[name] = best, state
    return [rows[at] for at in rng.permutation(len(rows))], expected


def share_a_range(manifest: Any) -> None:
    """Have the manifest say that all files of `entries` of a bookie hold the same ledgers."""
    files = [file for file in manifest["tables"]["entries"]["files"] if "sorted_by" in file]
    for file in files:
        mine = [other for other in files if other["bookie"] == file["bookie"]]
        file["first_ledger"] = min(other["first_ledger"] for other in mine)
        file["last_ledger"] = max(other["last_ledger"] for other in mine)


def say_nothing(manifest: Any) -> None:
    """Have the manifest say nothing of order, as those of format 1."""
    manifest["format"] = 1
    for file in (file for table in manifest["tables"].values() for file in table["files"]):
        for name in ("sorted_by", "first_ledger", "last_ledger"):
            file.pop(name, None)


def edit_manifest(dump: Path, change: Any) -> None:
    """Let `change` alter the parsed manifest of a dump."""
    path = dump / "manifest.json"
    said = json.loads(path.read_bytes())
    change(said)
    path.write_text(json.dumps(said))
