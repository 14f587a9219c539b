"""The forms of a result: one JSON document, and tables of it for a terminal or a page."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["FORMAT", "environment", "markdown", "print_document"]

FORMAT = 1
"""Version of the JSON document."""

_PACKAGES: tuple[str, ...] = (
    "bkstore",
    "numpy",
    "rocksdict",
    "sortedcontainers",
    "pyroaring",
    "mmh3",
    "rich",
)
_PACKAGES += ("lmdb", "plyvel", "rbloom", "fastbloom-rs")


def environment() -> dict[str, Any]:
    """Return the machine, the Python and the package versions that a figure depends on."""
    return {
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "load_average": list(os.getloadavg()),
        },
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": dict(_versions()),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def print_document(document: dict[str, Any]) -> None:
    """Print the document as one table of ratios and one of other figures on stdout."""
    wide = None if sys.stdout.isatty() else 220  # a pipe has no width: do not wrap
    console = Console(file=sys.stdout, width=wide, highlight=False)
    console.print(_ratios(document))
    facts = _facts(document)
    if facts.row_count:
        console.print(facts)
    console.print(_footer(document))


def markdown(document: dict[str, Any]) -> str:
    """Return the same as Markdown: how `docs/performance.md` gets its figures."""
    lines = [
        "| row | case | ours, ms | baseline, ms | ratio | of single rounds | target | holds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    facts = ["| row | case | what | value | target | holds |", "|---|---|---|---|---|---|"]
    for row in document["rows"]:
        for case in row["cases"]:
            if case["sides"]:
                name, ours, ours_ms, base, base_ms, ratio, spread, _, *verdict = _cells(case)
                cells = (f"{ours}: {ours_ms}", f"{base}: {base_ms}", ratio, spread, *verdict)
                lines.append(" | ".join(("| " + row["name"], name, *cells)) + " |")
            facts.extend(
                " | ".join(("| " + row["name"], case["name"], *_fact_cells(fact))) + " |"
                for fact in case["facts"]
            )
    return "\n".join([*lines, "", *facts, "", _footer(document)])


def _ratios(document: dict[str, Any]) -> Table:
    table = Table(title=f"bkstore benchmark, median of {document['rounds']} rounds, CPU time")
    for heading in ("row", "case", "ours", "ms"):
        table.add_column(heading, justify="right" if heading == "ms" else "left")
    for heading in ("baseline", "ms", "ratio", "of single rounds", "wall", "target", "holds"):
        table.add_column(heading, justify="left" if heading == "baseline" else "right")
    for row in document["rows"]:
        for case in row["cases"]:
            if case["sides"]:
                table.add_row(row["name"], *map(escape, _cells(case)))
        table.add_section()
    return table


def _cells(case: dict[str, Any]) -> list[str]:
    by_role = {side["role"]: side for side in case["sides"]}
    ours, baseline = by_role["ours"], by_role["baseline"]
    return [
        case["name"],
        ours["name"],
        _milliseconds(ours),
        baseline["name"],
        _milliseconds(baseline),
        f"{case['ratio']:.2f}",
        f"{case['ratio_lowest']:.2f} .. {case['ratio_highest']:.2f}",
        f"{case['ratio_wall']:.2f}",
        case["target"] or "",
        _verdict(case["holds"]),
    ]


def _milliseconds(side: dict[str, Any]) -> str:
    return f"{side['cpu_median'] * 1e3:.3f}"


def _verdict(holds: bool | None) -> str:
    return "" if holds is None else "yes" if holds else "NO"


def _facts(document: dict[str, Any]) -> Table:
    table = Table(title="other figures")
    for heading in ("row", "case", "what", "value", "target", "holds"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for row in document["rows"]:
        for case in row["cases"]:
            for fact in case["facts"]:
                table.add_row(row["name"], case["name"], *map(escape, _fact_cells(fact)))
    return table


def _fact_cells(fact: dict[str, Any]) -> tuple[str, str, str, str]:
    value = fact["value"]
    shown = value if isinstance(value, str) else f"{value:,}"
    return fact["name"], shown, fact["target"] or "", _verdict(fact["holds"])


def _footer(document: dict[str, Any]) -> str:
    machine, packages = document["machine"], document["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    load = "/".join(f"{value:.1f}" for value in machine["load_average"])
    return (
        f"{machine['processor']}, {machine['cores']} cores, load {load}; {machine['system']}; "
        f"{document['python']}; {versions}\n"
        f"seed {document['seed']}, size {document['size']:g}, {document['seconds']:.0f} s. "
        "Ratio: baseline / ours; with a '<=' target, and in its row, ours / baseline."
    )
