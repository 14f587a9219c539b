"""The page: headline, tiles, and a part for each table, in one document.

This module assembles the content; the files in `bkstore/report/template/` define the appearance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.report.charts import Chart, bookies_chart, ledgers_chart, logs_chart
from bkstore.report.findings.headline import make_headline
from bkstore.report.findings.key_figures import Facts, gather_facts
from bkstore.report.findings.table_columns import Tables
from bkstore.report.html.rendering import (
    content_security_policy,
    mark_safe,
    read_template_file,
    render_template,
)
from bkstore.report.html.value_formats import counted
from bkstore.report.page_tables import PageTable, make_page_table
from bkstore.report.sections import OPTIONAL_SECTIONS, OWNER_SECTIONS, PARTS, SECTIONS, Section
from bkstore.report.sentences import (
    absence_reason,
    advice_text,
    comparison_note,
    nothing_found_text,
    rule_text,
)
from bkstore.report.tiles.first_screen import make_tiles

if TYPE_CHECKING:
    import pyarrow as pa

_Source = Mapping[str, Any]

_UNITS_NOTE = "Sizes are binary: 1 KiB is 1,024 bytes."
_CHARTS = {
    "bytes_by_bookie": bookies_chart,
    "log_occupancy": logs_chart,
    "bytes_by_ledger": ledgers_chart,
}


class ShownTable(NamedTuple):
    """A table of the page with its texts; `remark` says which bookies a comparison leaves out.

    Either `listing` has rows, or `nothing_found` or the remark says why there are none.
    """

    name: str
    heading: str
    rule: str
    advice: str = ""
    remark: str = ""
    nothing_found: str = ""
    chart: Chart | None = None
    listing: PageTable | None = None


class AbsentTable(NamedTuple):
    """A table that was not given, and why."""

    name: str
    heading: str
    reason: str


class PartOfPage(NamedTuple):
    """A part of the page: the tables under one heading, and those that were not given."""

    heading: str
    shown: tuple[ShownTable, ...]
    absent: tuple[AbsentTable, ...]


def render_page(tables: Tables, title: str, source: _Source) -> str:
    """Return the HTML document. The same arguments give the same text."""
    tables = _drop_unread_bookies(_drop_unknown_owners(tables), source)
    facts = gather_facts(tables, source)
    verdict = make_headline(facts, tables)
    # The last part of the page lists the bookies of the dump, which its manifest has.
    if source.get("manifest") is not None:
        tables = {**tables, "bookies": _bookies_table(source["manifest"])}
    script = read_template_file("script.js")
    return render_template(
        "page.html.j2",
        title=title,
        policy=content_security_policy(script),
        style=mark_safe(read_template_file("style.css")),
        script=mark_safe(script),
        source=_describe_source(source),
        verdict=verdict,
        tiles=make_tiles(facts, tables),
        parts=[_make_part(heading, names, tables, source, facts) for heading, names in PARTS],
        origin=_describe_origin(source),
    )


def describe_headline(tables: Tables, source: _Source) -> str:
    """Return the headline of the page about these tables as a text: the verdict, then why."""
    tables = _drop_unread_bookies(tables, source)
    headline = make_headline(gather_facts(tables, source), tables)
    return (
        f"{headline.word}: {' '.join(headline.sentences)}" if headline.sentences else headline.word
    )


def _drop_unread_bookies(tables: Tables, source: _Source) -> Tables:
    """Return the tables without the zeros that stand for bookies that were not read."""
    manifest = source.get("manifest")
    if manifest is None or "bytes_by_bookie" not in tables:
        return tables
    import pyarrow as pa
    import pyarrow.compute as pc

    unread = [bookie["id"] for bookie in manifest["bookies"] if not bookie["read"]]
    table = tables["bytes_by_bookie"]
    is_unread = pc.is_in(table.column("bookie"), value_set=pa.array(unread, pa.string()))
    return {**tables, "bytes_by_bookie": table.filter(pc.invert(is_unread))}


def _drop_unknown_owners(tables: Tables) -> Tables:
    """Return the tables without those by owner if the metadata state no owner."""
    return {
        table_name: table
        for table_name, table in tables.items()
        if table_name not in OWNER_SECTIONS or table.column("owner").null_count < table.num_rows
    }


def _describe_source(source: _Source) -> str:
    """Return a line on the sources: the dump, when it was made, and the metadata."""
    parts = []
    manifest, other, metadata = (source.get(key) for key in ("manifest", "other", "metadata"))
    if manifest is not None:
        bookies, is_dump = (
            counted(len(manifest["bookies"]), "bookie"),
            not source.get("directories"),
        )
        parts.append(f"Dump of {bookies}" if is_dump else f"Directories of {bookies}")
        if manifest.get("made_at"):
            parts.append(f"{'made' if is_dump else 'read'} at {manifest['made_at']}")
    if other is not None:
        parts.append(f"compared with a dump of {counted(len(other['bookies']), 'bookie')}")
    parts.append("no ledger metadata" if metadata is None else f"ledger metadata: {metadata}")
    return "; ".join(parts)


def _describe_origin(source: _Source) -> str:
    """Return the foot of the page: what computed the tables, when, and a note on units."""
    parts = []
    if source.get("engine"):
        parts.append(f"Tables computed by {source['engine']}")
    if source.get("made_at"):
        parts.append(f"at {source['made_at']}")
    return f"{' '.join(parts)}. {_UNITS_NOTE}" if parts else _UNITS_NOTE


def _make_part(
    heading: str, names: Sequence[str], tables: Tables, source: _Source, facts: Facts
) -> PartOfPage:
    """Return a part of the page; a section without a table is absent, with the reason."""
    shown, absent = [], []
    for section in (SECTIONS[each] for each in names):
        if section.name in tables:
            shown.append(_show_table(section, tables[section.name], source, facts))
        elif section.name not in OPTIONAL_SECTIONS:
            reason = absence_reason(section, facts)
            absent.append(AbsentTable(section.name, section.heading, reason))
    return PartOfPage(heading, tuple(shown), tuple(absent))


def _show_table(section: Section, table: pa.Table, source: _Source, facts: Facts) -> ShownTable:
    """Return the section's table with its texts; a remark also explains an empty comparison."""
    remark = comparison_note(source) if section.name == "comparison" else ""
    shown = ShownTable(section.name, section.heading, rule_text(section, facts), remark=remark)
    if table.num_rows == 0:
        return shown._replace(nothing_found="" if remark else nothing_found_text(section, facts))
    file_of_table = (source.get("all_rows") or {}).get(section.name)
    all_rows_note = f"in {file_of_table or f'the table {section.name} of the analysis'}"
    return shown._replace(
        advice=advice_text(section, table, facts),
        chart=_CHARTS[section.name](table) if section.name in _CHARTS else None,
        listing=make_page_table(section, table, all_rows_note, facts.owners),
    )


def _bookies_table(manifest: Mapping[str, Any]) -> pa.Table:
    """Return the bookies of a dump's manifest with the numbers of their rows, as a table."""
    import pyarrow as pa

    fields = [(name, pa.string()) for name in ("bookie", "layout", "path", "reason")]
    fields += [(name, pa.int64()) for name in ("entries", "ledgers", "damage", "oddities")]
    rows = [  # `from_pylist` ignores keys that are not in the schema
        {**bookie, **bookie["rows"], "bookie": bookie["id"], "read": bool(bookie["read"])}
        for bookie in manifest["bookies"]
    ]
    return pa.Table.from_pylist(rows, pa.schema([*fields, ("read", pa.bool_())]))
