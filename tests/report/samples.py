"""Tables for reports: small clusters made entry by entry, with what was done to them known.

Nothing here is computed by the code that reports: replicas are sets of entry ids, and each table
is counted from them row by row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus

from bkstore import tables
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners, read_owner
from bkstore.tables import Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

RECORD = 40_000
LOG_HEAD = 2048


class Sample(NamedTuple):
    """What `write_report` takes."""

    title: str
    tables: dict[str, pa.Table]
    source: dict[str, Any]


@dataclass
class Ledger:
    """A ledger of the metadata; `ensemble` holds one segment's bookies."""

    id: LedgerId
    ensemble: list[str]
    write: int
    ack: int
    last: int
    state: str = "CLOSED"

    def due(self, entry: int) -> list[str]:
        """Return the bookies of an entry, round robin."""
        first = entry % len(self.ensemble)
        return (self.ensemble * 2)[first : first + self.write]


@dataclass
class World:
    """Bookies, ledgers, and which bookie holds which entries of which ledger."""

    bookies: list[str]
    ledgers: list[Ledger]
    held: dict[tuple[str, LedgerId], set[int]]
    garbage: dict[str, float]
    orphans: dict[tuple[str, LedgerId], set[int]] = field(default_factory=dict)
    findings: list[tuple[Any, ...]] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


def make(
    bookies: list[str],
    ledgers: int,
    seed: int,
    last: int = 300,
    garbage: float = 0.1,
    few: int = 0,
    scoped: bool = False,
) -> World:
    """Return a world in which every replica is there; a tenth of the ledgers has a scope, or all.

    Three of four ledgers lie on the first `few` bookies, if that is said.
    """
    chance = random.Random(seed)
    made, held = [], {}
    for number in range(ledgers):
        wide = scoped or number % 10 == 9
        name = LedgerId(2**63 + 5, 2**64 - 1 - number) if wide else LedgerId.of(1000 + number)
        among = bookies[:few] if few and number % 4 else bookies
        ensemble = chance.sample(among, min(3, len(among)))
        write = min(2, len(ensemble))
        end = int(last * chance.paretovariate(1.3))
        state = "OPEN" if number % 25 == 7 else "CLOSED"
        ledger = Ledger(name, ensemble, write, write, min(end, 20 * last), state)
        made.append(ledger)
        for entry in range(ledger.last + 1):
            for bookie in ledger.due(entry):
                held.setdefault((bookie, name), set()).add(entry)
    portions = {bookie: garbage * chance.uniform(0.5, 1.5) for bookie in bookies}
    return World(bookies, made, held, portions)


def ranges(entries: set[int]) -> list[list[int]]:
    """Return the inclusive ranges of a set."""
    found: list[list[int]] = []
    for entry in sorted(entries):
        if found and found[-1][1] == entry - 1:
            found[-1][1] = entry
        else:
            found.append([entry, entry])
    return found


