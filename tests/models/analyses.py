"""What every analysis must say of a random dump: plain dicts, sets and Python integers.

Nothing here uses the code under test, nor the library's sequence groups: the rules are counted
out entry by entry from the words of `docs/analyses.md` (write sets and categories from
`tests.models.audit`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, OwnerFilter
from bkstore.offline.analyses import ANALYSES, Inputs, LocalEngine, Options
from tests.models.audit import category, segments, stores
from tests.models.sequence_groups import bytes_of, groups_of, runs_of
from tests.worlds.random_dumps import DumpWorld, Place, Row, finding_rows, owner_of

ALONE = [name for name, each in ANALYSES.items() if not (each.needs_other or each.needs_pulsar)]
"""Analyses of one dump, with ledger metadata and without those of Pulsar."""


def rows_of(table: Any) -> list[Row]:
    """Return the rows of a table as tuples."""
    return list(zip(*table.to_pydict().values())) if table.num_rows else []


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
        """Between its ends, what a ledger's own stripe asks for: is each of these entries there?"""
        rows = []
        for name, ledger, has in self._each():
            if not has or (name, ledger) in self.world.unread:
                continue
            stripe = _stripe(has)
            first, last = min(has), max(has)
            off = [entry for entry in has if not _lies_on(stripe, entry)]
            if last - first < 1 << 16:
                lost = sum(entry not in has for entry in _asked_for(stripe, first, last))
            else:  # too many to go through: all that are asked for, less those that are there
                lost = _below(last + 1, *stripe) - _below(first, *stripe) - (len(has) - len(off))
            if lost:
                size, period, _ = stripe
                shape = "all" if period == 1 else f"{size} of {period}"
                ids = (name, *ledger.signed, ledger.qualified_name)
                rows.append((*ids, first, last, len(has), shape, lost, len(off)))
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

    def _owner(self, ledger: LedgerId, group_by: str) -> tuple[str | None, str | None]:
        """(name, application) of a ledger's owner; of one that has no metadata nothing is known."""
        for metadata in self.world.metadata:
            if metadata.ledger == ledger:
                owner = owner_of(metadata)
                return getattr(owner, group_by), owner.application
        return None, None

    def bytes_by_owner(
        self, group_by: str = "topic", chosen: set[LedgerId] | None = None
    ) -> list[Row]:
        """Ledgers, entries, and records in logs, put together owner by owner; of `chosen` only."""
        held = {(name, ledger): has for name, ledger, has in self._each()}
        known = {metadata.ledger: metadata for metadata in self.world.metadata}
        logged = [(key, each) for key, (_, _, told) in self.logs.items() for each in (told or {})]
        pinned = {row[:3] for row in self.log_occupancy() if row[-1]}
        owners: dict[Any, set[LedgerId]] = defaultdict(set)
        for ledger in {*known, *(each for _, each in held), *(each for _, each in logged)}:
            if chosen is None or ledger in chosen:
                owners[self._owner(ledger, group_by)].add(ledger)
        rows = []
        for owner, mine in owners.items():
            ends = [known[each].last_entry_id for each in mine if each in known]
            bookies = {name for name, each in held if each in mine}
            bookies |= {key[0] for key, each in logged if each in mine}
            here = [key for key in held if key[1] in mine and key not in self.world.unread]
            sizes = [self.logs[key][2][each] for key, each in logged if each in mine]  # type: ignore[index]
            live = [(key, each) for key, each in logged if each in mine and each in known]
            used = sum(self.logs[key][2][each] for key, each in live)  # type: ignore[index]
            logs = {key for key, _ in live}
            counts = (len(mine), sum(end + 1 for end in ends), len(bookies))
            replicas = sum(len(held[key]) for key in here)
            space = (sum(sizes), used, sum(sizes) - used, len(logs), len(logs & pinned))
            pins = sum(self.logs[key][0] for key in logs & pinned)
            rows.append((*owner, *counts, replicas, *space, pins))
        return sorted(rows, key=lambda row: (-row[6], *_nulls_last(row[:2])))

    def violations_by_owner(
        self, group_by: str = "topic", chosen: set[LedgerId] | None = None
    ) -> list[Row]:
        """The judged ledgers that lack replicas, put together owner by owner."""
        owners: dict[Any, list[Row]] = defaultdict(list)
        for each in self.ledgers():
            if each.lacking and (chosen is None or each.metadata.ledger in chosen):
                owners[self._owner(each.metadata.ledger, group_by)].append(each.health())
        rows = []
        for owner, health in owners.items():
            due, missing, _, _, lost, category, _ = zip(*(row[9:] for row in health))
            names = ("no_replica", "below_ack_quorum", "below_write_quorum")
            counts = (len(health), *(category.count(each) for each in names))
            rows.append((*owner, *counts, sum(lost), sum(missing), sum(due)))
        return sorted(rows, key=lambda row: (-row[6], -row[7], *_nulls_last(row[:2])))

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
            damage = len([row for row in finding_rows(self.world, name) if row[1] == "damage"])
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


