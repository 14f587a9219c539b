"""Chooses the sentences for a part of the page, according to the inputs and the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bkstore.report.findings.headline import why_not_judged
from bkstore.report.findings.key_figures import Facts
from bkstore.report.findings.table_columns import number_column
from bkstore.report.html.value_formats import counted, join_names
from bkstore.report.sections import Section

if TYPE_CHECKING:
    import pyarrow as pa


def _any_above_zero(column: str) -> Callable[[pa.Table], bool]:
    return lambda table: bool((number_column(table, column) > 0).any())


_ADVICE_CONDITIONS: Mapping[str, Callable[[pa.Table], bool]] = {
    "findings": lambda table: "damage" in table.column("severity").to_pylist(),
    "ledger_health": lambda table: table.column("not_judged").null_count < table.num_rows,
    "bytes_by_bookie": _any_above_zero("garbage_bytes"),
    "log_occupancy": _any_above_zero("garbage_bytes"),
    "bytes_by_scope": lambda table: table.num_rows > 1,
    "comparison": _any_above_zero("removed"),
    "bookies": lambda table: False in table.column("read").to_pylist(),
}
"""Conditions under which a part's advice applies to its table; others need only a row."""


def rule_text(section: Section, facts: Facts) -> str:
    """Return the explanation of a part's table."""
    return _fill_in(section.rule, facts)


def advice_text(section: Section, table: pa.Table, facts: Facts) -> str:
    """Return what an operator can do about these rows, an empty string if the advice is moot."""
    applies = _ADVICE_CONDITIONS.get(section.name)
    return _fill_in(section.advice, facts) if applies is None or applies(table) else ""


def _fill_in(text: str, facts: Facts) -> str:
    """Replace ``{known}`` and ``{judge}`` by what is true with, or without, metadata."""
    has_metadata = facts.metadata is not None
    knower = "the metadata contain" if has_metadata else "the index of the bookie has"
    judge_hint = "see Violations." if has_metadata else "analyze with --metadata to judge."
    return text.replace("{known}", knower).replace("{judge}", judge_hint)


def absence_reason(section: Section, facts: Facts) -> str:
    """Return why a part has no table."""
    if section.needs_metadata and facts.metadata is None:
        return "Not judged: no ledger metadata were given (analyze --metadata)."
    if section.name == "comparison":
        return "Not requested: no second dump was given (--other)."
    return "Not requested."


def nothing_found_text(section: Section, facts: Facts) -> str:
    """Return a sentence that nothing was found, or that nothing was judged or not all was read."""
    # Orphans are known without judging replicas.
    if section.needs_metadata and section.name != "orphans" and (reason := why_not_judged(facts)):
        return f"Not judged: {reason}."
    if facts.unread_bookies:
        bookies_were = counted(len(facts.unread_bookies), "bookie was", "bookies were")
        return f"{section.nothing_found} This covers only what was read: {bookies_were} not."
    return section.nothing_found


def comparison_note(source: Mapping[str, Any]) -> str:
    """Return which bookies of two dumps were left out of the comparison, empty if none was."""
    if source.get("manifest") is None or source.get("other") is None:
        return ""
    first_bookies, second_bookies = (source[name]["bookies"] for name in ("manifest", "other"))
    first_ids, second_ids = _bookie_ids(first_bookies), _bookie_ids(second_bookies)
    if not set(first_ids) & set(second_ids):
        return (
            "The two dumps have no bookie in common, so nothing was compared: the first "
            f"{_describe_contents(first_ids)}; the second {_describe_contents(second_ids)}."
        )
    compared = set(_bookie_ids(first_bookies, only_read=True))
    compared &= set(_bookie_ids(second_bookies, only_read=True))
    if not compared:
        return "No bookie was read in both dumps, so nothing was compared."
    # Such as: bookie-3 and bookie-4 (first dump); bookie-9 (second dump)
    texts = []
    for dump_name, ids in (("first dump", first_ids), ("second dump", second_ids)):
        left_out_ids = [bookie_id for bookie_id in ids if bookie_id not in compared]
        if left_out_ids:
            texts.append(f"{join_names(left_out_ids)} ({dump_name})")
    if not texts:
        return ""
    left_out_text = "; ".join(texts)
    bookies_are = counted(len(compared), "bookie is", "bookies are")
    return f"{bookies_are} compared. Left out, as not read in both: {left_out_text}."


def _bookie_ids(bookies: list[dict[str, Any]], *, only_read: bool = False) -> list[str]:
    """Return the ids in a manifest's list of bookies, with `only_read` of those that were read."""
    return [str(bookie["id"]) for bookie in bookies if bookie["read"] or not only_read]


def _describe_contents(bookie_ids: list[str]) -> str:
    return f"has {join_names(bookie_ids)}" if bookie_ids else "has no bookie"
