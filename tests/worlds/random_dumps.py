"""Random dumps: several bookies, their ledgers and logs, and metadata that fit them or do not.

They are written table by table, so that they may hold what no index would.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.cluster import MemoryStore
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.dump import TABLES
from bkstore.offline.reading.ledger_ranges import SORTED_BY, LedgerRange
from bkstore.offline.reading.manifest import MANIFEST, encode_manifest
from bkstore.tables import Schema, Table
from tests.models.audit import random_world
from tests.models.sequence_groups import groups_of

Row = tuple[Any, ...]
Place = tuple[int, int, int]  # dir_index, log_id, position


def _of_pulsar(component: str, **keys: str) -> dict[str, bytes]:
    keys = {f"pulsar/{key.replace('_', '-')}": text for key, text in keys.items()}
    texts = {"application": "pulsar", "component": component, **keys}
    return {key: text.encode() for key, text in texts.items()}


class Owned(NamedTuple):
    """An owner as a test knows it: names by what a row may stand for, None where unknown."""

    application: str | None = None
    topic: str | None = None
    namespace: str | None = None
    tenant: str | None = None
    component: str | None = None


_PAID = "persistent://shop/orders/paid today"
_OWNERS: list[tuple[dict[str, bytes], Owned]] = [
    (
        _of_pulsar("managed-ledger", managed_ledger="shop/orders/persistent/paid+today"),
        Owned("pulsar", _PAID, "shop/orders", "shop", "managed-ledger"),
    ),
    (
        _of_pulsar(
            "managed-ledger", managed_ledger="shop/orders/persistent/paid+today", cursor="billing"
        ),
        Owned("pulsar", _PAID, "shop/orders", "shop", "managed-ledger"),
    ),
    (
        _of_pulsar("schema", schemaId="shop/orders/paid today"),
        Owned("pulsar", _PAID, "shop/orders", "shop", "schema"),
    ),
    (
        _of_pulsar("compacted-ledger", compactedTopic="persistent://shop/stock/a-partition-7"),
        Owned(
            "pulsar",
            "persistent://shop/stock/a-partition-7",
            "shop/stock",
            "shop",
            "compacted-ledger",
        ),
    ),
    (
        _of_pulsar("managed-ledger", managed_ledger="bank/orders/persistent/" + "ü" * 99),
        Owned(
            "pulsar",
            f"persistent://bank/orders/{'ü' * 99}",
            "bank/orders",
            "bank",
            "managed-ledger",
        ),
    ),
    (_of_pulsar("managed-ledger"), Owned("pulsar", *["pulsar"] * 3, "managed-ledger")),
    ({"application": b"distributedlog"}, Owned("distributedlog", *["distributedlog"] * 4)),
    ({"application": b"\xff"}, Owned()),
    ({}, Owned()),
]
"""Custom metadata, and the owner that Pulsar's table of keys makes of it."""


def owner_of(metadata: LedgerMetadata) -> Owned:
    """Return the owner of a ledger of a random dump."""
    (owner,) = (owner for custom, owner in _OWNERS if custom == metadata.custom_metadata)
    return owner


@dataclass
class DumpWorld:
    """What is in a dump: `held` of each bookie, by ledger, where each entry lies.

    `unread` (bookie, ledger) could not be read in full, `lost` bookies not at all; `logs` are
    (bookie, dir, log) to (bytes, closed, {ledger: bytes} or None), `marked` ledgers have a mark.
    """

    held: dict[str, dict[LedgerId, dict[int, Place]]] = field(default_factory=dict)
    unread: set[tuple[str, LedgerId]] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    logs: dict[tuple[str, int, int], tuple[int, bool | None, dict[LedgerId, int] | None]] = field(
        default_factory=dict
    )
    metadata: list[LedgerMetadata] = field(default_factory=list)
    marked: set[LedgerId] = field(default_factory=set)

    def store(self) -> MemoryStore:
        """The metadata as a store."""
        store = MemoryStore()
        for each in self.metadata:
            store.create(each)
        for ledger in self.marked:
            store.mark_underreplicated(ledger, UnderreplicatedMark())
        return store


