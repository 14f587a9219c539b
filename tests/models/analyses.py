"""Random dumps, and what every analysis must say of them: plain dicts, sets and Python integers.

Nothing here uses the code under test, nor the library's sequence groups: the rules are counted
out entry by entry from the words of `docs/analyses.md` (write sets and categories from
`audit_oracle`). Dumps are written table by table, so that they may hold what no index would.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkstore.cluster import MemoryStore
from bkstore.formats.metadata.serialized import Mark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.dump import TABLES
from bkstore.offline.dump.manifest import MANIFEST, encode_manifest
from bkstore.tables import Table
from tests.models.audit import category, random_world, segments, stores

Row = tuple[Any, ...]
Place = tuple[int, int, int]  # dir_index, log_id, position
Group = tuple[int, int, int, int]


def runs_of(entries: Iterable[int]) -> list[tuple[int, int]]:
    """(first, size) of each maximal run of consecutive ids."""
    runs: list[tuple[int, int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry, 1))
    return runs


def groups_of(entries: Iterable[int]) -> list[Group]:
    """BP-34's greedy rule, run by run: (first start, last start, size, period)."""
    groups: list[Group] = []
    for start, size in runs_of(entries):
        if groups:
            first, last, its_size, period = groups[-1]
            fits = size == its_size and start - last < 2**31 and period in (0, start - last)
            if fits:
                groups[-1] = (first, start, size, start - last)
                continue
        groups.append((start, start, size, 0))
    return groups


def bytes_of(groups: list[Group]) -> bytes:
    """The availability bytes: 64 bytes of header, 24 a group, big-endian."""
    rows = b"".join(struct.pack(">qqii", *group) for group in groups)
    return struct.pack(">ii56x", 0, len(groups)) + rows


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
            store.mark_underreplicated(ledger, Mark())
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


# -- writing it


def write_dump(world: DumpWorld, out: Path, cut: int = 3) -> Path:
    """Write the world as a dump, each bookie's index in files of `cut` ledgers; return `out`."""
    tables: dict[str, list[dict[str, Any]]] = {schema.name: [] for schema in TABLES}
    bookies = []
    for name in world.held:
        lost = name in world.lost
        damage = sum(row[1] == "damage" for row in _finding_rows(world, name))
        said = {"id": name, "read": not lost, "reason": "gone" if lost else None}
        rest = {"path": name, "layout": None if lost else "idx", "directories": {}, "rows": {}}
        bookies.append({**said, **rest, "damage": damage, "oddities": 1})
        ledgers = [] if lost else sorted(world.held[name])
        pieces = [ledgers[at : at + cut] for at in range(0, len(ledgers), cut)] or [[]]
        for piece in pieces if not lost else []:
            rows = _index_rows(world, name, piece)
            for table in ("entries", "groups", "ledgers"):
                _write(out, tables, table, name, rows[table])
        rows = {"entry_logs": [], "log_ledgers": []} if lost else _log_rows(world, name)
        rows["findings"] = _finding_rows(world, name)
        for table in rows:
            _write(out, tables, table, name, rows[table])
    out.joinpath(MANIFEST).write_bytes(encode_manifest(bookies, tables, [], {"length": False}))
    return out


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
    tables[table].append(said)


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


def _finding_rows(world: DumpWorld, name: str) -> list[Row]:
    run = (None, None, None)
    rows: list[Row] = [(name, "oddity", "odd", None, None, None, None, *run)]
    if name in world.lost:
        return [*rows, (name, "damage", "gone", None, None, None, None, *run)]
    bad = sorted(ledger for bookie, ledger in world.unread if bookie == name)
    return rows + [(name, "damage", "torn", "x.idx", 8, *ledger.signed, *run) for ledger in bad]


# -- what the analyses must say