def rows_of_owners(world: DumpWorld, name: str, options: Options) -> list[Row]:
    """Return the rows of an analysis that is limited to the ledgers of some owners: of one pattern,
    matched with the names that the world gives to owners.
    """
    pattern, expected = options.owners, Expected(world)
    (kind,) = (each for each in ("namespace", "component") if getattr(pattern, each))
    chosen = {
        metadata.ledger
        for metadata in world.metadata
        if fnmatchcase(getattr(owner_of(metadata), kind) or "", getattr(pattern, kind))
    }
    if name.endswith("_by_owner"):
        rows: list[Row] = getattr(expected, name)(options.group_by, chosen)
        return rows
    columns = ANALYSES[name].schema.names
    ids = [columns.index(column) for column in ("scope_id", "ledger_id")]
    signed = {ledger.signed for ledger in chosen}
    return [
        row for row in getattr(expected, name)() if tuple(row[column] for column in ids) in signed
    ]


def check_some_owners(engine: Any, world: DumpWorld, inputs: Inputs) -> None:
    """Check that a filter leaves the rows of the chosen ledgers, also where only the top ones are
    asked for, and that the next question, without a filter, is about all again.
    """
    options = Options(group_by="tenant", owners=OwnerFilter(namespace="shop/*"))
    for name in ("violations_by_owner", "bytes_by_owner", "holes"):
        table = engine.run(ANALYSES[name], replace(inputs, options=options))

        assert rows_of_owners(world, name, options) == rows_of(table), name
    top = replace(inputs, options=replace(options, top=1))
    local = LocalEngine(threads=1).run(ANALYSES["holes"], top)
    assert local.equals(engine.run(ANALYSES["holes"], top))
    rows = rows_of(engine.run(ANALYSES["bytes_by_owner"], inputs))
    assert Expected(world).bytes_by_owner() == rows


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
            missing = (len(gone), min(gone), max(gone), ranges, groups)
            rows.append((*ids, first, bookie, *missing, detail))
        return rows

    def health(self) -> Row:
        """The row of `ledger_health`."""
        said, ledger = self.metadata, self.metadata.ledger
        sizes = (said.ensemble_size, said.write_quorum_size, said.ack_quorum_size)
        ids = (*ledger.signed, ledger.qualified_name, said.state, *sizes)
        ids = (*ids, len(said.segments), said.last_entry_id)
        if self.skip is not None:
            return (*ids, None, None, None, None, None, None, self.skip)
        why = [f"bookies not in the dump: {' '.join(sorted(self.absent))}"] if self.absent else []
        if self.unread:
            why.append(f"could not be read on: {' '.join(sorted(self.unread))}")
        most = max(self.lacking.values(), default=0)
        fewest = said.write_quorum_size - most if self.due else None
        lost = sum(lacking == said.write_quorum_size for lacking in self.lacking.values())
        missing = sum(map(len, self.gone.values()))
        extra = sum(map(len, self.extra.values()))
        counts = (self.due, missing, extra, fewest, lost, self._category())
        return (*ids, *counts, "; ".join(why) or None)


def _nulls_last(values: Iterable[str | None]) -> Iterator[tuple[bool, str]]:
    return ((value is None, value or "") for value in values)


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


def _lies_on(stripe: tuple[int, int, int], entry: int) -> bool:
    size, period, phase = stripe
    return (entry - phase) % period < size


def _below(entry: int, size: int, period: int, phase: int) -> int:
    """How many ids of a stripe lie below `entry`, counted from its phase (negative before)."""
    return (entry - phase) // period * size + min((entry - phase) % period, size)


def _asked_for(stripe: tuple[int, int, int], first: int, last: int) -> Iterator[int]:
    """Yield every entry of a stripe from `first` to `last`, one by one."""
    size, period, phase = stripe
    start = first - (first - phase) % period
    for begin in range(start, last + 1, period):
        yield from range(max(begin, first), min(begin + size, last + 1))


def _change(before: set[int], after: set[int]) -> str:
    if not before:
        return "new"
    if not after:
        return "gone"
    names = {(False, False): "same", (True, False): "grown", (False, True): "shrunk"}
    return names.get((bool(after - before), bool(before - after)), "changed")