def random_dump(seed: int, ledgers: int = 12) -> DumpWorld:
    """A world with orphans, homeless ledgers, marks, deleted ledgers, damage, huge ids."""
    chance = random.Random(seed)
    made = DumpWorld()
    world = random_world(seed, ledgers=ledgers)
    made.metadata = [_spoiled(chance, each) for each in world.ledgers]
    homeless = {each.ledger for each in made.metadata if chance.random() < 0.15}
    for name in world.held:
        made.held[name] = {}
        for ledger, entries in world.held[name].items():
            if ledger not in homeless:
                made.held[name][ledger] = _placed(chance, entries)
    for number in range(chance.randint(0, 3)):
        name = chance.choice(sorted(made.held))
        ledger = LedgerId(2**64 - 1, chance.choice([5, 2**63 + 5]) + number)
        base = chance.choice([0, 2**31 - 40, 2**63 - 400])
        entries = {base + chance.randint(0, 300) for _ in range(chance.randint(0, 90))}
        stripe = {base + e for e in range(chance.randint(0, 200)) if e % 5 in (1, 2)}
        made.held[name][ledger] = _placed(chance, entries if chance.random() < 0.5 else stripe)
    made.marked = {each.ledger for each in made.metadata if chance.random() < 0.1}
    known = [(name, ledger) for name, has in made.held.items() for ledger in has]
    made.unread = set(chance.sample(known, min(len(known), chance.choice([0, 0, 1, 3]))))
    made.lost = set(chance.sample(sorted(made.held), chance.choice([0, 0, 1, 2])))
    _make_logs(chance, made)
    custom = [random.Random(f"{seed} {each.ledger}").choice(_OWNERS)[0] for each in made.metadata]
    made.metadata = [replace(m, custom_metadata=c) for m, c in zip(made.metadata, custom)]
    return made


def _spoiled(chance: random.Random, metadata: LedgerMetadata) -> LedgerMetadata:
    """At times, metadata that contradict themselves."""
    if chance.random() > 0.06:
        return metadata
    return LedgerMetadata(
        metadata.ledger,
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.write_quorum_size + 1,
        metadata.segments,
        state=metadata.state,
        last_entry_id=metadata.last_entry_id,
        length=metadata.length,
        digest_type="DUMMY",
        password=b"",
    )


def _placed(chance: random.Random, entries: Iterable[int]) -> dict[int, Place]:
    places, at = {}, (0, 7, 1028)
    for entry in sorted(entries):
        if chance.random() < 0.1:
            at = (chance.randint(-1, 1), chance.choice([3, 7, 2**31 - 1]), chance.randint(0, 5000))
        places[entry] = at = (at[0], at[1], at[2] + 60)
    return places


def _make_logs(chance: random.Random, world: DumpWorld) -> None:
    for name, has in world.held.items():
        deleted = {LedgerId(0, 900 + chance.randint(0, 5)) for _ in range(2)}
        for log in chance.sample(range(5), chance.randint(0, 5)):
            inside = {each for each in [*has, *deleted] if chance.random() < 0.4}
            told = {each: chance.randint(1, 5000) for each in sorted(inside)}
            closed = chance.choice([True, False, None])
            ledgers = None if closed is None else told
            size = 1024 + sum(told.values())
            world.logs[name, chance.randint(0, 1), log] = (size, closed, ledgers)


def later_dump(world: DumpWorld, seed: int) -> DumpWorld:
    """Return the world some time later: ledgers came and went, grew and shrank."""
    chance = random.Random(seed)
    later = random_dump(seed)
    later.lost, later.unread = set(), set(sorted(world.unread)[:1])
    for has in later.held.values():
        for ledger in list(has):
            change = chance.choice(["same", "gone", "grown", "shrunk", "changed"])
            if change == "gone":
                del has[ledger]
            if change in ("shrunk", "changed") and has[ledger]:
                del has[ledger][min(has[ledger])]
            if change in ("grown", "changed"):
                has[ledger][5000 + seed] = (0, 1, 99)
        has[LedgerId(2**63, 2**63 + 1)] = {4: (0, 1, 8)}
    return later


# -- writing it


def write_dump(
    world: DumpWorld,
    out: Path,
    cut: int = 3,
    ordered: bool = True,
    woven: bool = False,
    repeated: bool = False,
) -> Path:
    """Write the world as a dump, each bookie's index in files of `cut` ledgers; return `out`.

    `ordered`: the manifest says of each file how it is sorted. `woven`: two files, whose ledgers
    take turns, instead. `repeated`: each row comes twice, in no order, which the manifest says of
    no file.
    """
    tables: dict[str, list[dict[str, Any]]] = {schema.name: [] for schema in TABLES}
    bookies, times = [], 2 if repeated else 1
    for name in world.held:
        lost = name in world.lost
        damage = sum(row[1] == "damage" for row in finding_rows(world, name))
        said = {"id": name, "read": not lost, "reason": "gone" if lost else None}
        rest = {"path": name, "layout": None if lost else "idx", "directories": {}, "rows": {}}
        bookies.append({**said, **rest, "damage": damage, "oddities": 1})
        ledgers = [] if lost else sorted(world.held[name])
        pieces = [ledgers[at : at + cut] for at in range(0, len(ledgers), cut)] or [[]]
        if woven:
            pieces = [ledgers[::2], ledgers[1::2]]
        for piece in pieces if not lost else []:
            rows = _index_rows(world, name, piece)
            for table in ("entries", "groups", "ledgers"):
                _write(out, tables, table, name, rows[table] * times)
        rows = {"entry_logs": [], "log_ledgers": []} if lost else _log_rows(world, name)
        rows["findings"] = finding_rows(world, name)
        for table in rows:
            _write(out, tables, table, name, rows[table] * times)
    if not ordered or repeated:
        for file in (file for files in tables.values() for file in files):
            for name in ("sorted_by", "first_ledger", "last_ledger"):
                file.pop(name, None)
    out.joinpath(MANIFEST).write_bytes(encode_manifest(bookies, tables, [], {"length": False}))
    return out