class Expected:
    """The rows of every analysis of a world, in the declared order; `judged` by metadata."""

    def __init__(self, world: DumpWorld, *, judged: bool = True, pinned: float = 0.2) -> None:
        self.world = world
        self.judged = judged
        self.pinned = pinned
        self.read = [name for name in world.held if name not in world.lost]
        self.held = {name: world.held[name] for name in self.read}
        self.logs = {key: log for key, log in world.logs.items() if key[0] in self.held}

    def _each(self) -> list[tuple[str, LedgerId, dict[int, Place]]]:
        return sorted(
            (n, ledger, has) for n, all_ in self.held.items() for ledger, has in all_.items()
        )

    def sequences(self) -> list[Row]:
        """Row by row from the entries."""
        rows = []
        for name, ledger, has in self._each():
            if has:
                groups = groups_of(has)
                span = (len(has), min(has), max(has), len(runs_of(has)), len(groups))
                ids = (name, *ledger.signed, ledger.qualified_name)
                rows.append((*ids, *span, bytes_of(groups)))
        return rows

    def holes(self) -> list[Row]:
        """What a ledger's own stripe asks for between its ends, less what is stored."""
        rows = []
        for name, ledger, has in self._each():
            if not has or (name, ledger) in self.world.unread:
                continue
            size, period, phase = _stripe(has)
            lo, hi = min(has), max(has) + 1
            due = _below(hi, size, period, phase) - _below(lo, size, period, phase)
            if due != len(has):
                shape = "all" if period == 1 else f"{size} of {period}"
                ids = (name, *ledger.signed, ledger.qualified_name)
                rows.append((*ids, lo, hi - 1, len(has), shape, due - len(has)))
        return rows

    def orphans(self) -> list[Row]:
        """Known to a bookie, not to the metadata."""
        known = {each.ledger for each in self.world.metadata}
        rows = []
        for name, ledger, has in self._each():
            if ledger not in known:
                count = None if (name, ledger) in self.world.unread else len(has)
                inside = sum(
                    (t or {}).get(ledger, 0) for k, (_, _, t) in self.logs.items() if k[0] == name
                )
                rows.append((name, *ledger.signed, ledger.qualified_name, count, inside))
        return rows

    def _live(self, name: str, ledger: LedgerId) -> bool:
        if self.judged:
            return ledger in {each.ledger for each in self.world.metadata}
        return ledger in self.held[name]

    def log_occupancy(self) -> list[Row]:
        """Live by the metadata, or by the index."""
        rows = []
        for (name, folder, log), (size, closed, told) in sorted(self.logs.items()):
            inside = told or {}
            live = {ledger: n for ledger, n in inside.items() if self._live(name, ledger)}
            total, used = sum(inside.values()), sum(live.values())
            part = used / total if total else 0.0
            counts = (len(inside), len(live), used, total - used, part, 0 < part < self.pinned)
            rows.append((name, folder, log, f"{log:x}.log", size, closed, *counts))
        return rows

    def bytes_by_ledger(self) -> list[Row]:
        """Index rows and log records, summed by ledger."""
        bookies: dict[LedgerId, set[str]] = defaultdict(set)
        replicas: dict[LedgerId, int] = defaultdict(int)
        size: dict[LedgerId, int] = defaultdict(int)
        for name, ledger, has in self._each():
            bookies[ledger].add(name)
            replicas[ledger] += 0 if (name, ledger) in self.world.unread else len(has)
        for (name, _, _), (_, _, told) in self.logs.items():
            for ledger, of_it in (told or {}).items():
                bookies[ledger].add(name)
                size[ledger] += of_it
        return [
            (*each.signed, each.qualified_name, len(bookies[each]), replicas[each], size[each])
            for each in sorted(bookies)
        ]

    def bytes_by_scope(self) -> list[Row]:
        """The same by scope, scopes unsigned."""
        rows: dict[int, list[int]] = {}
        for scope, _, _, _, replicas, size in self.bytes_by_ledger():
            sums = rows.setdefault(scope % 2**64, [0, 0, 0])
            for at, each in enumerate((1, replicas, size)):
                sums[at] += each
        return [(LedgerId(scope, 0).signed[0], *sums) for scope, sums in sorted(rows.items())]

    def bytes_by_bookie(self) -> list[Row]:
        """Every bookie of the manifest, those that were not read too."""
        rows = []
        for name in sorted(self.world.held):
            has = self.held.get(name, {})
            entries = sum(len(e) for n, e in has.items() if (name, n) not in self.world.unread)
            logs = [log for key, log in self.logs.items() if key[0] == name]
            told = [each for _, _, told in logs for each in (told or {}).items()]
            total = sum(of_it for _, of_it in told)
            live = sum(of_it for ledger, of_it in told if self._live(name, ledger))
            damage = len([row for row in _finding_rows(self.world, name) if row[1] == "damage"])
            files = (len(logs), sum(size for size, _, _ in logs))
            rows.append((name, len(has), entries, *files, total, live, total - live, damage))
        return rows

    def fragmentation(self) -> list[Row]:
        """Walk each ledger in entry order."""
        rows = []
        for name, ledger, has in self._each():
            changes, stretches, before = 0, 0, None
            for _, place in sorted(has.items()):
                other = before is not None and place[:2] != before[:2]
                changes += other
                stretches += before is None or other or place[2] <= before[2]
                before = place
            if has:
                logs = len({place[:2] for place in has.values()})
                ids = (name, *ledger.signed, ledger.qualified_name)
                rows.append((*ids, len(has), logs, changes, stretches, len(has) / stretches))
        return rows

    def comparison(self, after: Expected) -> list[Row]:
        """Both sides as sets; only what both could read."""
        rows = []
        for name in sorted(set(self.read) & set(after.read)):
            here, there = self.held[name], after.held[name]
            for ledger in sorted({*here, *there}):
                a, b = set(here.get(ledger, ())), set(there.get(ledger, ()))
                if (name, ledger) in self.world.unread | after.world.unread or not a | b:
                    continue
                ids = (name, *ledger.signed, ledger.qualified_name)
                counts = (len(a), len(b), len(a & b), len(b - a), len(a - b))
                rows.append((*ids, *counts, _change(a, b)))
        return rows

    # -- against metadata

    def ledgers(self) -> list[Judged]:
        """What becomes of each ledger of the metadata, in id order."""
        ordered = sorted(self.world.metadata, key=lambda each: each.ledger)
        return [Judged(self, each) for each in ordered]

    def violations(self) -> list[Row]:
        """A row for each segment and bookie that lacks entries."""
        return [row for each in self.ledgers() for row in each.violations()]

    def ledger_health(self) -> list[Row]:
        """A row a ledger."""
        return [each.health() for each in self.ledgers()]

    def surplus(self) -> list[Row]:
        """What bookies have beyond what is due, by bookie."""
        found = [
            (b, j.metadata.ledger, extra) for j in self.ledgers() for b, extra in j.extra.items()
        ]
        rows = []
        for name, ledger, extra in sorted(found):
            ids = (name, *ledger.signed, ledger.qualified_name)
            rows.append((*ids, len(extra), [list(group) for group in groups_of(extra)]))
        return rows

    def homeless(self) -> list[Row]:
        """Due somewhere in the dump, and nowhere to be found."""
        rows = []
        for each in self.ledgers():
            ledger, said = each.metadata.ledger, each.metadata
            here = any(has.get(ledger) for has in self.held.values())
            if each.due and not here and not each.unread:
                ids = (*ledger.signed, ledger.qualified_name)
                bookies = " ".join(sorted(said.bookies))
                rows.append((*ids, said.state, said.last_entry_id, bookies))
        return rows


