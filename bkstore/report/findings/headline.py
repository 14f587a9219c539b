"""The headline: a verdict on the dump, and sentences about what matters most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bkstore.report.findings.key_figures import Facts, number_column
from bkstore.report.html.value_formats import counted, format_share, join_clauses, size_text

if TYPE_CHECKING:
    import pyarrow as pa

HIGH_GARBAGE_SHARE = 0.3
"""The headline mentions garbage from this share of the disk on."""

_SHARE_OF_BYTES = 0.8
_SHARE_OF_BOOKIES = 0.4


class Headline(NamedTuple):
    """The headline: `level` is bad, warn, unknown or good, `word` its text, `sentences` why."""

    level: str
    word: str
    sentences: tuple[str, ...]


def make_headline(facts: Facts, tables: Mapping[str, pa.Table]) -> Headline:
    """Return the headline: good only if all data was read, judged, and found complete."""
    lost, at_risk, unread = _lost_clauses(facts), _at_risk_clauses(facts), _unread_clauses(facts)
    not_judged_clauses = _not_judged_clauses(facts)
    disk_clauses = _disk_clauses(facts, tables)
    if lost:
        level, word, findings = "bad", "Data lost", [*lost, *at_risk[:2], *unread]
    elif at_risk or unread:
        level, word = "warn", "At risk" if at_risk else "Not all read"
        findings = [*at_risk[:3], *unread]
    elif not_judged_clauses:
        level, word, findings = "unknown", "Not judged", []
    else:
        level, word, findings = "good", "Sound", _sound_clauses(facts)
    sentences = (
        join_clauses(findings),
        join_clauses(not_judged_clauses[:1]),
        join_clauses(disk_clauses),
    )
    return Headline(level, word, tuple(sentence for sentence in sentences if sentence))


def why_not_judged(facts: Facts) -> str:
    """Return why no ledger was judged against metadata, an empty string if one was."""
    if facts.health is not None:
        if facts.health.ledgers == 0:
            return "the ledger metadata contain no ledger"
        return "" if facts.health.judged else "none of the ledgers could be judged"
    has_metadata = facts.metadata is not None
    return "ledger health was not requested" if has_metadata else "no ledger metadata were given"


def _ledgers_of_class(facts: Facts, name: str) -> int:
    """Return how many ledgers are of a class, by the table that has more of them."""
    in_health = facts.health.by_class.get(name, 0) if facts.health else 0
    return max(in_health, (facts.violations or {}).get(name, 0))


def _lost_clauses(facts: Facts) -> list[str]:
    lost = _ledgers_of_class(facts, "no_replica")
    if lost:
        return [f"{counted(lost, 'ledger has', 'ledgers have')} entries without any replica"]
    if facts.homeless:
        return [f"no bookie of the dump has an entry of {counted(facts.homeless, 'ledger')}"]
    return []


def _at_risk_clauses(facts: Facts) -> list[str]:
    clause_list = []
    if below_ack := _ledgers_of_class(facts, "below_ack_quorum"):
        clause_list.append(
            f"{counted(below_ack, 'ledger has', 'ledgers have')} entries below the ack quorum"
        )
    if below_write := _ledgers_of_class(facts, "below_write_quorum"):
        clause_list.append(f"{counted(below_write, 'ledger lacks', 'ledgers lack')} some replicas")
    others = {
        "overdue": ("ledger is overdue for repair", "ledgers are overdue for repair"),
        "placement": ("ledger breaks", "ledgers break"),
        "bookie_unavailable": ("ledger is on", "ledgers are on"),
    }
    endings = {
        "placement": " the placement policy",
        "bookie_unavailable": " bookies not answering",
    }
    for name, (one, many) in others.items():
        if ledgers := (facts.violations or {}).get(name, 0):
            clause_list.append(counted(ledgers, one, many) + endings.get(name, ""))
    return clause_list


def _unread_clauses(facts: Facts) -> list[str]:
    clause_list = []
    if facts.unread:
        noun = "bookie" if facts.bookies == 1 else "bookies"
        clause_list.append(f"{len(facts.unread)} of {facts.bookies} {noun} could not be read")
    damage = (facts.damage or 0) - len(facts.unread)
    if damage > 0:
        clause_list.append(f"{counted(damage, 'piece')} of data could not be read")
    return clause_list


def _not_judged_clauses(facts: Facts) -> list[str]:
    if reason := why_not_judged(facts):
        if facts.metadata is not None:
            return [f"whether anything is lost was not judged: {reason}"]
        return [f"{reason}, so it is unknown what should be here{_holes_clause(facts)}"]
    partly_judged = facts.health.by_class.get("in_part", 0) if facts.health else 0
    if partly_judged:
        ledgers_were = counted(partly_judged, "ledger was", "ledgers were")
        return [f"{ledgers_were} judged in part only: some of their bookies are not in the dump"]
    return []


def _holes_clause(facts: Facts) -> str:
    """Return the end of a sentence about holes, which need no metadata."""
    if facts.holes is None:
        return ""
    if not facts.holes:
        return "; no ledger has holes in the observed stripe"
    return f"; {counted(facts.holes, 'ledger has', 'ledgers have')} holes in the observed stripe"


def _sound_clauses(facts: Facts) -> list[str]:
    health = facts.health
    if health is None:
        return []
    judged = counted(health.judged, "judged ledger has", "judged ledgers have")
    clause_list = [f"{'the' if health.judged == 1 else 'all'} {judged} every replica"]
    if not_judged_count := health.ledgers - health.judged:
        clause_list.append(
            counted(not_judged_count, "other was not judged", "others were not judged")
        )
    return clause_list


def _disk_clauses(facts: Facts, tables: Mapping[str, pa.Table]) -> list[str]:
    disk = facts.disk
    if disk is None or disk.files == 0:
        return []
    clause_list = []
    if disk.garbage >= HIGH_GARBAGE_SHARE * disk.files:
        percentage = format_share(disk.garbage, disk.files)
        clause_list.append(f"garbage is {percentage} of {size_text(disk.files)} on disk")
    sizes = np.sort(number_column(tables["bytes_by_bookie"], "log_file_bytes"))[::-1]
    bookie_count = int(np.searchsorted(np.cumsum(sizes), _SHARE_OF_BYTES * float(sizes.sum()))) + 1
    if len(sizes) > 3 and bookie_count <= _SHARE_OF_BOOKIES * len(sizes):
        percentage = format_share(float(sizes[:bookie_count].sum()), float(sizes.sum()))
        verb = "fills" if bookie_count == 1 else "fill"
        clause_list.append(
            f"{bookie_count} of {len(sizes)} bookies {verb} {percentage} of the disk"
        )
    if not clause_list:
        clause_list.append(
            f"{size_text(disk.files)} on disk, {format_share(disk.garbage, disk.files)} garbage"
        )
    return clause_list
