"""The headline: a verdict on the dump, and sentences about what matters most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bkstore.counts import size_text
from bkstore.report.findings.key_figures import Facts
from bkstore.report.findings.table_columns import Tables, number_column
from bkstore.report.html.value_formats import counted, format_share, join_clauses

HIGH_GARBAGE_SHARE = 0.3
"""The headline mentions garbage from this share of the disk on."""

_MAX_TOPIC = 80  # characters
_SHARE_OF_BYTES = 0.8
_SHARE_OF_BOOKIES = 0.4


class Headline(NamedTuple):
    """The headline: `level` is bad, warn, unknown or good, `word` its text, `sentences` why."""

    level: str
    word: str
    sentences: tuple[str, ...]


def make_headline(facts: Facts, tables: Tables) -> Headline:
    """Return the headline: good only if all data was read, judged, and found complete."""
    lost, at_risk, unread = _lost_clauses(facts), _at_risk_clauses(facts), _unread_clauses(facts)
    not_judged, disk = _not_judged_clauses(facts), _disk_clauses(facts, tables)
    if lost:
        level, word, findings = "bad", "Data lost", [*lost, *at_risk[:2], *unread]
    elif at_risk or unread:
        level, word = "warn", "At risk" if at_risk else "Not all read"
        findings = [*at_risk[:3], *unread]
    elif not_judged:
        level, word, findings = "unknown", "Not judged", []
    else:
        level, word, findings = "good", "Sound", _sound_clauses(facts)
    sentences = (join_clauses(clauses) for clauses in (findings, not_judged[:1], disk))
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
    """Return how many ledgers are of a class, by `ledger_health` or `violations`, whichever has
    more."""
    in_health = facts.health.by_class.get(name, 0) if facts.health else 0
    return max(in_health, (facts.violations or {}).get(name, 0))


def _lost_clauses(facts: Facts) -> list[str]:
    """Return a clause on ledgers with lost entries, none if nothing is lost."""
    lost = _ledgers_of_class(facts, "no_replica")
    if lost:
        ledgers_have = counted(lost, "ledger has", "ledgers have")
        return [f"{ledgers_have} entries without any replica{_lost_topics(facts)}"]
    if facts.homeless_ledgers:
        ledgers = counted(facts.homeless_ledgers, "ledger")
        return [f"no bookie of the dump has an entry of {ledgers}"]
    return []


def _lost_topics(facts: Facts) -> str:
    """Return the end of a clause: the topic that lost most, and how many others lost entries."""
    if facts.topics is None:
        return ""
    lost_entries = facts.topics.amounts.lost_entries
    others = int((lost_entries > 0).sum()) - 1
    if others < 0:  # no topic lost any
        return ""
    most = int(lost_entries.argmax())
    topic = facts.topics.names[most]
    if len(topic) > _MAX_TOPIC:  # cut the start, in which names differ least
        topic = f"\u2026{topic[1 - _MAX_TOPIC :]}"
    text = f"{topic} lost {counted(int(lost_entries[most]), 'entry', 'entries')}"
    return f" ({text}, {counted(others, 'more topic')} too)" if others else f" ({text})"


def _at_risk_clauses(facts: Facts) -> list[str]:
    """Return clauses on ledgers below a quorum, and on other violations."""
    clauses = []
    if below_ack := _ledgers_of_class(facts, "below_ack_quorum"):
        ledgers_have = counted(below_ack, "ledger has", "ledgers have")
        clauses.append(f"{ledgers_have} entries below the ack quorum")
    if below_write := _ledgers_of_class(facts, "below_write_quorum"):
        clauses.append(f"{counted(below_write, 'ledger lacks', 'ledgers lack')} some replicas")
    others = {
        "overdue": ("ledger is", "ledgers are", "overdue for repair"),
        "placement": ("ledger breaks", "ledgers break", "the placement policy"),
        "bookie_unavailable": ("ledger is", "ledgers are", "on bookies not answering"),
    }
    for name, (one, many, predicate) in others.items():
        if ledgers := (facts.violations or {}).get(name, 0):
            clauses.append(f"{counted(ledgers, one, many)} {predicate}")
    return clauses


def _unread_clauses(facts: Facts) -> list[str]:
    """Return clauses on bookies and pieces of data that could not be read."""
    clauses = []
    if facts.unread_bookies:
        noun = "bookie" if facts.bookies == 1 else "bookies"
        clauses.append(f"{len(facts.unread_bookies)} of {facts.bookies} {noun} could not be read")
    damage = (facts.damage or 0) - len(facts.unread_bookies)  # each of them is a finding of damage
    if damage > 0:
        clauses.append(f"{counted(damage, 'piece')} of data could not be read")
    return clauses


def _not_judged_clauses(facts: Facts) -> list[str]:
    """Return why nothing, or only a part, was judged."""
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
    """Return the end of a sentence about holes, which need no metadata: entries that are missing in
    the pattern (stripe) that a ledger's other entries on the bookie show."""
    if facts.ledgers_with_holes is None:
        return ""
    if not facts.ledgers_with_holes:
        return "; no ledger has holes in the observed stripe"
    ledgers_have = counted(facts.ledgers_with_holes, "ledger has", "ledgers have")
    return f"; {ledgers_have} holes in the observed stripe"


def _sound_clauses(facts: Facts) -> list[str]:
    """Return clauses on the ledgers that have every replica."""
    health = facts.health
    if health is None:
        return []
    judged = counted(health.judged, "judged ledger has", "judged ledgers have")
    clauses = [f"{'the' if health.judged == 1 else 'all'} {judged} every replica"]
    if others := health.ledgers - health.judged:
        clauses.append(counted(others, "other was not judged", "others were not judged"))
    return clauses


def _disk_clauses(facts: Facts, tables: Tables) -> list[str]:
    """Return that much is garbage, that few bookies hold most of the bytes, or else the sizes."""
    disk = facts.disk
    if disk is None or disk.files == 0:
        return []
    clauses = []
    total, garbage_share = size_text(disk.files), format_share(disk.garbage, disk.files)
    if disk.garbage >= HIGH_GARBAGE_SHARE * disk.files:
        clauses.append(f"garbage is {garbage_share} of {total} on disk")
    # The fullest bookies that together reach a share of the bytes: are they few?
    sizes = np.sort(number_column(tables["bytes_by_bookie"], "log_file_bytes"))[::-1]
    most_bytes = _SHARE_OF_BYTES * float(sizes.sum())
    fullest = int(np.searchsorted(np.cumsum(sizes), most_bytes)) + 1
    if len(sizes) > 3 and fullest <= _SHARE_OF_BOOKIES * len(sizes):
        share = format_share(float(sizes[:fullest].sum()), float(sizes.sum()))
        verb = "fills" if fullest == 1 else "fill"
        clauses.append(f"{fullest} of {len(sizes)} bookies {verb} {share} of the disk")
    return clauses or [f"{total} on disk, {garbage_share} garbage"]