def overlapping(dump: Path, bookie: str) -> None:
    """Say in the manifest that the bookie's files all hold the same range of ledgers."""
    path = dump / "manifest.json"
    manifest = json.loads(path.read_text())
    files = [f for f in manifest["tables"]["entries"]["files"] if f["bookie"] == bookie]
    first, last = files[0]["first_ledger"], files[-1]["last_ledger"]
    for file in files:
        file.update(first_ledger=first, last_ledger=last)
    path.write_text(json.dumps(manifest))


def repeat_files(dump: Path, bookie: str, *, sorted_copies: bool) -> Path:
    """Put a copy beside each sorted file of a bookie in a dump; return the dump.

    The manifest says of the copies that they are sorted, too, or it says nothing of them.
    """
    manifest = json.loads((dump / MANIFEST).read_bytes())
    for table in manifest["tables"].values():
        mine = [file for file in table["files"] if file["bookie"] == bookie]
        for file in (file for file in mine if "sorted_by" in file):
            path = file["path"].replace(".parquet", "-copy.parquet")
            shutil.copy(dump / file["path"], dump / path)
            order = file if sorted_copies else {n: file[n] for n in ("bookie", "rows", "bytes")}
            table["files"].append({**order, "path": path})
    (dump / MANIFEST).write_text(json.dumps(manifest))
    return dump


def _write(
    out: Path, tables: dict[str, list[dict[str, Any]]], table: str, bookie: str, rows: list[Row]
) -> None:
    import pyarrow.parquet as pq

    (schema,) = (each for each in TABLES if each.name == table)
    number = sum(each["bookie"] == bookie for each in tables[table])
    path = out / table / f"{bookie}-{number:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(Table.from_rows(schema, rows).to_arrow(), path)
    said = {"path": f"{table}/{path.name}", "bookie": bookie, "rows": len(rows), "bytes": 1}
    tables[table].append({**said, **_order(schema, rows)})


def _order(schema: Schema, rows: list[Row]) -> dict[str, Any]:
    """Return what a manifest says of sorted rows."""
    if schema.name not in SORTED_BY or not rows:
        return {}
    at = [schema.names.index(name) for name in ("scope_id", "ledger_id")]
    ledgers = [LedgerId.from_signed(*(row[n] for n in at)) for row in (rows[0], rows[-1])]
    return {"sorted_by": list(SORTED_BY[schema.name]), **LedgerRange(*ledgers).to_json()}


def _index_rows(world: DumpWorld, name: str, ledgers: list[LedgerId]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {"entries": [], "groups": [], "ledgers": []}
    for ledger in ledgers:
        places, ids = world.held[name][ledger], ledger.signed
        for entry, (folder, log, position) in sorted(places.items()):
            rows["entries"].append((name, folder, *ids, entry, log, position, None))
        rows["groups"] += [(name, *ids, *group) for group in groups_of(places)]
        told: Row = (None, None, None)
        if (name, ledger) not in world.unread:
            told = (len(places), min(places, default=None), max(places, default=None))
        state = (False, None, None, b"", "idx")
        rows["ledgers"].append((name, *ids, ledger.qualified_name, *told, *state))
    return rows


def _log_rows(world: DumpWorld, name: str) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {"entry_logs": [], "log_ledgers": []}
    for (bookie, folder, log), (size, closed, told) in sorted(world.logs.items()):
        if bookie == name:
            count = None if told is None else len(told)
            rows["entry_logs"].append((name, folder, log, f"{log:x}.log", size, closed, count))
            for ledger, of_it in sorted((told or {}).items()):
                rows["log_ledgers"].append((name, folder, log, *ledger.signed, of_it))
    return rows


def finding_rows(world: DumpWorld, name: str) -> list[Row]:
    """Return what the dump tells of a bookie: an oddity, and what could not be read."""
    run = (None, None, None)
    rows: list[Row] = [(name, "oddity", "odd", None, None, None, None, *run)]
    if name in world.lost:
        return [*rows, (name, "damage", "gone", None, None, None, None, *run)]
    bad = sorted(ledger for bookie, ledger in world.unread if bookie == name)
    return rows + [(name, "damage", "torn", "x.idx", 8, *ledger.signed, *run) for ledger in bad]
