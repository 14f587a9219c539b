"""The headline: one sentence about what matters most, and how bad it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bkstore.report.findings.key_figures import Facts, numbers
from bkstore.report.html.wording import clauses, counted, share, size_text

if TYPE_CHECKING:
    import pyarrow as pa

MUCH_GARBAGE = 0.3
"""From this share of the disk on, garbage is in the headline."""

_MOST_BYTES = 0.8
_FEW_BOOKIES = 0.4


class Verdict(NamedTuple):
    """`level` is bad, warn, unknown or good; `word` says it; `sentences` say why."""

    level: str
    word: str
    sentences: tuple[str, ...]


def judge(facts: Facts, tables: Mapping[str, pa.Table]) -> Verdict:
    """Return the headline. Good is only what was judged, found whole, and read in full."""
    lost, short, unread = _lost(facts), _short(facts), _unread(facts)
    unsure = _unsure(facts)
    disk = _disk(facts, tables)
    if lost:
        level, word, first = "bad", "Data lost", [*lost, *short[:2], *unread]
    elif short or unread:
        level, word = "warn", "At risk" if short else "Not all read"
        first = [*short[:3], *unread]
    elif unsure:
        level, word, first = "unknown", "Not judged", []
    else:
        level, word, first = "good", "Sound", _sound(facts)
    sentences = (clauses(first), clauses(unsure[:1]), clauses(disk))
    return Verdict(level, word, tuple(each for each in sentences if each))


def not_judged(facts: Facts) -> str:
    """Return why nothing was judged against metadata; empty where something was."""
    if facts.health is not None:
        if facts.health.ledgers == 0:
            return "the ledger metadata list no ledger"
        return "" if facts.health.judged else "none of the ledgers could be judged"
    given = facts.metadata is not None
    return "ledger health was not asked for" if given else "no ledger metadata were given"


def _class(facts: Facts, name: str) -> int:
    """Return how many ledgers are of a class, by whichever table tells of more."""
    found = facts.health.by_class.get(name, 0) if facts.health else 0
    return max(found, (facts.violations or {}).get(name, 0))


def _lost(facts: Facts) -> list[str]:
    lost = _class(facts, "no_replica")
    if lost:
        return [f"{counted(lost, 'ledger has', 'ledgers have')} entries without any replica"]
    if facts.homeless:
        return [f"no bookie of the dump has an entry of {counted(facts.homeless, 'ledger')}"]
    return []


def _short(facts: Facts) -> list[str]:
    said = []
    if ack := _class(facts, "below_ack_quorum"):
        said.append(f"{counted(ack, 'ledger has', 'ledgers have')} entries below the ack quorum")
    if write := _class(facts, "below_write_quorum"):
        said.append(f"{counted(write, 'ledger lacks', 'ledgers lack')} some replicas")
    others = {
        "overdue": ("ledger is overdue for repair", "ledgers are overdue for repair"),
        "placement": ("ledger breaks", "ledgers break"),
        "bookie_unavailable": ("ledger is on", "ledgers are on"),
    }
    ends = {"placement": " the placement policy", "bookie_unavailable": " bookies without answer"}
    for name, (one, many) in others.items():
        if ledgers := (facts.violations or {}).get(name, 0):
            said.append(counted(ledgers, one, many) + ends.get(name, ""))
    return said


def _unread(facts: Facts) -> list[str]:
    said = []
    if facts.unread:
        were = "bookie" if facts.bookies == 1 else "bookies"
        said.append(f"{len(facts.unread)} of {facts.bookies} {were} could not be read")
    damage = (facts.damage or 0) - len(facts.unread)
    if damage > 0:
        said.append(f"{counted(damage, 'piece')} of data could not be read")
    return said


def _unsure(facts: Facts) -> list[str]:
    if reason := not_judged(facts):
        if facts.metadata is not None:
            return [f"whether anything is lost was not judged: {reason}"]
        return [f"{reason}, so it is not known what should be here{_holes(facts)}"]
    part = facts.health.by_class.get("in_part", 0) if facts.health else 0
    if part:
        were = counted(part, "ledger was", "ledgers were")
        return [f"{were} judged in part only: some of their bookies are not in the dump"]
    return []


def _holes(facts: Facts) -> str:
    """Return what is known without metadata, as the end of a sentence."""
    if facts.holes is None:
        return ""
    if not facts.holes:
        return "; no ledger has holes by the stripe seen"
    return f"; {counted(facts.holes, 'ledger has', 'ledgers have')} holes by the stripe seen"


def _sound(facts: Facts) -> list[str]:
    health = facts.health
    if health is None:
        return []
    judged = counted(health.judged, "judged ledger has", "judged ledgers have")
    said = [f"{'the' if health.judged == 1 else 'all'} {judged} every replica"]
    if left := health.ledgers - health.judged:
        said.append(counted(left, "other was not judged", "others were not judged"))
    return said


def _disk(facts: Facts, tables: Mapping[str, pa.Table]) -> list[str]:
    disk = facts.disk
    if disk is None or disk.files == 0:
        return []
    said = []
    if disk.garbage >= MUCH_GARBAGE * disk.files:
        part = share(disk.garbage, disk.files)
        said.append(f"garbage is {part} of {size_text(disk.files)} on disk")
    sizes = np.sort(numbers(tables["bytes_by_bookie"], "log_file_bytes"))[::-1]
    few = int(np.searchsorted(np.cumsum(sizes), _MOST_BYTES * float(sizes.sum()))) + 1
    if len(sizes) > 3 and few <= _FEW_BOOKIES * len(sizes):
        part = share(float(sizes[:few].sum()), float(sizes.sum()))
        fill = "fills" if few == 1 else "fill"
        said.append(f"{few} of {len(sizes)} bookies {fill} {part} of the disk")
    if not said:
        said.append(f"{size_text(disk.files)} on disk, {share(disk.garbage, disk.files)} garbage")
    return said