def _table(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    return Table.from_rows(schema, rows).to_arrow()


def _name(ledger: LedgerId) -> tuple[int, int, str]:
    return (*ledger.signed, ledger.qualified_name)


def category(ledger: Ledger, replicas: list[int]) -> str | None:
    """Return the category of the worst entry, from the number of replicas of each."""
    fewest = min(replicas, default=ledger.write)
    if fewest == 0:
        return "no_replica"
    if fewest < ledger.ack:
        return "below_ack_quorum"
    return "below_write_quorum" if fewest < ledger.write else None


def judged_tables(world: World) -> dict[str, pa.Table]:
    """Return the tables that need metadata."""
    health, violations, homeless, surplus = [], [], [], []
    for ledger in world.ledgers:
        head = (*_name(ledger.id), ledger.state, len(ledger.ensemble), ledger.write, ledger.ack, 1)
        if ledger.state == "OPEN":
            health.append((*head, -1, *[None] * 6, "open"))
            continue
        due = {
            b: {e for e in range(ledger.last + 1) if b in ledger.due(e)} for b in ledger.ensemble
        }
        here = {b: world.held.get((b, ledger.id), set()) for b in world.bookies}
        unknown = [b for b in ledger.ensemble if b in world.unread]
        ids = range(ledger.last + 1)
        replicas = [sum(b in unknown or e in here[b] for b in ledger.due(e)) for e in ids]
        worst = category(ledger, replicas)
        missing = {b: due[b] - here[b] for b in ledger.ensemble if b not in unknown}
        more = {b: here[b] - due.get(b, set()) for b in world.bookies}
        why = f"not in the dump: {' '.join(unknown)}" if unknown else None
        counts = [sum(map(len, group.values())) for group in (due, missing, more)]
        fewest = (min(replicas, default=0), replicas.count(0))
        health.append((*head, ledger.last, *counts, *fewest, worst, why))
        for bookie, lacks in missing.items():
            if lacks:
                listed = ranges(lacks)
                groups = [[a, a, b - a + 1, 0] for a, b in listed]
                detail = f"index {ledger.ensemble.index(bookie)} of {' '.join(ledger.ensemble)}"
                cells = (len(lacks), min(lacks), max(lacks), listed, groups)
                violations.append((worst, *_name(ledger.id), 0, bookie, *cells, detail))
        for bookie, extra in more.items():
            if extra:
                groups = [[a, a, b - a + 1, 0] for a, b in ranges(extra)]
                surplus.append((bookie, *_name(ledger.id), len(extra), groups))
        if ledger.last >= 0 and not unknown and not any(here.values()):
            homeless.append((*_name(ledger.id), "CLOSED", ledger.last, " ".join(ledger.ensemble)))
    orphans = [
        (bookie, *_name(ledger), len(entries), len(entries) * RECORD)
        for (bookie, ledger), entries in world.orphans.items()
    ]
    return {
        "ledger_health": _table(tables.HEALTH, health),
        "violations": _table(tables.VIOLATIONS, violations),
        "homeless": _table(tables.HOMELESS, homeless),
        "surplus": _table(tables.SURPLUS, surplus),
        "orphans": _table(tables.ORPHANS, orphans),
    }


def plain_tables(world: World) -> dict[str, pa.Table]:
    """Return the tables that need none."""
    held = {**world.held, **world.orphans}
    sequences, fragments, logs, by_bookie = [], [], [], []
    for (bookie, ledger), entries in sorted(held.items()):
        listed, low, high = ranges(entries), min(entries), max(entries)
        head = (bookie, *_name(ledger), len(entries))
        gaps = {(b[0] - a[0], a[1] - a[0]) for a, b in pairwise(listed)}
        sequences.append((*head, low, high, len(listed), max(len(gaps), 1), b"\0" * 64))
        stretches = 1 + len(entries) // 120
        fragments.append(
            (*head, 1 + stretches // 2, stretches, stretches, len(entries) / stretches)
        )
    for bookie in world.bookies:
        if bookie in world.unread:
            continue
        mine = [len(entries) for (b, _), entries in held.items() if b == bookie]
        live, part = sum(mine) * RECORD, world.garbage[bookie]
        garbage = int(live * part / (1 - part))
        logs += _logs(bookie, live, garbage, len(mine))
        files = live + garbage + LOG_HEAD * sum(row[0] == bookie for row in logs)
        damage = sum(row[0] == bookie and row[1] == "damage" for row in world.findings)
        by_bookie.append(
            (bookie, len(mine), sum(mine), 8, files, live + garbage, live, garbage, damage)
        )
    return {
        "sequences": _table(tables.SEQUENCES, sequences),
        "holes": _table(tables.HOLES, _holes(world)),
        "fragmentation": _table(tables.FRAGMENTATION, fragments),
        "log_occupancy": _table(tables.LOG_OCCUPANCY, logs),
        "bytes_by_bookie": _table(tables.BOOKIE_BYTES, by_bookie),
        "findings": _table(
            tables.BOOKIE_FINDINGS, [(*row, None, None, None) for row in world.findings]
        ),
        **_bytes(held),
    }


def _holes(world: World) -> list[tuple[Any, ...]]:
    """Count what the round robin of the ledger's ensemble would hold between first and last."""
    found = []
    for ledger in world.ledgers:
        for bookie in ledger.ensemble:
            here = world.held.get((bookie, ledger.id), set())
            span = range(min(here, default=0), max(here, default=-1) + 1)
            holes = sum(bookie in ledger.due(e) and e not in here for e in span)
            if holes > 0:
                off = sum(bookie not in ledger.due(e) for e in here)
                stripe = f"{ledger.write} of {len(ledger.ensemble)}"
                row = (bookie, *_name(ledger.id), span[0], span[-1], len(here), stripe, holes, off)
                found.append(row)
    return found


def _logs(bookie: str, live: int, garbage: int, ledgers: int) -> list[tuple[Any, ...]]:
    """Spread a bookie's records over eight logs, the old ones with most of the garbage."""
    found, weights = [], [30, 22, 16, 11, 8, 6, 4, 3]
    for number, weight in enumerate(weights):
        lives, dead = live * weights[-1 - number] // 100, garbage * weight // 100
        part = lives / (lives + dead) if lives + dead else 0.0
        closed, pinned = number < 7, 0 < part < 0.2
        file = f"current/{number + 250:x}.log"
        row = (
            bookie,
            0,
            number + 250,
            file,
            lives + dead + LOG_HEAD,
            closed,
            ledgers,
            ledgers // 2,
        )
        found.append((*row, lives, dead, part, pinned))
    return found


def _bytes(held: dict[tuple[str, LedgerId], set[int]]) -> dict[str, pa.Table]:
    on: dict[LedgerId, list[int]] = {}
    for (_, ledger), entries in held.items():
        on.setdefault(ledger, []).append(len(entries))
    ledgers = [(*_name(x), len(on[x]), sum(on[x]), sum(on[x]) * RECORD) for x in sorted(on)]
    scopes: dict[int, list[int]] = {}
    for ledger in sorted(on):
        scopes.setdefault(ledger.signed[0], []).append(sum(on[ledger]))
    rows = [(scope, len(n), sum(n), sum(n) * RECORD) for scope, n in scopes.items()]
    return {
        "bytes_by_ledger": _table(tables.LEDGER_BYTES, ledgers),
        "bytes_by_scope": _table(tables.SCOPE_BYTES, rows),
    }


def manifest(world: World) -> dict[str, Any]:
    """Return the part of the dump's manifest that reports read."""
    listed = []
    for bookie in world.bookies:
        mine = [len(e) for (b, _), e in {**world.held, **world.orphans}.items() if b == bookie]
        found = [row[1] for row in world.findings if row[0] == bookie]
        reason = world.unread.get(bookie)
        listed.append(
            {
                "id": bookie,
                "path": f"copies/{bookie}",
                "read": reason is None,
                "reason": reason,
                "layout": None if reason else "rocksdb",
                "rows": {"entries": sum(mine), "ledgers": len(mine)},
                "damage": found.count("damage"),
                "oddities": found.count("oddity"),
            }
        )
    total = sum(b["rows"]["entries"] for b in listed)
    tables_ = {"entries": {"rows": total, "bytes": 0, "files": []}}
    made_at = "2026-11-21T19:30:00+00:00"
    return {"bookies": listed, "tables": tables_, "made_at": made_at, "complete": not world.unread}


def sample(world: World, title: str, metadata: bool = True) -> Sample:
    """Return a world's tables and source."""
    found = plain_tables(world) | (judged_tables(world) if metadata else {})
    source = {
        "manifest": manifest(world),
        "metadata": "metadata.json" if metadata else None,
        "engine": "the local reader",
        "made_at": "2026-11-21T19:35:00+00:00",
    }
    return Sample(title, found, source)


def healthy() -> Sample:
    """Three bookies, forty ledgers, all replicas present; one ledger in 25 is open."""
    world = make(["bookie-1", "bookie-2", "bookie-3"], 40, 1)
    return sample(world, "Copies of the test cluster")


def sick_world() -> World:
    """Six bookies with long names: one unread, entries lost in several ways, damage, orphans."""
    names = [f"bookie-{n}.az{n % 3}.storage.example:3181" for n in range(1, 7)]
    world = make(names, 120, 2, garbage=0.45)
    closed = [each for each in world.ledgers if each.state == "CLOSED"]
    for ledger in closed[:3]:  # no replica of some entries
        for entry in (5, 6, 7, 8, 40, 90):
            for bookie in ledger.due(entry):
                world.held[bookie, ledger.id].discard(entry)
    for ledger in closed[:2]:  # and one replica less of others
        world.held[ledger.ensemble[0], ledger.id] -= set(range(100, 120))
    for number, ledger in enumerate(closed[3:20]):  # one replica less
        bookie = ledger.ensemble[0]
        world.held[bookie, ledger.id] -= set(range(10, 40 + 7 * number))
    for ledger in closed[20:24]:  # W 2, A 1: one replica less is not below the ack quorum
        ledger.ack = 1
        world.held[ledger.ensemble[1], ledger.id] -= set(range(50, 60))
    for ledger in closed[24:26]:  # nothing anywhere
        for bookie in names:
            world.held.pop((bookie, ledger.id), None)
    surplus = closed[30]
    (spare,) = [b for b in names if b not in surplus.ensemble][:1]
    world.held[spare, surplus.id] = set(range(25))
    for number in range(4):
        world.orphans[names[number], LedgerId.of(77 + number)] = set(range(500 * (number + 1)))
    world.findings = [
        (
            names[1],
            "damage",
            "entry log ends inside a record",
            "current/fa.log",
            80_211,
            None,
            None,
        ),
        (names[2], "oddity", "leftover of an interrupted checkpoint", "current/x.tmp", *[None] * 3),
    ]
    return world


def sick() -> Sample:
    """The sick world, with one bookie that the dump could not read."""
    world = sick_world()
    gone = world.bookies[5]
    world.unread = {gone: f"{gone}: current/locations/MANIFEST-000004: offset 1033: bad checksum"}
    world.held = {key: entries for key, entries in world.held.items() if key[0] != gone}
    detail = f"bookie {gone} was not read: {world.unread[gone]}"
    world.findings.append((gone, "damage", detail, *[None] * 4))
    return sample(world, "Cluster pulsar-west after the power failure of 20 November")


def hundred() -> Sample:
    """A hundred bookies of very uneven size, all replicas there."""
    names = [f"bk-{n:03}" for n in range(100)]
    world = make(names, 400, 3, last=60, garbage=0.2, few=12)
    return sample(world, "A hundred bookies")


def bare() -> Sample:
    """The sick world without metadata: nothing is judged, holes are all there is."""
    world = sick_world()
    world.orphans, world.findings = {}, []
    return sample(world, "A dump without metadata", metadata=False)


def single() -> Sample:
    """One bookie, no metadata, one ledger."""
    return sample(make(["127.0.0.1:3181"], 1, 5), "One bookie", metadata=False)


def thousand_world() -> World:
    """A thousand ledgers with 128-bit ids on five bookies; entries of each tenth are lost."""
    names = [f"bookie-{n}.az{n % 3}.storage.example:3181" for n in range(1, 6)]
    world = make(names, 1000, 7, last=40, scoped=True)
    for ledger in world.ledgers[::10]:
        for bookie in ledger.ensemble:
            world.held.get((bookie, ledger.id), set()).difference_update({5, 6, 12})
    return world


def thousand() -> Sample:
    """The thousand ledgers, judged."""
    return sample(thousand_world(), "A thousand ledgers with long ids")


def apart() -> Sample:
    """Two dumps side by side that have no bookie in common, whose names are long words."""
    names = [[f"{rack}{n}{'x' * 60}" for n in range(2)] for rack in ("old", "new")]
    one, other = (make(bookies, 20, 9) for bookies in names)
    made = sample(one, "Two dumps", metadata=False)
    content = {**made.tables, "comparison": _table(tables.COMPARISON, [])}
    return Sample(made.title, content, {**made.source, "other": manifest(other)})


LONG_NAMES = (
    "shop/orders/persistent/" + "x" * 200,
    "shop/orders/persistent/"
    + quote_plus("Bestellungen f\u00fcr Z\u00fcrich/S\u00fcd & \u6ce8\u6587 " * 6 + "!"),
)
"""Paths of managed ledgers: a name without a place to break it, and one that brokers encode."""


def topic_owners(world: World) -> dict[LedgerId, LedgerOwner]:
    """Return the owners of a world's ledgers, by turns: topics, one of them with a subscription, a
    schema and compacted messages, another application, and none."""
    paid, topic = "shop/orders/persistent/paid", "pulsar/managed-ledger"
    kinds: list[dict[str, str]] = [
        *({topic: name} for name in LONG_NAMES),
        {topic: paid},
        {topic: paid, "pulsar/cursor": "billing"},
        {"component": "schema", "pulsar/schemaId": "shop/orders/paid"},
        {"component": "compacted-ledger", "pulsar/compactedTopic": "persistent://shop/orders/paid"},
        {topic: "shop/returns/persistent/parcels-partition-0"},
        {topic: "shop/returns/persistent/parcels-partition-1"},
        {"application": "distributedlog"},
        {},
    ]
    owners = {}
    for number, ledger in enumerate(world.ledgers):
        kind = kinds[number % len(kinds)]
        custom = {"application": "pulsar", "component": "managed-ledger", **kind} if kind else {}
        owners[ledger.id] = read_owner({key: value.encode() for key, value in custom.items()})
    return owners


@cache
def topics_world() -> World:
    """The sick world, of topics whose ledgers take turns."""
    world = sick_world()
    world.findings.append((world.bookies[0], "damage", "bad digest", "current/fb.log", 9, 0, 1001))
    return world


def topics() -> Sample:
    """The sick world, of which the metadata state the topics."""
    world = topics_world()
    made = sample(world, "Topics of the cluster pulsar-west")
    owners = LedgerOwners(topic_owners(world).items())
    return Sample(made.title, made.tables, {**made.source, "owners": owners})


_MADE = (healthy, sick, hundred, bare, single, thousand, apart, topics)
SAMPLES = {f.__name__: cache(f) for f in _MADE}
"""What makes each sample, once; samples are not to be changed."""
