"""Random clusters, and what an audit of them must say: per entry, with sets, by the rules' text.

Nothing here uses the code under test: write sets are counted out from reference 8.1, categories
from 9.2. Long segments, where not every entry can be visited, are judged in windows and by
counting (`expected_count`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from bkstore.availability import Availability
from bkstore.errors import BookieUnavailable
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

BOOKIES = [f"bookie-{number}" for number in range(1, 9)]
Row = tuple[str, LedgerId, int, str, tuple[int, ...]]


def stores(entry: int, index: int, size: int, quorum: int) -> bool:
    """Whether the bookie at `index` is in the write set of `entry` (reference 8.1)."""
    return any((entry + w) % size == index for w in range(quorum))


def expected_count(first: int, last: int, index: int, size: int, quorum: int) -> int:
    """How many entries of first..last go to `index`: those congruent to index - w, for each w."""
    count = 0
    for w in range(quorum):
        residue = (index - w) % size
        count += (last - residue) // size - (first - 1 - residue) // size
    return count


def category(replicas: int, quorum: int, ack: int) -> str:
    """The category of a ledger whose worst entry has `replicas` replicas (reference 9.2)."""
    if replicas == 0:
        return "no_replica"
    return "below_ack_quorum" if replicas < ack else "below_write_quorum"


def segments(metadata: LedgerMetadata) -> list[tuple[int, int, tuple[str, ...]]]:
    """(first, last, ensemble) of each segment: it ends before the next one (reference 8.2)."""
    starts = [first for first, _ in metadata.segments]
    ends = [start - 1 for start in starts[1:]] + [metadata.last_entry_id]
    return [(first, end, who) for (first, who), end in zip(metadata.segments, ends)]


@dataclass
class World:
    """A cluster: metadata, and the entries that each bookie holds of each ledger."""

    ledgers: list[LedgerMetadata] = field(default_factory=list)
    held: dict[str, dict[LedgerId, set[int]]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    def rows(self) -> set[Row]:
        """Every durability row that an audit must give, found entry by entry."""
        rows: set[Row] = set()
        for metadata in self.ledgers:
            if metadata.state == "CLOSED":
                rows |= self._rows_of(metadata)
        return rows

    def _rows_of(self, metadata: LedgerMetadata) -> set[Row]:
        size, quorum = metadata.ensemble_size, metadata.write_quorum_size
        lacking: dict[int, int] = {}
        missing: dict[tuple[int, str], list[int]] = {}
        for first, last, ensemble in segments(metadata):
            for entry in range(first, last + 1):
                for w in range(quorum):
                    bookie = ensemble[(entry + w) % size]
                    if bookie in self.silent:
                        continue
                    if entry not in self.held[bookie].get(metadata.ledger, ()):
                        lacking[entry] = lacking.get(entry, 0) + 1
                        missing.setdefault((first, bookie), []).append(entry)
        if not lacking:
            return set()
        worst = category(quorum - max(lacking.values()), quorum, metadata.ack_quorum_size)
        return {
            (worst, metadata.ledger, first, bookie, tuple(entries))
            for (first, bookie), entries in missing.items()
        }


class HeldBookie:
    """A bookie of a world, as an audit asks it."""

    def __init__(self, world: World, name: str) -> None:
        """Take the world and who in it this is."""
        self.world, self.name = world, name
        self.asked: list[LedgerId] = []

    def availability(self, ledger: int | LedgerId) -> Availability:
        """Answer from the world's sets, or not."""
        name = LedgerId.of(ledger)
        self.asked.append(name)
        if self.name in self.world.silent:
            raise BookieUnavailable(f"{self.name} is silent")
        return Availability.from_entries(sorted(self.world.held[self.name].get(name, set())))


def random_world(seed: int, ledgers: int = 12, longest: int = 60) -> World:
    """Return a world with all that metadata may have: every E, W, A, segments, states, losses."""
    chance = random.Random(seed)
    world = World(held={name: {} for name in BOOKIES})
    for number in range(ledgers):
        metadata = _random_ledger(chance, _random_id(chance, number), longest)
        world.ledgers.append(metadata)
        _fill(chance, world, metadata)
    return world


def _random_id(chance: random.Random, number: int) -> LedgerId:
    kind = chance.randrange(4)
    if kind < 2:
        return LedgerId(0, number if kind else (1 << 31) + number)
    return LedgerId(chance.choice([1, (1 << 63) + 5]), (1 << 63) * (kind == 3) + number)


def _random_ledger(chance: random.Random, ledger: LedgerId, longest: int) -> LedgerMetadata:
    size = chance.randint(1, 7)
    quorum = chance.randint(1, size)
    state = chance.choices(["CLOSED", "OPEN", "IN_RECOVERY"], [8, 1, 1])[0]
    last = chance.randint(-1, longest)
    starts = {0, *(chance.randint(1, last + 1) for _ in range(chance.randint(0, 3)) if last >= 0)}
    ensemble = chance.sample(BOOKIES, size)
    parts = []
    for start in sorted(starts):
        parts.append((start, tuple(ensemble)))
        free = [name for name in BOOKIES if name not in ensemble]
        if free:
            ensemble[chance.randrange(size)] = chance.choice(free)
    closed = state == "CLOSED"
    return LedgerMetadata(
        ledger,
        size,
        quorum,
        chance.randint(1, quorum),
        tuple(parts),  # type: ignore[arg-type]
        state=state,  # type: ignore[arg-type]
        last_entry_id=last if closed else -1,
        length=10 * (last + 1) if closed else 0,
        digest_type="DUMMY",
        password=b"",
    )


def _fill(chance: random.Random, world: World, metadata: LedgerMetadata) -> None:
    """Give each bookie what it should hold, less some, and more than that at times."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum_size
    for first, last, ensemble in segments(metadata):
        for index, bookie in enumerate(ensemble):
            due = {e for e in range(first, last + 1) if stores(e, index, size, quorum)}
            loss = chance.choice([0, 0, 0, 0, 1, 3, len(due)])
            due -= set(chance.sample(sorted(due), min(loss, len(due))))
            if due:
                world.held[bookie].setdefault(metadata.ledger, set()).update(due)
    for bookie in chance.sample(BOOKIES, 2):  # over-replicated, left behind by ensemble changes
        extra = {chance.randint(0, metadata.last_entry_id + 40) for _ in range(3)}
        if chance.random() < 0.3:
            world.held[bookie].setdefault(metadata.ledger, set()).update(extra)
