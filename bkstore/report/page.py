"""The page: headline, tiles, then a part for each table, in one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bkstore.report.charts import bookies_chart, ledgers_chart, logs_chart
from bkstore.report.findings.headline import judge, not_judged
from bkstore.report.findings.key_figures import Facts, gather
from bkstore.report.html.markup import Html, note, tag
from bkstore.report.html.script import SCRIPT, script_source
from bkstore.report.html.style import STYLE
from bkstore.report.html.wording import counted
from bkstore.report.page_tables import listing
from bkstore.report.sections import PARTS, SECTIONS, Section
from bkstore.report.tiles.first_screen import tiles

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["page"]

_CHARTS = {
    "bytes_by_bookie": bookies_chart,
    "log_occupancy": logs_chart,
    "bytes_by_ledger": ledgers_chart,
}


def page(tables: Mapping[str, pa.Table], title: str, source: Mapping[str, Any]) -> str:
    """Return the document. The same arguments give the same text."""
    tables = _read_only(tables, source)
    facts = gather(tables, source)
    if source.get("manifest") is not None:
        tables = {**tables, "bookies": _bookies(source["manifest"])}
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {script_source()}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    body = tag(
        "body",
        tag("a", "To the tables", class_="skip", href="#tables"),
        _header(title, source, facts, tables),
        tag("main", tiles(facts, tables), _contents(), *_parts(tables, source, facts)),
        tag("footer", _origin(source)),
        tag("script", Html(SCRIPT)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


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


def _header(
    title: str, source: Mapping[str, Any], facts: Facts, tables: Mapping[str, pa.Table]
) -> Html:
    verdict = judge(facts, tables)
    said = tag("div", *(tag("p", sentence) for sentence in verdict.sentences))
    return tag(
        "header",
        tag("h1", title),
        tag("p", _described(source), class_="source"),
        tag("div", tag("strong", verdict.word), said, class_=f"verdict {verdict.level}"),
    )


def _described(source: Mapping[str, Any]) -> str:
    """Say what was looked at: the dump, when it was made, the metadata."""
    said = []
    manifest = source.get("manifest")
    if manifest is not None:
        said.append(f"Dump of {counted(len(manifest['bookies']), 'bookie')}")
        if manifest.get("made_at"):
            said.append(f"made at {manifest['made_at']}")
    metadata = source.get("metadata")
    said.append("no ledger metadata" if metadata is None else f"ledger metadata: {metadata}")
    return "; ".join(said)


def _origin(source: Mapping[str, Any]) -> str:
    said = []
    if source.get("engine"):
        said.append(f"Tables computed by {source['engine']}")
    if source.get("made_at"):
        said.append(f"at {source['made_at']}")
    return (
        f"{' '.join(said)}. Sizes are binary: 1 KiB is 1,024 bytes."
        if said
        else ("Sizes are binary: 1 KiB is 1,024 bytes.")
    )


def _contents() -> Html:
    links = [
        tag("li", tag("a", SECTIONS[name].heading, href=f"#{name}"))
        for _, names in PARTS
        for name in names
    ]
    return tag("nav", tag("ul", *links), aria_label="Parts of this page", id="tables")


def _parts(tables: Mapping[str, pa.Table], source: Mapping[str, Any], facts: Facts) -> list[Html]:
    places = source.get("all_rows") or {}
    found = []
    for heading, names in PARTS:
        found.append(tag("h2", heading))
        found += [
            _part(SECTIONS[name], tables.get(name), facts, places.get(name)) for name in names
        ]
    return found


def _part(section: Section, table: pa.Table | None, facts: Facts, place: str | None) -> Html:
    said: list[Html] = [tag("h3", section.heading), tag("p", section.rule)]
    if table is None:
        said.append(tag("p", _absent(section, facts), class_="none"))
    elif table.num_rows == 0:
        said.append(tag("p", _none(section, facts), class_="none"))
    else:
        said.append(note(section.advice))
        chart = _CHARTS[section.name](table) if section.name in _CHARTS else None
        said += [chart] if chart is not None else []
        where = f"in {place}" if place else f"in the table {section.name} of the analysis"
        said.append(listing(section, table, where))
    return tag("section", *said, class_="part", id=section.name)


def _absent(section: Section, facts: Facts) -> str:
    if section.judged and facts.metadata is None:
        return "Not judged: no ledger metadata were given (--metadata)."
    return "Not asked."


def _none(section: Section, facts: Facts) -> str:
    """Say that nothing was found, and what of it was not looked at."""
    if section.judged and section.name != "orphans" and (reason := not_judged(facts)):
        return f"Not judged: {reason}."
    if facts.unread:
        left = counted(len(facts.unread), "bookie was", "bookies were")
        return f"{section.none} Only in what was read: {left} not."
    return section.none


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
