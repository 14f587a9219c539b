"""The first screen below the headline: four tiles, and one more for topics."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.report.findings.headline import why_not_judged
from bkstore.report.findings.health_classes import HEALTH_CLASSES
from bkstore.report.findings.key_figures import Facts
from bkstore.report.findings.ledger_counts import explain_ledger_counts, unindexed_ledgers_note
from bkstore.report.findings.table_columns import Tables
from bkstore.report.html.bars import Bar, BarPart, LegendLine, make_bar, make_legend
from bkstore.report.html.value_formats import CATEGORY_WORDS, counted, format_size
from bkstore.report.tiles.disk import DiskTile, disk_tile
from bkstore.report.tiles.risk import RiskTile, risk_tile
from bkstore.report.tiles.topic_lines import TopicsTile, topics_tile


class KeyFigure(NamedTuple):
    """A number with its noun, None if it was not asked for; `exact` is the tooltip."""

    value: str | None
    label: str
    exact: str = ""


class AmountsTile(NamedTuple):
    """The tile "How much"."""

    figures: tuple[KeyFigure, ...]
    notes: tuple[str, ...]


class HealthTile(NamedTuple):
    """The tile "How healthy"; `reason` says why nothing was judged, if so."""

    reason: str
    bar: Bar | None
    keys: tuple[LegendLine, ...]
    notes: tuple[str, ...]


class Tiles(NamedTuple):
    """The tiles, for `tiles.html.j2`; `topics` is None if the metadata state no owners."""

    amounts: AmountsTile
    health: HealthTile
    risk: RiskTile
    disk: DiskTile
    topics: TopicsTile | None


def make_tiles(facts: Facts, tables: Tables) -> Tiles:
    """Return the tiles of the page's first screen."""
    return Tiles(
        _amounts_tile(facts, tables),
        _health_tile(facts, tables),
        risk_tile(facts, tables),
        disk_tile(facts, tables),
        topics_tile(facts),
    )


def _amounts_tile(facts: Facts, tables: Tables) -> AmountsTile:
    """Return the tile with the numbers of bookies, ledgers, replicas and bytes."""
    bookies, bookies_label = _format_count(facts.bookies), _choose_plural(facts.bookies, "bookie")
    if facts.unread_bookies:
        read_count = (facts.bookies or 0) - len(facts.unread_bookies)
        bookies, bookies_label = f"{read_count:,} of {facts.bookies or 0:,}", "bookies read"
    size, exact_size = (None, "") if facts.disk is None else format_size(facts.disk.files)
    figures = (
        KeyFigure(bookies, bookies_label),
        KeyFigure(_format_count(facts.ledgers), _choose_plural(facts.ledgers, "ledger")),
        KeyFigure(_format_count(facts.replicas), _choose_plural(facts.replicas, "replica")),
        KeyFigure(size, "in entry logs", exact_size),
    )
    notes = []
    if facts.replicas is not None:
        notes.append("Replicas are entries, counted on each bookie.")
    if facts.entries is not None:
        entry_count = counted(facts.entries, "entry", "entries")
        notes.append(f"By the metadata, closed ledgers have {entry_count}.")
    notes += unindexed_ledgers_note(tables)
    return AmountsTile(figures, tuple(notes))


def _format_count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _choose_plural(value: int | None, noun: str) -> str:
    return noun if value == 1 else f"{noun}s"


def _health_tile(facts: Facts, tables: Tables) -> HealthTile:
    """Return the tile with a bar of ledgers by their health, or why they were not judged."""
    health = facts.health
    notes = [_other_findings(facts)]
    if health is None or health.ledgers == 0:
        if facts.metadata is None:
            hint = "With ledger metadata (analyze --metadata) this page shows what is missing."
            notes.insert(0, hint)
        return HealthTile(why_not_judged(facts), bar=None, keys=(), notes=tuple(notes))
    parts = [
        BarPart(f"c-{name}", CATEGORY_WORDS[name], ledger_count, f"{ledger_count:,}")
        for name in reversed(HEALTH_CLASSES)
        if (ledger_count := health.by_class.get(name, 0))
    ]
    ledgers = counted(health.ledgers, "ledger")
    label_text = ", ".join(f"{part.text} {part.label}" for part in parts)
    class_bar = make_bar(parts, health.ledgers, f"{ledgers}: {label_text}")
    notes = [*explain_ledger_counts(tables), *notes]
    legend = make_legend(parts, health.ledgers)
    return HealthTile(reason="", bar=class_bar, keys=legend, notes=tuple(notes))


def _other_findings(facts: Facts) -> str:
    """Return a sentence about other findings, and about those not looked for."""
    parts = []
    if facts.violations is not None:
        parts += [
            f"{CATEGORY_WORDS[name]}: {counted(ledgers, 'ledger')}"
            for name in ("placement", "overdue", "bookie_unavailable", "placement_soft")
            if (ledgers := facts.violations.get(name))
        ]
    if facts.damage is None:
        parts.append("findings of the dump: not requested")
    elif facts.damage or facts.oddities:
        oddities = counted(facts.oddities or 0, "oddity", "oddities")
        parts.append(f"findings: {facts.damage:,} of damage, {oddities}")
    else:
        parts.append("no findings while reading")
    return f"{'; '.join(parts).capitalize()}."
