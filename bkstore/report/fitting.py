"""Which sentences a part of the page says, by what was given and by what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bkstore.report.findings.headline import not_judged
from bkstore.report.findings.key_figures import Facts, numbers
from bkstore.report.html.wording import counted, listed
from bkstore.report.sections import Section

if TYPE_CHECKING:
    import pyarrow as pa


def _any_above_zero(column: str) -> Callable[[pa.Table], bool]:
    return lambda table: bool((numbers(table, column) > 0).any())


def _any_text(column: str, text: str) -> Callable[[pa.Table], bool]:
    return lambda table: text in table.column(column).to_pylist()


_ADVISED: Mapping[str, Callable[[pa.Table], bool]] = {
    "findings": _any_text("severity", "damage"),
    "ledger_health": lambda table: table.column("not_judged").null_count < table.num_rows,
    "bytes_by_bookie": _any_above_zero("garbage_bytes"),
    "log_occupancy": _any_above_zero("garbage_bytes"),
    "bytes_by_scope": lambda table: table.num_rows > 1,
    "comparison": _any_above_zero("removed"),
    "bookies": lambda table: False in table.column("read").to_pylist(),
}
"""When a part's advice fits its table; where nothing stands here, whenever there are rows."""


def rule(section: Section, facts: Facts) -> str:
    """Return what the table of a part means."""
    return _fitted(section.rule, facts)


def advice(section: Section, table: pa.Table, facts: Facts) -> str:
    """Return what an operator can do about these rows; empty where it would not fit them."""
    fits = _ADVISED.get(section.name)
    return _fitted(section.advice, facts) if fits is None or fits(table) else ""


def _fitted(text: str, facts: Facts) -> str:
    judged = facts.metadata is not None
    known = "the metadata know" if judged else "the index of the bookie knows"
    judge = "see Violations." if judged else "analyze with --metadata to judge."
    return text.replace("{known}", known).replace("{judge}", judge)


def absent(section: Section, facts: Facts) -> str:
    """Return why a part has no table."""
    if section.judged and facts.metadata is None:
        return "Not judged: no ledger metadata were given (analyze --metadata)."
    if section.name == "comparison":
        return "Not asked: no second dump was given (--other)."
    return "Not asked."


def nothing_found(section: Section, facts: Facts) -> str:
    """Say that nothing was found, and what of it was not looked at."""
    if section.judged and section.name != "orphans" and (reason := not_judged(facts)):
        return f"Not judged: {reason}."
    if facts.unread:
        left = counted(len(facts.unread), "bookie was", "bookies were")
        return f"{section.none} Only in what was read: {left} not."
    return section.none


def compared(source: Mapping[str, Any]) -> str:
    """Return which bookies of two dumps were compared and which left out; empty where all were."""
    if source.get("manifest") is None or source.get("other") is None:
        return ""
    both = [source[name]["bookies"] for name in ("manifest", "other")]
    ids = [[str(bookie["id"]) for bookie in each] for each in both]
    read = [{str(bookie["id"]) for bookie in each if bookie["read"]} for each in both]
    has = [f"has {listed(each)}" if each else "has no bookie" for each in ids]
    if not set(ids[0]) & set(ids[1]):
        return (
            "The two dumps have no bookie in common, so nothing was compared: "
            f"the first {has[0]}; the second {has[1]}."
        )
    common = read[0] & read[1]
    if not common:
        return "No bookie was read in both dumps, so nothing was compared."
    left = [[name for name in each if name not in common] for each in ids]
    said = [
        f"{listed(names)} ({which} dump)"
        for names, which in zip(left, ("first", "second"))
        if names
    ]
    if not said:
        return ""
    words = counted(len(common), "bookie is", "bookies are")
    return f"{words} compared. Left out, as not read in both: {'; '.join(said)}."
