"""The first screen below the headline: four tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bkstore.report.findings.headline import not_judged
from bkstore.report.findings.key_figures import CLASSES, Facts
from bkstore.report.html.bars import Part, bar, legend
from bkstore.report.html.markup import Html, note, tag
from bkstore.report.html.wording import CATEGORY_WORDS, count, counted, size
from bkstore.report.tiles.disk import filling
from bkstore.report.tiles.risk import at_risk

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["tiles"]

Tables = Mapping[str, "pa.Table"]


def tiles(facts: Facts, tables: Tables) -> Html:
    """Return the four tiles."""
    return tag(
        "div",
        _tile("how-much", "How much", *_amounts(facts)),
        _tile("how-healthy", "How healthy", *_healthy(facts)),
        _tile("at-risk", "Lost or at risk", *at_risk(facts, tables)),
        _tile("disk", "What fills the disk", *filling(facts, tables)),
        class_="tiles",
    )


def _tile(name: str, heading: str, *children: Html) -> Html:
    title = tag("h2", heading, id=f"tile-{name}")
    return tag("section", title, *children, class_="tile", aria_labelledby=f"tile-{name}")


# -- how much


def _amounts(facts: Facts) -> list[Html]:
    read = (facts.bookies or 0) - len(facts.unread)
    bookies = None if facts.bookies is None else count(facts.bookies)
    if facts.unread:
        bookies = f"{read} of {facts.bookies}"
    explained = "Replicas are entries, counted on each bookie."
    if facts.entries is not None:
        words = counted(facts.entries, "entry", "entries")
        explained = f"Replicas are entries, counted on each bookie; closed ledgers have {words}."
    files = None if facts.disk is None else facts.disk.files
    figures = [
        (bookies, "bookies read" if facts.unread else _plural(facts.bookies, "bookie")),
        (_number(facts.ledgers), _plural(facts.ledgers, "ledger")),
        (_number(facts.replicas), _plural(facts.replicas, "replica")),
        (None if files is None else size(files), "in entry logs"),
    ]
    listed = [
        tag("div", tag("dt", label), tag("dd", "not asked" if value is None else value))
        for value, label in figures
    ]
    return [tag("dl", *listed, class_="figures"), note(explained)]


def _number(value: int | None) -> str | None:
    return None if value is None else count(value)


def _plural(value: int | None, noun: str) -> str:
    return noun if value == 1 else f"{noun}s"


# -- how healthy


def _healthy(facts: Facts) -> list[Html]:
    health = facts.health
    said: list[Html] = []
    if health is None or health.ledgers == 0:
        reason = not_judged(facts)
        known = facts.ledgers or 0
        unknown = [Part("c-not_judged", "not judged", known, count(known))]
        said.append(tag("p", tag("b", "Not judged: "), f"{reason}.", class_="lead"))
        said.append(bar(unknown, known, f"no ledger of {known} was judged"))
        said += [legend(unknown, known)] if known else []
    else:
        parts = [
            Part(f"c-{name}", CATEGORY_WORDS[name], n, count(n))
            for name in reversed(CLASSES)
            if (n := health.by_class.get(name, 0))
        ]
        spoken = ", ".join(f"{part.text} {part.label}" for part in parts)
        said.append(bar(parts, health.ledgers, f"{health.ledgers} ledgers: {spoken}"))
        said.append(legend(parts, health.ledgers))
    return [*said, note(*_other_findings(facts))]


def _other_findings(facts: Facts) -> list[str]:
    """Say in a line what else was found, or not looked for."""
    said = []
    if facts.violations is not None:
        said += [
            f"{CATEGORY_WORDS[name]}: {counted(ledgers, 'ledger')}"
            for name in ("placement", "overdue", "bookie_unavailable", "placement_soft")
            if (ledgers := facts.violations.get(name))
        ]
    if facts.damage is None:
        said.append("findings of the dump: not asked")
    elif facts.damage or facts.oddities:
        odd = counted(facts.oddities or 0, "oddity", "oddities")
        said.append(f"findings: {count(facts.damage)} of damage, {odd}")
    else:
        said.append("no findings while reading")
    return [f"{'; '.join(said).capitalize()}."]
