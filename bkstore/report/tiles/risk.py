"""The tile that names the worst ledgers: what they lack, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bkstore.report.findings.headline import not_judged
from bkstore.report.findings.key_figures import CLASSES, Facts, class_of
from bkstore.report.findings.worst_ledgers import Risk, worst_holes, worst_ledgers
from bkstore.report.html.markup import Html, note, tag
from bkstore.report.html.wording import CATEGORY_WORDS, count, counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["at_risk"]

_MOST_RISKS = 5
_MOST_BOOKIES = 4

Tables = Mapping[str, "pa.Table"]


def at_risk(facts: Facts, tables: Tables) -> list[Html]:
    """Return the tile's content: the worst ledgers, else why none can be named."""
    said: list[Html] = []
    reason = not_judged(facts)
    risks = worst_ledgers(tables, _MOST_RISKS)
    if risks:
        said.append(_risks(risks))
        said.append(_more_risks(facts, len(risks)))
    elif reason:
        said.append(tag("p", tag("b", "Losses not judged: "), f"{reason}.", class_="lead"))
        said += _holes(facts, tables)
    else:
        said.append(tag("p", _nothing_missing(facts), class_="lead"))
        said.append(_looked_at(facts, tables))
    if facts.homeless:
        ledgers = counted(facts.homeless, "ledger has", "ledgers have")
        said.append(note(f"{ledgers} no entry on any bookie of the dump."))
    said += [
        note(tag("b", f"{name} was not read: "), _shorter(why), class_="note alarm")
        for name, why in facts.unread[:2]
    ]
    if len(facts.unread) > 2:
        said.append(note(f"{len(facts.unread) - 2} more bookies were not read."))
    return said


def _nothing_missing(facts: Facts) -> str:
    judged = facts.health.judged if facts.health else 0
    return f"No replica is missing in {counted(judged, 'judged ledger')}."


def _looked_at(facts: Facts, tables: Tables) -> Html:
    """List what else could have been found, with its number; not asked is not nothing."""
    unjudged = facts.health.by_class.get("not_judged", 0) if facts.health else 0
    counts = [
        ("ledgers not judged", unjudged, _reasons(tables)),
        ("ledgers without any bookie", facts.homeless, ""),
        ("ledgers with holes by the stripe seen", facts.holes, ""),
        ("bookies that were not read", len(facts.unread), ""),
        ("pieces of damage", facts.damage, ""),
    ]
    rows = [
        tag("li", tag("b", "not asked" if n is None else count(n)), f" {words}{why}")
        for words, n, why in counts
    ]
    return tag("ul", *rows, class_="counts")


def _reasons(tables: Tables) -> str:
    """Return the commonest reasons for which ledgers were not judged at all, with counts."""
    table = tables["ledger_health"]
    unjudged = class_of(table) == CLASSES.index("not_judged")
    reasons = table.column("not_judged").take(np.flatnonzero(unjudged))
    listed = Counter(reason for reason in reasons.to_pylist() if reason)
    words = [f"{_shorter(reason, 40)}: {count(n)}" for reason, n in listed.most_common(3)]
    return f" ({', '.join(words)})" if words else ""


def _risks(risks: list[Risk]) -> Html:
    rows = []
    for risk in risks:
        where = ", ".join(risk.bookies[:_MOST_BOOKIES])
        if len(risk.bookies) > _MOST_BOOKIES:
            where += f" and {len(risk.bookies) - _MOST_BOOKIES} more"
        rows.append(
            tag(
                "li",
                tag("span", CATEGORY_WORDS[risk.category], class_=f"chip c-{risk.category}"),
                tag("span", "ledger ", tag("code", risk.name), f": {risk.entries}"),
                *([tag("span", f"on {where}", class_="dim on", title=where)] if where else []),
            )
        )
    return tag("ol", *rows, class_="risks")


def _more_risks(facts: Facts, shown: int) -> Html:
    counts = facts.violations if facts.violations is not None else {}
    if facts.health is not None and facts.violations is None:
        counts = facts.health.by_class
    total = sum(counts.get(name, 0) for name in CLASSES[:3])
    place = "violations" if facts.violations is not None else "ledger_health"
    words = f"{count(total - shown)} more" if total > shown else "Each replica"
    return note(tag("a", f"{words} in the table below", href=f"#{place}"))


def _holes(facts: Facts, tables: Tables) -> list[Html]:
    if "holes" not in tables:
        return []
    found = worst_holes(tables["holes"], _MOST_RISKS)
    if not found:
        return [note("No ledger has holes by the stripe seen.")]
    ledgers = counted(facts.holes or 0, "ledger has", "ledgers have")
    said = f"{ledgers} holes by the stripe seen; other bookies may have the entries."
    return [note(said), _risks(found)]


def _shorter(text: str, most: int = 140) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
