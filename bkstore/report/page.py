"""The page: headline, tiles, then a part for each table, in one document.

What it says is put together here and in the rooms above; how it looks stands in the files of
`bkstore/report/template/`, of which `page.html.j2` is the first to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.report.charts import Chart, bookies_chart, ledgers_chart, logs_chart
from bkstore.report.findings.headline import judge
from bkstore.report.findings.key_figures import Facts, gather
from bkstore.report.fitting import absent, advice, compared, nothing_found, rule
from bkstore.report.html.rendering import filled, own_markup, policy, template_file
from bkstore.report.html.wording import counted
from bkstore.report.page_tables import Listing, listing
from bkstore.report.sections import PARTS, SECTIONS, Section
from bkstore.report.tiles.first_screen import tiles

if TYPE_CHECKING:
    import pyarrow as pa

_CHARTS = {
    "bytes_by_bookie": bookies_chart,
    "log_occupancy": logs_chart,
    "bytes_by_ledger": ledgers_chart,
}
_UNITS = "Sizes are binary: 1 KiB is 1,024 bytes."


class Shown(NamedTuple):
    """A table of the page with all that is said of it; `remark` is about which rows it can have.

    Either `listing` has rows, or `none` says why there are none.
    """

    name: str
    heading: str
    rule: str
    advice: str = ""
    remark: str = ""
    none: str = ""
    chart: Chart | None = None
    listing: Listing | None = None


class Absent(NamedTuple):
    """A table that was not given, and why."""

    name: str
    heading: str
    reason: str


class PartOfPage(NamedTuple):
    """A part of the page: tables under one heading, and those of them that were not given."""

    heading: str
    shown: tuple[Shown, ...]
    absent: tuple[Absent, ...]


def page(tables: Mapping[str, pa.Table], title: str, source: Mapping[str, Any]) -> str:
    """Return the document. The same arguments give the same text."""
    tables = _read_only(tables, source)
    facts = gather(tables, source)
    if source.get("manifest") is not None:
        tables = {**tables, "bookies": _bookies(source["manifest"])}
    script = template_file("script.js")
    return filled(
        "page.html.j2",
        title=title,
        policy=policy(script),
        style=own_markup(template_file("style.css")),
        script=own_markup(script),
        source=_described(source),
        verdict=judge(facts, tables),
        tiles=tiles(facts, tables),
        parts=[_part(heading, names, tables, source, facts) for heading, names in PARTS],
        origin=_origin(source),
    )


def _read_only(tables: Mapping[str, pa.Table], source: Mapping[str, Any]) -> Mapping[str, pa.Table]:
    """Return the tables, where zeros of a bookie that was not read do not pass for figures."""
    name, manifest = "bytes_by_bookie", source.get("manifest")
    if manifest is None or name not in tables:
        return tables
    import pyarrow as pa
    import pyarrow.compute as pc

    unread = pa.array([b["id"] for b in manifest["bookies"] if not b["read"]], pa.string())
    known = pc.invert(pc.is_in(tables[name].column("bookie"), value_set=unread))
    return {**tables, name: tables[name].filter(known)}


def _described(source: Mapping[str, Any]) -> str:
    """Say what was looked at: the dump, when it was made, the metadata."""
    said = []
    manifest = source.get("manifest")
    if manifest is not None:
        said.append(f"Dump of {counted(len(manifest['bookies']), 'bookie')}")
        if manifest.get("made_at"):
            said.append(f"made at {manifest['made_at']}")
    if source.get("other") is not None:
        said.append(f"compared with a dump of {counted(len(source['other']['bookies']), 'bookie')}")
    metadata = source.get("metadata")
    said.append("no ledger metadata" if metadata is None else f"ledger metadata: {metadata}")
    return "; ".join(said)


def _origin(source: Mapping[str, Any]) -> str:
    said = []
    if source.get("engine"):
        said.append(f"Tables computed by {source['engine']}")
    if source.get("made_at"):
        said.append(f"at {source['made_at']}")
    return f"{' '.join(said)}. {_UNITS}" if said else _UNITS


def _part(
    heading: str,
    names: Sequence[str],
    tables: Mapping[str, pa.Table],
    source: Mapping[str, Any],
    facts: Facts,
) -> PartOfPage:
    listed = [SECTIONS[name] for name in names]
    shown = [
        _shown(each, tables[each.name], source, facts) for each in listed if each.name in tables
    ]
    lacking = [
        Absent(each.name, each.heading, absent(each, facts))
        for each in listed
        if each.name not in tables
    ]
    return PartOfPage(heading, tuple(shown), tuple(lacking))


def _shown(section: Section, table: pa.Table, source: Mapping[str, Any], facts: Facts) -> Shown:
    remark = compared(source) if section.name == "comparison" else ""
    shown = Shown(section.name, section.heading, rule(section, facts), remark=remark)
    if table.num_rows == 0:
        return shown._replace(none="" if remark else nothing_found(section, facts))
    place = (source.get("all_rows") or {}).get(section.name)
    where = f"in {place}" if place else f"in the table {section.name} of the analysis"
    return shown._replace(
        advice=advice(section, table, facts),
        chart=_CHARTS[section.name](table) if section.name in _CHARTS else None,
        listing=listing(section, table, where),
    )


def _bookies(manifest: Mapping[str, Any]) -> pa.Table:
    """Return the bookies that a manifest lists, as a table."""
    import pyarrow as pa

    rows = [
        {
            "bookie": b["id"],
            "read": bool(b["read"]),
            "layout": b["layout"],
            "entries": b["rows"].get("entries"),
            "ledgers": b["rows"].get("ledgers"),
            "damage": b["damage"],
            "oddities": b["oddities"],
            "path": b["path"],
            "reason": b["reason"],
        }
        for b in manifest["bookies"]
    ]
    texts, counts = ("bookie", "layout", "path", "reason"), ("entries", "ledgers")
    fields = [(name, pa.string()) for name in texts]
    fields += [(name, pa.int64()) for name in (*counts, "damage", "oddities")]
    return pa.Table.from_pylist(rows, pa.schema([*fields, ("read", pa.bool_())]))
