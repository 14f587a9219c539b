"""The tile about bytes: live data and garbage, by bookie and ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.counts import size_text
from bkstore.ids import LedgerId
from bkstore.report.findings.key_figures import Disk, Facts
from bkstore.report.findings.table_columns import Tables, number_column
from bkstore.report.findings.topics import owner_name
from bkstore.report.html.bars import Bar, BarPart, LegendLine, make_bar, make_legend
from bkstore.report.html.value_formats import (
    Size,
    counted,
    format_share,
    format_size,
    ledger_name,
    scope_name,
)

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_BOOKIES = 4
_MAX_LEDGERS = 3
_MAX_SCOPES = 2


class RankingLine(NamedTuple):
    """A name with its size and a bar against the biggest; `is_id` for ledgers and scopes, `owner`
    is the topic of a ledger, if known."""

    name: str
    size: Size
    bar: Bar
    is_id: bool
    owner: str = ""


class Ranking(NamedTuple):
    """The biggest items of a kind; `others` sums up the others."""

    heading: str
    lines: tuple[RankingLine, ...]
    others: str = ""


class DiskTile(NamedTuple):
    """The content of the tile; without entry logs, only `lead` has a text. `orphans` are the number
    of orphan ledgers, as text, and their bytes."""

    lead: str
    bar: Bar | None = None
    keys: tuple[LegendLine, ...] = ()
    bookies: Ranking | None = None
    biggest: tuple[Ranking, ...] = ()
    orphans: tuple[str, Size] | None = None


def disk_tile(facts: Facts, tables: Tables) -> DiskTile:
    """Return the tile's content: live and garbage bytes, bookies, and the biggest ledgers."""
    disk = facts.disk
    if disk is None:
        return DiskTile(lead="Bytes by bookie: not requested.")
    if disk.files == 0:
        return DiskTile(lead="The bookies that were read have no entry logs.")
    parts = _bar_parts(disk)
    label_text = ", ".join(f"{part.label} {part.text}" for part in parts)
    orphans = None
    if facts.orphan_ledgers:
        orphans = counted(facts.orphan_ledgers, "ledger"), format_size(facts.orphan_bytes or 0)
    return DiskTile(
        lead="",
        bar=make_bar(parts, disk.files, f"{size_text(disk.files)} in entry logs: {label_text}"),
        keys=make_legend(parts, disk.files),
        bookies=_rank_bookies(tables),
        biggest=tuple(_rank_ledgers_and_scopes(facts, tables)),
        orphans=orphans,
    )


def _bar_parts(disk: Disk) -> list[BarPart]:
    return [
        BarPart("c-live", "live", disk.live, size_text(disk.live)),
        BarPart("c-garbage", "garbage", disk.garbage, size_text(disk.garbage)),
        BarPart("c-other", "headers, maps", disk.other, size_text(disk.other)),
    ]


def _rank_bookies(tables: Tables) -> Ranking:
    """Return the fullest bookies with bars of their live and garbage bytes, and the others' sum."""
    table = tables["bytes_by_bookie"]
    sizes = number_column(table, "log_file_bytes")
    order = np.argsort(-sizes, kind="stable")
    rows = table.take(order[:_MAX_BOOKIES]).to_pylist()
    biggest = int(sizes.max(initial=0))
    lines = []
    for row in rows:
        disk = Disk(row["log_file_bytes"], row["live_bytes"], row["garbage_bytes"])
        garbage = format_share(disk.garbage, disk.files)
        label = f"{row['bookie']}: {size_text(disk.files)}, {garbage} garbage"
        size_bar = make_bar(_bar_parts(disk), biggest, label)
        lines.append(RankingLine(row["bookie"], format_size(disk.files), size_bar, is_id=False))
    other_sizes, others_text = sizes[order[_MAX_BOOKIES:]], ""
    if len(other_sizes):
        sum_text = size_text(int(other_sizes.sum())) + (" together" if len(other_sizes) > 1 else "")
        others_text = f"{counted(len(other_sizes), 'other')}: {sum_text}"
    return Ranking("Bookies" if len(sizes) > 1 else "Bookie", tuple(lines), others_text)


def _rank_ledgers_and_scopes(facts: Facts, tables: Tables) -> list[Ranking]:
    """Return the lists of the biggest ledgers, and of the scopes if there are several."""
    rankings = []
    if "bytes_by_ledger" in tables:
        table = tables["bytes_by_ledger"]
        lines = tuple(
            line._replace(owner=owner_name(facts.owners, *LedgerId.parse(line.name).signed))
            for line in _ranking_lines(
                table, lambda row: ledger_name(row["scope_id"], row["ledger_id"])
            )
        )
        rankings.append(Ranking(_ranking_heading("ledger", table.num_rows), lines))
    if "bytes_by_scope" in tables and tables["bytes_by_scope"].num_rows > 1:
        table = tables["bytes_by_scope"]
        lines = _ranking_lines(table, lambda row: scope_name(row["scope_id"]), _MAX_SCOPES)
        rankings.append(Ranking(_ranking_heading("scope", table.num_rows), lines))
    return rankings


def _ranking_heading(noun: str, count: int) -> str:
    return noun.capitalize() if count == 1 else f"Biggest {noun}s"


def _ranking_lines(
    table: pa.Table, format_name: Callable[[dict[str, Any]], str], max_lines: int = _MAX_LEDGERS
) -> tuple[RankingLine, ...]:
    """Return lines for the rows with the most bytes, each with a bar relative to the biggest."""
    sizes = number_column(table, "bytes")
    rows = table.take(np.argsort(-sizes, kind="stable")[:max_lines]).to_pylist()
    biggest = int(sizes.max(initial=0))
    lines = []
    for row in rows:
        parts = [BarPart("c-live", "bytes", row["bytes"], size_text(row["bytes"]))]
        size_bar = make_bar(parts, biggest, size_text(row["bytes"]))
        lines.append(RankingLine(format_name(row), format_size(row["bytes"]), size_bar, is_id=True))
    return tuple(lines)
