"""The tile that names the worst ledgers, what they lack, and on which bookies."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from bkstore.ids import LedgerId
from bkstore.report.findings.headline import why_not_judged
from bkstore.report.findings.health_classes import DURABILITY_CLASSES, HEALTH_CLASSES, class_ranks
from bkstore.report.findings.key_figures import Facts
from bkstore.report.findings.table_columns import Tables
from bkstore.report.findings.topics import owner_name
from bkstore.report.findings.worst_ledgers import Risk, worst_holes, worst_ledgers
from bkstore.report.html.value_formats import counted, shorten

_MAX_RISKS = 5
_MAX_UNREAD = 2


class ProblemCount(NamedTuple):
    """A number and its noun; None if it was not asked for."""

    number: str | None
    words: str


class RiskTile(NamedTuple):
    """The content of the tile; `link` is a part of the page and the text of the link to it."""

    heading: str
    lead: str = ""
    risks: tuple[Risk, ...] = ()
    link: tuple[str, str] | None = None
    counts: tuple[ProblemCount, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def risk_tile(facts: Facts, tables: Tables) -> RiskTile:
    """Return the tile's content: the worst ledgers, or why none can be named."""
    risks = [_add_owner(risk, facts) for risk in worst_ledgers(tables, _MAX_RISKS)]
    if risks:
        link = _link_to_losses(facts, shown_ledgers=len(risks))
        tile = RiskTile("Lost or at risk", risks=tuple(risks), link=link)
    elif why_not_judged(facts):
        tile = _holes_tile(facts, tables)
    else:
        judged = counted(facts.health.judged if facts.health else 0, "judged ledger")
        lead, counts = f"No replica is missing in {judged}.", tuple(_problem_counts(facts, tables))
        tile = RiskTile("Lost or at risk", lead=lead, counts=counts)
    unread = tuple((name, shorten(reason)) for name, reason in facts.unread_bookies[:_MAX_UNREAD])
    return tile._replace(notes=tuple(_make_notes(facts)), unread=unread)


def _add_owner(risk: Risk, facts: Facts) -> Risk:
    """Return the risk with the topic of its ledger, if known."""
    return risk._replace(owner=owner_name(facts.owners, *LedgerId.parse(risk.name).signed))


def _make_notes(facts: Facts) -> list[str]:
    """Return sentences on ledgers without any bookie, and on unread bookies that are not listed."""
    sentences = []
    if facts.homeless_ledgers:
        ledgers = counted(facts.homeless_ledgers, "ledger has", "ledgers have")
        sentences.append(f"{ledgers} no entry on any bookie of the dump.")
    more_count = len(facts.unread_bookies) - _MAX_UNREAD
    if more_count > 0:
        sentences.append(f"{counted(more_count, 'more bookie was', 'more bookies were')} not read.")
    return sentences


def _problem_counts(facts: Facts, tables: Tables) -> list[ProblemCount]:
    """Return what else may be wrong where no replica is missing; None counts were not asked for."""
    unjudged = facts.health.by_class.get("not_judged", 0) if facts.health else 0
    homeless, holes = facts.homeless_ledgers, facts.ledgers_with_holes
    counts = [
        (unjudged, "ledger not judged", "ledgers not judged", _commonest_reasons(tables)),
        (homeless, "ledger without any bookie", "ledgers without any bookie", ""),
        (holes, "ledger with holes", "ledgers with holes", " by the stripe seen"),
        (len(facts.unread_bookies), "bookie that was not read", "bookies that were not read", ""),
        (facts.damage, "piece of damage", "pieces of damage", ""),
    ]
    return [
        ProblemCount(
            None if count is None else f"{count:,}", f"{one if count == 1 else many}{more}"
        )
        for count, one, many, more in counts
    ]


def _commonest_reasons(tables: Tables) -> str:
    """Return the most common reasons why ledgers were not judged at all, with counts."""
    table = tables["ledger_health"]
    unjudged = class_ranks(table) == HEALTH_CLASSES.index("not_judged")
    reasons = table.column("not_judged").take(np.flatnonzero(unjudged))
    commonest = Counter(reason for reason in reasons.to_pylist() if reason).most_common(3)
    words = [f"{shorten(reason, 40)}: {number:,}" for reason, number in commonest]
    return f" ({', '.join(words)})" if words else ""


def _link_to_losses(facts: Facts, shown_ledgers: int) -> tuple[str, str]:
    """Return the section that lists all ledgers with missing replicas, and the link's text."""
    section, counts = "violations", facts.violations
    if counts is None:
        section, counts = "ledger_health", facts.health.by_class if facts.health else {}
    more_count = sum(counts.get(name, 0) for name in DURABILITY_CLASSES) - shown_ledgers
    link_text = f"{more_count:,} more" if more_count > 0 else "Each replica"
    return section, f"{link_text} in the table below"


def _holes_tile(facts: Facts, tables: Tables) -> RiskTile:
    """Return the tile for a dump without judged ledgers, which shows holes if they are known:
    entries missing in the pattern (stripe) that a ledger's other entries on a bookie show."""
    reason = f"Not judged: {why_not_judged(facts)}."
    if "holes" not in tables:
        return RiskTile("Lost or at risk", lead=reason)
    if not facts.ledgers_with_holes:
        return RiskTile("Holes", lead="No ledger has holes in the observed stripe.")
    ledgers_have = counted(facts.ledgers_with_holes, "ledger has", "ledgers have")
    lead = f"{ledgers_have} holes in the observed stripe; other bookies may have the entries."
    risks = tuple(_add_owner(risk, facts) for risk in worst_holes(tables["holes"], _MAX_RISKS))
    more_count = facts.ledgers_with_holes - len(risks)
    link_text = f"{more_count:,} more" if more_count > 0 else "Each bookie"
    return RiskTile("Holes", lead, risks, link=("holes", f"{link_text} in the table below"))
