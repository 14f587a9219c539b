"""The tile about bytes: how much of the disk is live, on which bookies, in which ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.report.findings.key_figures import Disk, Facts, numbers
from bkstore.report.html.bars import Part, bar, legend
from bkstore.report.html.markup import Html, joined, note, tag
from bkstore.report.html.wording import counted, ledger_name, scope_name, share, size, size_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["filling"]

_MOST_BOOKIES = 4
_MOST_LEDGERS = 3

Tables = Mapping[str, "pa.Table"]


def filling(facts: Facts, tables: Tables) -> list[Html]:
    """Return the tile's content: live and garbage, by bookie, and what is biggest."""
    disk = facts.disk
    if disk is None:
        return [tag("p", tag("b", "Not asked: "), "bytes by bookie.", class_="lead")]
    if disk.files == 0:
        return [tag("p", "The bookies that were read have no entry logs.", class_="lead")]
    parts = _parts(disk)
    spoken = ", ".join(f"{part.label} {part.text}" for part in parts)
    said = [bar(parts, disk.files, f"{size_text(disk.files)} in entry logs: {spoken}")]
    said.append(legend(parts, disk.files))
    said.append(tag("div", _bookies(tables), _biggest(tables), class_="halves"))
    if facts.orphans:
        ledgers = counted(facts.orphans, "ledger", "ledgers")
        said.append(note(f"Orphans: {ledgers}, ", size(facts.orphan_bytes or 0), "."))
    return said


def _parts(disk: Disk) -> list[Part]:
    return [
        Part("c-live", "live", disk.live, size_text(disk.live)),
        Part("c-garbage", "garbage", disk.garbage, size_text(disk.garbage)),
        Part("c-other", "headers, maps", disk.other, size_text(disk.other)),
    ]


def _bookies(tables: Tables) -> Html:
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
        lines.append(_line(row["bookie"], disk.files, bar(_parts(disk), whole, label), False))
    rest = sizes[order[_MOST_BOOKIES:]]
    if len(rest):
        words = f"{counted(len(rest), 'other')}: {size_text(int(rest.sum()))} together"
        lines.append(tag("li", words, class_="dim rest"))
    return tag("div", tag("h3", "Bookies"), tag("ul", *lines, class_="lines"))


def _biggest(tables: Tables) -> Html:
    pieces = []
    if "bytes_by_ledger" in tables:
        table = tables["bytes_by_ledger"]
        pieces.append(tag("h3", "Biggest ledgers"))
        pieces.append(_ranking(table, lambda row: ledger_name(row["scope_id"], row["ledger_id"])))
    if "bytes_by_scope" in tables and tables["bytes_by_scope"].num_rows > 1:
        table = tables["bytes_by_scope"]
        pieces.append(tag("h3", "Biggest scopes"))
        pieces.append(_ranking(table, lambda row: scope_name(row["scope_id"]), 2))
    return tag("div", joined(*pieces) if pieces else note("By ledger: not asked."))


def _ranking(
    table: pa.Table, name: Callable[[dict[str, Any]], str], most: int = _MOST_LEDGERS
) -> Html:
    """Return the rows with most bytes, each with a bar against the biggest."""
    sizes = numbers(table, "bytes")
    rows = table.take(np.argsort(-sizes, kind="stable")[:most]).to_pylist()
    whole = int(sizes.max(initial=0))
    lines = []
    for row in rows:
        parts = [Part("c-live", "bytes", row["bytes"], size_text(row["bytes"]))]
        lines.append(
            _line(name(row), row["bytes"], bar(parts, whole, size_text(row["bytes"])), True)
        )
    return tag("ul", *lines, class_="lines")


def _line(name: str, number: int, drawn: Html, code: bool) -> Html:
    shown = tag("code" if code else "span", name, class_="name", title=name)
    return tag("li", shown, tag("span", size(number), class_="dim"), drawn)
