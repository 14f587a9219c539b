"""The tile about bytes: how much of the disk is live, on which bookies, in which ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.report.findings.key_figures import Disk, Facts, numbers
from bkstore.report.html.bars import Bar, Key, Part, bar, legend
from bkstore.report.html.wording import (
    Size,
    counted,
    ledger_name,
    scope_name,
    share,
    size,
    size_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BOOKIES = 4
_MOST_LEDGERS = 3

Tables = Mapping[str, "pa.Table"]


class Line(NamedTuple):
    """A name with its size and a bar against the biggest; `is_id` for ledgers and scopes."""

    name: str
    size: Size
    bar: Bar
    is_id: bool


class Ranking(NamedTuple):
    """The biggest of something; `rest` says what the others come to."""

    heading: str
    lines: tuple[Line, ...]
    rest: str = ""


class DiskTile(NamedTuple):
    """What the tile shows; without entry logs `lead` says so, and the rest is empty."""

    lead: str
    bar: Bar | None = None
    keys: tuple[Key, ...] = ()
    bookies: Ranking | None = None
    biggest: tuple[Ranking, ...] = ()
    orphans: tuple[str, Size] | None = None


def filling(facts: Facts, tables: Tables) -> DiskTile:
    """Return the tile's content: live and garbage, by bookie, and what is biggest."""
    disk = facts.disk
    if disk is None:
        return DiskTile("Bytes by bookie: not asked.")
    if disk.files == 0:
        return DiskTile("The bookies that were read have no entry logs.")
    parts = _parts(disk)
    spoken = ", ".join(f"{part.label} {part.text}" for part in parts)
    orphans = None
    if facts.orphans:
        orphans = counted(facts.orphans, "ledger"), size(facts.orphan_bytes or 0)
    return DiskTile(
        "",
        bar(parts, disk.files, f"{size_text(disk.files)} in entry logs: {spoken}"),
        legend(parts, disk.files),
        _bookies(tables),
        tuple(_biggest(tables)),
        orphans,
    )


def _parts(disk: Disk) -> list[Part]:
    return [
        Part("c-live", "live", disk.live, size_text(disk.live)),
        Part("c-garbage", "garbage", disk.garbage, size_text(disk.garbage)),
        Part("c-other", "headers, maps", disk.other, size_text(disk.other)),
    ]


def _bookies(tables: Tables) -> Ranking:
    table = tables["bytes_by_bookie"]
    sizes = numbers(table, "log_file_bytes")
    order = np.argsort(-sizes, kind="stable")
    rows = table.take(order[:_MOST_BOOKIES]).to_pylist()
    whole = int(sizes.max(initial=0))
    lines = []
    for row in rows:
        disk = Disk(row["log_file_bytes"], row["live_bytes"], row["garbage_bytes"])
        label = (
            f"{row['bookie']}: {size_text(disk.files)}, {share(disk.garbage, disk.files)} garbage"
        )
        drawn = bar(_parts(disk), whole, label)
        lines.append(Line(row["bookie"], size(disk.files), drawn, False))
    left = sizes[order[_MOST_BOOKIES:]]
    rest = ""
    if len(left):
        together = " together" if len(left) > 1 else ""
        rest = f"{counted(len(left), 'other')}: {size_text(int(left.sum()))}{together}"
    return Ranking("Bookies" if len(sizes) > 1 else "Bookie", tuple(lines), rest)


def _biggest(tables: Tables) -> list[Ranking]:
    found = []
    if "bytes_by_ledger" in tables:
        table = tables["bytes_by_ledger"]
        lines = _ranking(table, lambda row: ledger_name(row["scope_id"], row["ledger_id"]))
        found.append(Ranking(_most("ledger", table.num_rows), lines))
    if "bytes_by_scope" in tables and tables["bytes_by_scope"].num_rows > 1:
        table = tables["bytes_by_scope"]
        lines = _ranking(table, lambda row: scope_name(row["scope_id"]), 2)
        found.append(Ranking(_most("scope", table.num_rows), lines))
    return found


def _most(noun: str, number: int) -> str:
    return noun.capitalize() if number == 1 else f"Biggest {noun}s"


def _ranking(
    table: pa.Table, name: Callable[[dict[str, Any]], str], most: int = _MOST_LEDGERS
) -> tuple[Line, ...]:
    """Return the rows with most bytes, each with a bar against the biggest."""
    sizes = numbers(table, "bytes")
    rows = table.take(np.argsort(-sizes, kind="stable")[:most]).to_pylist()
    whole = int(sizes.max(initial=0))
    lines = []
    for row in rows:
        parts = [Part("c-live", "bytes", row["bytes"], size_text(row["bytes"]))]
        drawn = bar(parts, whole, size_text(row["bytes"]))
        lines.append(Line(name(row), size(row["bytes"]), drawn, True))
    return tuple(lines)
