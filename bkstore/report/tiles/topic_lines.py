"""The tile with the topics: those that lost entries first, then the largest."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.counts import size_text
from bkstore.ledger_metadata import LedgerOwner
from bkstore.ledger_metadata.owners import COMPACTED_LEDGER
from bkstore.report.findings.key_figures import Facts
from bkstore.report.findings.topics import (
    Amounts,
    LedgerAmounts,
    Topics,
    category_of_rank,
)
from bkstore.report.html.bars import Bar, BarPart, make_bar
from bkstore.report.html.value_formats import Size, counted, format_size

_MAX_TOPICS = 5
_MAX_LEDGERS = 8


class LedgerLine(NamedTuple):
    """A ledger of a topic: its id, what of the topic it has if not messages, and its size."""

    ledger_id: str
    content: str
    category: str
    losses: str
    size: Size


class TopicLine(NamedTuple):
    """A topic with its ledgers; `category` and `losses` are empty if no replica is missing."""

    topic: str
    category: str
    losses: str
    size: Size
    bar: Bar
    ledger_count: str
    ledgers: tuple[LedgerLine, ...]
    others: str


class TopicsTile(NamedTuple):
    """The content of the tile."""

    lines: tuple[TopicLine, ...]
    others: str


def topics_tile(facts: Facts) -> TopicsTile | None:
    """Return the tile's content, None if the metadata state no owner of a ledger."""
    topics = facts.topics
    if topics is None:
        return None
    order = topics.amounts.worst_first()
    largest = int(topics.amounts.sizes.max(initial=0))
    lines = tuple(_topic_line(topics, topic, largest) for topic in order[:_MAX_TOPICS].tolist())
    return TopicsTile(lines, _sum_up(topics.amounts.take(order[_MAX_TOPICS:]), "topic"))


def _sum_up(amounts: Amounts, noun: str) -> str:
    """Return a text about items that are not listed, an empty string if there are none."""
    if not amounts.sizes.size:
        return ""
    text = f"{counted(amounts.sizes.size, f'other {noun}')}: {size_text(int(amounts.sizes.sum()))}"
    losses = _describe_losses(int(amounts.lost_entries.sum()), int(amounts.missing_replicas.sum()))
    return f"{text}, {losses}" if losses else text


def _topic_line(topics: Topics, topic: int, largest: int) -> TopicLine:
    """Return the line of the topic with this index; its bar is relative to the largest topic."""
    size, lost_entries, missing_replicas, rank = (int(each[topic]) for each in topics.amounts)
    ledger_count = int(topics.ledger_counts[topic])
    others = ledger_count - _MAX_LEDGERS
    part = BarPart("c-live", "bytes", size, size_text(size))
    return TopicLine(
        topics.names[topic],
        category_of_rank(rank),
        _describe_losses(lost_entries, missing_replicas),
        format_size(size),
        make_bar([part], largest, size_text(size)),
        counted(ledger_count, "ledger"),
        tuple(map(_ledger_line, topics.ledgers_of(topic, _MAX_LEDGERS))),
        f"{counted(others, 'more ledger')}" if others > 0 else "",
    )


def _ledger_line(ledger: LedgerAmounts) -> LedgerLine:
    """Return the line of a ledger, below that of its topic."""
    return LedgerLine(
        str(ledger.ledger),
        _describe_content(ledger.owner),
        ledger.category,
        _describe_losses(ledger.lost_entries, ledger.missing_replicas),
        format_size(ledger.size),
    )


def _describe_content(owner: LedgerOwner) -> str:
    """Return what a ledger of a topic has, an empty string for messages."""
    if owner.cursor is not None:
        return f"positions of subscription {owner.cursor}"
    if owner.schema is not None:
        return "schema"
    return "compacted messages" if owner.component == COMPACTED_LEDGER else ""


def _describe_losses(lost_entries: int, missing_replicas: int) -> str:
    """Return what is missing, an empty string if nothing is."""
    if lost_entries:
        return f"{counted(lost_entries, 'entry', 'entries')} lost"
    return f"{counted(missing_replicas, 'replica')} missing" if missing_replicas else ""
