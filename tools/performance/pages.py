"""Tables between the marks of the pages about speed.

`<!-- made by tools.performance: KIND NAMES -->` begins one, `<!-- end of it -->` ends it. KIND is
`promises`, `unmet`, `peers`, `runs`, `pipeline`, or `rows` with the names of rows of the benchmark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from tools.bench.cli import EXPERIMENT as BENCH, format_missed_value
from tools.lab import Row
from tools.lab.document import Document
from tools.lab.table import markdown
from tools.performance.figures import Figures, Origin, named
from tools.performance.promises import judged
from tools.pipeline.experiment import EXPERIMENT as PIPELINE
from tools.pipeline.steps import SPARKS, STEPS

_MARKED = re.compile(
    r"(<!-- made by tools\.performance: (\w+) ?([^>]*) -->)\n.*?(<!-- end of it -->)", re.DOTALL
)


def with_tables(text: str, figures: Figures) -> str:
    """Return a page with its tables made anew; `LookupError` for a kind that there is not."""

    def made(found: re.Match[str]) -> str:
        begin, kind, names, end = found.groups()
        if kind not in _KINDS:
            raise LookupError(f"no table {kind!r}; there are {', '.join(_KINDS)}")
        return f"{begin}\n\n{_KINDS[kind](figures, names.split())}\n\n{end}"

    return _MARKED.sub(made, text)


def named_rows(text: str) -> list[str]:
    """Return the rows of the benchmark whose tables a page has."""
    return [
        name
        for _, kind, names, _ in _MARKED.findall(text)
        if kind == "rows"
        for name in names.split()
    ]


# -- what holds


def _promises(figures: Figures, _: Sequence[str]) -> str:
    heads = ("path", "against", "must reach", "measured", "holds")
    rows = [
        (each.promise.path, each.promise.against, each.promise.must, each.measured, each.verdict)
        for each in judged(figures)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ("---",) * 5, *rows))


def _unmet(figures: Figures, _: Sequence[str]) -> str:
    promises = judged(figures)
    promised = {name for each in promises for name in each.values}
    others = [
        row for row in _all_rows(figures) if row["holds"] is not None and named(row) not in promised
    ]
    lines = [
        (each.promise.path, name, each.promise.told(value), each.promise.must)
        for each in promises
        for name, value in each.missed.items()
    ]
    lines += [
        ("", named(row), format_missed_value(row), row["target"])
        for row in others
        if not row["holds"]
    ]
    heads = ("path", "figure", "measured", "must reach")
    cells = (heads, ("---", "---", "---:", "---"), *lines)
    return (
        f"Of {sum(len(each.values) for each in promises)} figures behind the table above, and "
        f"{len(others)} more that rows of the benchmark have a target for, {len(lines)} are not as "
        f"they must be:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in cells)
    )


def _all_rows(figures: Figures) -> list[Row]:
    names = sorted({row["row"] for row, _ in figures.bench})
    return [row for row, _ in figures.of_rows(names)]


def _peers(figures: Figures, _: Sequence[str]) -> str:
    ends = tuple(f", {name}" for name in _PEERS)
    rows = [row for row in _all_rows(figures) if row["case"].endswith(ends) and not row["what"]]
    names = ("row", "case", "ratio", "ours", "baseline")
    columns = [column for column in _columns(BENCH.columns) if column["name"] in names]
    return markdown(columns, rows)


_PEERS = ("lmdb", "plyvel", "pyroaring", "rbloom", "fastbloom-rs")
"""Libraries that cases are named by."""


def _runs(figures: Figures, _: Sequence[str]) -> str:
    documents = {id(each.document): each.document for each in (*figures.bench, *figures.pipeline)}
    dates = sorted(str(document["made"]) for document in documents.values())
    loads = sorted(load for document in documents.values() for load in _load(document))
    machines = dict.fromkeys(_machine(document) for document in documents.values())
    return (
        f"The figures are of {len(documents)} runs between {dates[0][:10]} and {dates[-1][:10]}, "
        f"on {' and on '.join(machines)}, with a load average of {loads[0]:.1f} to "
        f"{loads[-1]:.1f} at their starts."
    )


# -- figures


def _rows(figures: Figures, names: Sequence[str]) -> str:
    found = figures.of_rows(names)
    for name in names:
        if not any(each.row["row"] == name for each in found):
            raise LookupError(f"no figures of the row {name!r}")
    rows = [each.row for each in found]
    plain = [row for row in rows if ": " not in row["what"]]
    parts = [_said(found)]
    if plain:
        parts.append(markdown(_columns(BENCH.columns), plain, BENCH.parted))
    if len(plain) < len(rows):
        parts.append(_crossed([row for row in rows if ": " in row["what"]]))
    return "\n\n".join(parts)


def _crossed(rows: Sequence[Row]) -> str:
    """Return figures named "of what: figure" as a table that has a column for each figure."""
    lines: dict[tuple[str, ...], Row] = {}
    heads = ["row", "case", "of"]
    for row in rows:
        of, _, figure = row["what"].partition(": ")
        line = lines.setdefault(
            (row["row"], row["case"], of), {"row": row["row"], "case": row["case"], "of": of}
        )
        line[figure] = row["value"]
        heads += [figure] if figure not in heads else []
    columns = [{"name": name, "label": name, "unit": "", "kind": "told"} for name in heads]
    return markdown(columns, [dict.fromkeys(heads) | line for line in lines.values()])


def _pipeline(figures: Figures, _: Sequence[str]) -> str:
    order = ("entries", "step", "engine")
    found = sorted(figures.pipeline, key=lambda each: [each.row[name] for name in order])
    rows = [each.row for each in found]
    columns = [each for each in _columns(PIPELINE.columns) if each["name"] not in _BESIDE]
    return "\n\n".join((_said(found), _engines_crossed(rows), markdown(columns, rows)))


_BESIDE = ("rows", "asked", "below")
"""Columns of the pipeline that only the table by engine has, or none."""


def _engines_crossed(rows: Sequence[Row]) -> str:
    """Return a table of a line a step and size: the seconds of every engine, and ratios."""
    times: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        line = times.setdefault((row["entries"], row["step"]), {})
        line[row["engine"]] = row["seconds"]
        line[f"{row['engine']}, CPU"] = row["cpu"]
        if row["engine"] in SPARKS and row["below"] is not None:
            line["below"] = max(line.get("below", 0), row["below"])
        line["asked"] = row["asked"] or line.get("asked")
    lines = [
        {
            "entries": entries,
            "step": step,
            **{engine: line.get(engine) for engine in STEPS},
            "spark / local": _over(line, "spark", "local"),
            "by CPU": _over(line, "spark, CPU", "local, CPU"),
            "one / two executors": _over(line, "one executor", "two executors"),
            "DuckDB was asked": line["asked"],
            "workers and JVM, MiB": line.get("below"),
        }
        for (entries, step), line in times.items()
    ]
    heads = [{"name": name, "label": name, "unit": "", "kind": "told"} for name in lines[0]]
    return markdown(heads, lines)


def _over(line: dict[str, Any], above: str, below: str) -> float | None:
    return line[above] / line[below] if line.get(above) and line.get(below) else None


def _said(found: Iterable[Origin]) -> str:
    """Return by which commands figures were made, when and where, a line each."""
    documents = {id(each.document): each.document for each in found}
    return "\n".join(f"- {_origin(document)}" for document in documents.values())


def _origin(document: Document) -> str:
    absent = f"; not installed: {', '.join(document['absent'])}" if document["absent"] else ""
    note = f". {document['note']}" if document.get("note") else ""
    return (
        f"`{document['command']}`, {document['made'][:16].replace('T', ' ')} UTC, "
        f"{_machine(document)}, {_loaded(document)}, {document['rounds']} rounds{absent}{note}"
    )


def _machine(document: Document) -> str:
    machine = document["machine"]
    return f"{machine['cores']} cores ({machine['processor']})"


def _load(document: Document) -> list[float]:
    """Return the load average at the start of a run; nothing where it was not noted."""
    return [float(load) for load in document["machine"]["load_average"][:1]]


def _loaded(document: Document) -> str:
    load = _load(document)
    return f"load {load[0]:.1f}" if load else "load not noted"


def _columns(columns: Iterable[Any]) -> list[dict[str, Any]]:
    return [asdict(column) for column in columns]


_KINDS: dict[str, Callable[[Figures, Sequence[str]], str]] = {
    "promises": _promises,
    "unmet": _unmet,
    "peers": _peers,
    "runs": _runs,
    "rows": _rows,
    "pipeline": _pipeline,
}
