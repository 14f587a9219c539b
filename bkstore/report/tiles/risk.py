"""The tile that names the worst ledgers, what they lack, and on which bookies."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from bkstore.report.findings.headline import why_not_judged
from bkstore.report.findings.health_classes import DURABILITY_CLASSES, HEALTH_CLASSES, class_ranks
from bkstore.report.findings.key_figures import Facts
from bkstore.report.findings.table_columns import Tables
from bkstore.report.findings.worst_ledgers import Risk, worst_holes, worst_ledgers
from bkstore.report.html.value_formats import (
    CATEGORY_WORDS,
    counted,
    format_count,
    join_names,
    shorten,
)

_MAX_RISKS = 5
_MAX_BOOKIES = 4


class RiskLine(NamedTuple):
    """One ledger: its category and the words for it, its name, what it lacks, and where."""

    category: str
    chip: str
    ledger: str
    lacks: str
    bookies: str


class ProblemCount(NamedTuple):
    """A number and its noun; None if it was not asked for."""

    number: str | None
    words: str


class RiskTile(NamedTuple):
    """The content of the tile; `link` is a part of the page and the text of the link to it."""

    heading: str
    lead: str = ""
    risks: tuple[RiskLine, ...] = ()
    link: tuple[str, str] | None = None
    counts: tuple[ProblemCount, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def risk_tile(facts: Facts, tables: Tables) -> RiskTile:
    """Return the tile's content: the worst ledgers, or why none can be named."""
    risks = worst_ledgers(tables, _MAX_RISKS)
    if risks:
        link = _more_risks(facts, len(risks))
        tile = RiskTile("Lost or at risk", risks=_risk_lines(risks), link=link)
    elif why_not_judged(facts):
        tile = _holes_tile(facts, tables)
    else:
        counts = tuple(_problem_counts(facts, tables))
        tile = RiskTile("Lost or at risk", _nothing_missing(facts), counts=counts)
    return tile._replace(notes=tuple(_notes(facts)), unread=_unread(facts))


def _notes(facts: Facts) -> list[str]:
    sentences = []
    if facts.homeless:
        ledgers = counted(facts.homeless, "ledger has", "ledgers have")
        sentences.append(f"{ledgers} no entry on any bookie of the dump.")
    if (unnamed := len(facts.unread) - 2) > 0:
        sentences.append(f"{counted(unnamed, 'more bookie was', 'more bookies were')} not read.")
    return sentences


def _unread(facts: Facts) -> tuple[tuple[str, str], ...]:
    return tuple((name, shorten(reason)) for name, reason in facts.unread[:2])


def _nothing_missing(facts: Facts) -> str:
    judged = facts.health.judged if facts.health else 0
    return f"No replica is missing in {counted(judged, 'judged ledger')}."


def _problem_counts(facts: Facts, tables: Tables) -> list[ProblemCount]:
    unjudged = facts.health.by_class.get("not_judged", 0) if facts.health else 0
    counts = [
        (unjudged, "ledger not judged", "ledgers not judged", _reasons(tables)),
        (facts.homeless, "ledger without any bookie", "ledgers without any bookie", ""),
        (facts.holes, "ledger with holes", "ledgers with holes", " by the stripe seen"),
        (len(facts.unread), "bookie that was not read", "bookies that were not read", ""),
        (facts.damage, "piece of damage", "pieces of damage", ""),
    ]
    return [
        ProblemCount(
            None if number is None else format_count(number),
            f"{singular if number == 1 else plural}{suffix}",
        )
        for number, singular, plural, suffix in counts
    ]


def _reasons(tables: Tables) -> str:
    """Return the most common reasons why ledgers were not judged at all, with counts."""
    table = tables["ledger_health"]
    unjudged = class_ranks(table) == HEALTH_CLASSES.index("not_judged")
    reasons = table.column("not_judged").take(np.flatnonzero(unjudged))
    commonest = Counter(reason for reason in reasons.to_pylist() if reason).most_common(3)
    words = [f"{shorten(reason, 40)}: {format_count(number)}" for reason, number in commonest]
    return f" ({', '.join(words)})" if words else ""


def _risk_lines(risks: list[Risk]) -> tuple[RiskLine, ...]:
    return tuple(
        RiskLine(
            risk.category,
            CATEGORY_WORDS[risk.category],
            risk.name,
            risk.entries,
            join_names(risk.bookies, _MAX_BOOKIES),
        )
        for risk in risks
    )


def _more_risks(facts: Facts, shown: int) -> tuple[str, str]:
    counts = facts.violations if facts.violations is not None else {}
    if facts.health is not None and facts.violations is None:
        counts = facts.health.by_class
    total = sum(counts.get(name, 0) for name in DURABILITY_CLASSES)
    section = "violations" if facts.violations is not None else "ledger_health"
    link_text = f"{format_count(total - shown)} more" if total > shown else "Each replica"
    return section, f"{link_text} in the table below"


def _holes_tile(facts: Facts, tables: Tables) -> RiskTile:
    """Return the tile for a dump without judged ledgers, which shows holes if they are known."""
    reason = f"Not judged: {why_not_judged(facts)}."
    if "holes" not in tables:
        return RiskTile("Lost or at risk", reason)
    heading = "Holes"
    if not facts.holes:
        return RiskTile(heading, "No ledger has holes in the observed stripe.")
    ledgers_have = counted(facts.holes, "ledger has", "ledgers have")
    lead = f"{ledgers_have} holes in the observed stripe; other bookies may have the entries."
    lines = _risk_lines(worst_holes(tables["holes"], _MAX_RISKS))
    more_count = facts.holes - len(lines)
    link_text = f"{format_count(more_count)} more" if more_count > 0 else "Each bookie"
    return RiskTile(heading, lead, lines, ("holes", f"{link_text} in the table below"))