class Judged:
    """A ledger of the metadata, judged entry by entry."""

    def __init__(self, expected: Expected, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.skip = _skip(expected.world, metadata)
        self.unread = {n for n, each in expected.world.unread if each == metadata.ledger}
        self.unread &= set(expected.held)
        self.absent: set[str] = set()
        self.due = 0
        self.lacking: dict[int, int] = defaultdict(int)
        self.gone: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.extra: dict[str, set[int]] = {}
        self.index: dict[tuple[int, str], tuple[int, tuple[str, ...]]] = {}
        if self.skip is None:
            self._judge(expected)

    def _judge(self, expected: Expected) -> None:
        metadata = self.metadata
        size, quorum = metadata.ensemble_size, metadata.write_quorum_size
        here = {n: set(has.get(metadata.ledger, ())) for n, has in expected.held.items()}
        wanted: dict[str, set[int]] = defaultdict(set)
        for first, last, ensemble in segments(metadata):
            for at, bookie in enumerate(ensemble):
                self.index[first, bookie] = at, ensemble
                due = {e for e in range(first, last + 1) if stores(e, at, size, quorum)}
                if due and bookie not in here:
                    self.absent.add(bookie)
                elif due and bookie not in self.unread:
                    wanted[bookie] |= due
                    self.due += len(due)
                    for entry in sorted(due - here[bookie]):
                        self.lacking[entry] += 1
                        self.gone[first, bookie].append(entry)
        for bookie, has in here.items():
            if bookie not in self.unread and has - wanted[bookie]:
                self.extra[bookie] = has - wanted[bookie]

    def _worst(self) -> tuple[int, int]:
        most = max(self.lacking.values())
        return most, min(entry for entry, n in self.lacking.items() if n == most)

    def _category(self) -> str | None:
        if not self.lacking:
            return None
        quorum, ack = self.metadata.write_quorum_size, self.metadata.ack_quorum_size
        return category(quorum - self._worst()[0], quorum, ack)

    def violations(self) -> list[Row]:
        """Rows of the `violations` table."""
        rows, ledger = [], self.metadata.ledger
        quorum, ack = self.metadata.write_quorum_size, self.metadata.ack_quorum_size
        for (first, bookie), gone in sorted(self.gone.items()):
            most, entry = self._worst()
            at, ensemble = self.index[first, bookie]
            detail = (
                f"index {at} of {' '.join(ensemble)}; W {quorum}, A {ack}; "
                f"entry {entry} of the ledger lacks {most} of {quorum} replicas"
            )
            ranges = [[start, start + size - 1] for start, size in runs_of(gone)]
            groups = [list(group) for group in groups_of(gone)]
            ids = (self._category(), *ledger.signed, ledger.qualified_name)
            rows.append((*ids, first, bookie, len(gone), ranges, groups, detail))
        return rows

    def health(self) -> Row:
        """The row of `ledger_health`."""
        said, ledger = self.metadata, self.metadata.ledger
        sizes = (said.ensemble_size, said.write_quorum_size, said.ack_quorum_size)
        ids = (*ledger.signed, ledger.qualified_name, said.state, *sizes)
        ids = (*ids, len(said.segments), said.last_entry_id)
        if self.skip is not None:
            return (*ids, None, None, None, None, None, self.skip)
        why = [f"bookies not in the dump: {' '.join(sorted(self.absent))}"] if self.absent else []
        if self.unread:
            why.append(f"could not be read at: {' '.join(sorted(self.unread))}")
        most = max(self.lacking.values(), default=0)
        fewest = said.write_quorum_size - most if self.due else None
        missing = sum(map(len, self.gone.values()))
        extra = sum(map(len, self.extra.values()))
        counts = (self.due, missing, extra, fewest, self._category())
        return (*ids, *counts, "; ".join(why) or None)


def _skip(world: DumpWorld, metadata: LedgerMetadata) -> str | None:
    if metadata.ledger in world.marked:
        return "underreplicated"
    if metadata.ack_quorum_size > metadata.write_quorum_size:
        quorum = metadata.write_quorum_size
        return f"its metadata: ack quorum {quorum + 1} is outside 1..{quorum}, the write quorum"
    return None if metadata.state == "CLOSED" else metadata.state.lower()


def _stripe(entries: Iterable[int]) -> tuple[int, int, int]:
    """(size, period, phase) of the stripe that covers more than half, else (1, 1, 0)."""
    covered: dict[tuple[int, int], int] = defaultdict(int)
    longest: dict[tuple[int, int], tuple[int, int]] = {}
    for first, last, size, period in groups_of(entries):
        if period:
            n = ((last - first) // period + 1) * size
            covered[size, period] += n
            best = longest.get((size, period), (0, 0))
            longest[size, period] = min(best, (-n, first))
    for (size, period), n in covered.items():
        if n * 2 > len(list(entries)):
            return size, period, longest[size, period][1] % period
    return 1, 1, 0


def _below(entry: int, size: int, period: int, phase: int) -> int:
    """How many ids of a stripe lie below `entry`, counted from its phase (negative before)."""
    return (entry - phase) // period * size + min((entry - phase) % period, size)


def _change(before: set[int], after: set[int]) -> str:
    if not before:
        return "new"
    if not after:
        return "gone"
    names = {(False, False): "same", (True, False): "grown", (False, True): "shrunk"}
    return names.get((bool(after - before), bool(before - after)), "changed")
