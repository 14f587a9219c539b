"""The tables between the marks of the pages about speed. A table begins with `<!-- made by
tools.performance: KIND NAMES -->` and ends with `<!-- end of it -->`. KIND is `promises`, `unmet`,
`peers`, `runs`, `pipeline`, or `rows` followed by the names of rows of the benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from bkstore.lab import Row
from bkstore.lab.documents.document import Document
from bkstore.lab.presentation.table import to_markdown
from tools.bench.cli import EXPERIMENT as BENCH, format_missed_value
from tools.performance.figures import Figures, Origin, figure_name
from tools.performance.promises import judge_promises
from tools.pipeline.experiment import EXPERIMENT as PIPELINE
from tools.pipeline.steps import SPARK_MASTERS, STEPS

_TABLE_PATTERN = re.compile(
    r"(<!-- made by tools\.performance: (\w+) ?([^>]*) -->)\n.*?(<!-- end of it -->)", re.DOTALL
)


def replace_tables(text: str, figures: Figures) -> str:
    """Return a page with its tables rebuilt; raise `LookupError` for an unknown kind."""

    def build_table(match: re.Match[str]) -> str:
        begin_mark, kind, names, end_mark = match.groups()
        if kind not in _TABLE_BUILDERS:
            raise LookupError(f"no table {kind!r}; there are {', '.join(_TABLE_BUILDERS)}")
        return f"{begin_mark}\n\n{_TABLE_BUILDERS[kind](figures, names.split())}\n\n{end_mark}"

    return _TABLE_PATTERN.sub(build_table, text)


def list_row_names(text: str) -> list[str]:
    """Return the names of the benchmark's rows whose tables a page includes."""
    tables = _TABLE_PATTERN.findall(text)
    return [name for _, kind, names, _ in tables if kind == "rows" for name in names.split()]


def _promise_table(figures: Figures, _: Sequence[str]) -> str:
    headers = ("path", "against", "must reach", "measured", "holds")
    rows = []
    for judgement in judge_promises(figures):
        promise = judgement.promise
        result = (judgement.measured, judgement.verdict)
        rows.append((promise.path, promise.baseline, str(promise.limit), *result))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, ("---",) * 5, *rows))


def _unmet_table(figures: Figures, _: Sequence[str]) -> str:
    """Return the figures that miss their target: of promises, then of other rows."""
    promises = judge_promises(figures)
    promised = {name for judgement in promises for name in judgement.values}
    judged_rows = (row for row in _all_rows(figures) if row["holds"] is not None)
    other_rows = [row for row in judged_rows if figure_name(row) not in promised]
    lines = []
    for judgement in promises:
        path, limit = judgement.promise.path, judgement.promise.limit
        for name, value in judgement.missed.items():
            lines += [(path, name, limit.format_figure(value), str(limit))]
    for row in other_rows:
        if not row["holds"]:
            lines += [("", figure_name(row), format_missed_value(row), row["target"])]
    headers = ("path", "figure", "measured", "must reach")
    cells = (headers, ("---", "---", "---:", "---"), *lines)
    return (
        f"Of {sum(len(judgement.values) for judgement in promises)} figures behind the table "
        f"above, and {len(other_rows)} more that rows of the benchmark have a target for, "
        f"{len(lines)} are not as they must be:\n\n"
        + "\n".join(f"| {' | '.join(line)} |" for line in cells)
    )


def _all_rows(figures: Figures) -> list[Row]:
    names = sorted({row["row"] for row, _ in figures.bench})
    return [row for row, _ in figures.of_rows(names)]


def _peer_table(figures: Figures, _: Sequence[str]) -> str:
    suffixes = tuple(f", {name}" for name in _PEER_NAMES)
    rows = [row for row in _all_rows(figures) if row["case"].endswith(suffixes) and not row["what"]]
    column_names = ("row", "case", "ratio", "ours", "baseline")
    columns = (column for column in BENCH.columns if column.name in column_names)
    return to_markdown(_as_documents(columns), rows)


_PEER_NAMES = ("lmdb", "plyvel", "pyroaring", "rbloom", "fastbloom-rs")
"""The libraries that the names of cases end with."""


def _run_summary(figures: Figures, _: Sequence[str]) -> str:
    documents = _documents_of([*figures.bench, *figures.pipeline])
    dates = sorted(str(document["made"]) for document in documents)
    loads = sorted(load for document in documents for load in _load_averages(document))
    machines = dict.fromkeys(map(_describe_machine, documents))  # distinct ones
    return (
        f"The figures are of {len(documents)} runs between {dates[0][:10]} and {dates[-1][:10]}, "
        f"on {' and on '.join(machines)}, with a load average of {loads[0]:.1f} to "
        f"{loads[-1]:.1f} at their starts."
    )


def _row_tables(figures: Figures, names: Sequence[str]) -> str:
    """Return the runs, then the ratios of rows of the benchmark, then their other figures."""
    origins = figures.of_rows(names)
    for name in names:
        if not any(origin.row["row"] == name for origin in origins):
            raise LookupError(f"no figures of the row {name!r}")
    rows = [origin.row for origin in origins]
    plain_rows = [row for row in rows if ": " not in row["what"]]  # not "subject: figure"
    parts = [_describe_runs(origins)]
    if plain_rows:
        parts.append(to_markdown(_as_documents(BENCH.columns), plain_rows, BENCH.table_title))
    if len(plain_rows) < len(rows):
        parts.append(_pivot_figures([row for row in rows if ": " in row["what"]]))
    return "\n\n".join(parts)


def _pivot_figures(rows: Sequence[Row]) -> str:
    """Return figures named "subject: figure" as a table with a column for each figure."""
    keys = ("row", "case", "of")
    lines: dict[tuple[str, ...], Row] = {}
    for row in rows:
        subject, _, figure = row["what"].partition(": ")
        key = (row["row"], row["case"], subject)
        lines.setdefault(key, dict(zip(keys, key)))[figure] = row["value"]
    figure_names = (row["what"].partition(": ")[2] for row in rows)
    headers = dict.fromkeys([*keys, *figure_names])
    return _to_plain_markdown(list(headers), [headers | line for line in lines.values()])


def _pipeline_tables(figures: Figures, _: Sequence[str]) -> str:
    sort_columns = ("entries", "step", "engine")
    origins = sorted(figures.pipeline, key=lambda each: [each.row[name] for name in sort_columns])
    rows = [each.row for each in origins]
    columns = _as_documents(each for each in PIPELINE.columns if each.name not in _OMITTED_COLUMNS)
    return "\n\n".join((_describe_runs(origins), _pivot_engines(rows), to_markdown(columns, rows)))


_OMITTED_COLUMNS = ("rows", "asked", "below")  # the columns that the pipeline's full table omits


def _pivot_engines(rows: Sequence[Row]) -> str:
    """Return the steps as a table with a column of seconds for each engine, and their ratios."""
    values_of_step: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        values = values_of_step.setdefault((row["entries"], row["step"]), {})
        values[row["engine"]] = row["seconds"]
        values[f"{row['engine']}, CPU"] = row["cpu"]
        # The memory of the processes below Python's: the highest of Spark's engines.
        if row["engine"] in SPARK_MASTERS and row["below"] is not None:
            values["below"] = max(values.get("below", 0), row["below"])
        values["asked"] = row["asked"] or values.get("asked")
    lines = [
        {
            "entries": entries,
            "step": step,
            **{engine: values.get(engine) for engine in STEPS},
            "spark / local": _ratio(values, "spark", "local"),
            "by CPU": _ratio(values, "spark, CPU", "local, CPU"),
            "one / two executors": _ratio(values, "one executor", "two executors"),
            "DuckDB was asked": values["asked"],
            "workers and JVM, MiB": values.get("below"),
        }
        for (entries, step), values in values_of_step.items()
    ]
    return _to_plain_markdown(list(lines[0]), lines)


def _to_plain_markdown(names: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a table of columns that have no unit, with their names as labels."""
    columns = [{"name": name, "label": name, "unit": "", "kind": "told"} for name in names]
    return to_markdown(columns, rows)


def _ratio(values: dict[str, Any], numerator: str, denominator: str) -> float | None:
    has_both = values.get(numerator) and values.get(denominator)
    return values[numerator] / values[denominator] if has_both else None


def _describe_runs(origins: Iterable[Origin]) -> str:
    """Return a line for each run that made figures: command, date, machine."""
    return "\n".join(f"- {_describe_run(document)}" for document in _documents_of(origins))


def _documents_of(origins: Iterable[Origin]) -> list[Document]:
    """Return the documents that the rows come from, each once."""
    return list({id(origin.document): origin.document for origin in origins}.values())


def _describe_run(document: Document) -> str:
    absent = f"; not installed: {', '.join(document['absent'])}" if document["absent"] else ""
    note = f". {document['note']}" if document.get("note") else ""
    return (
        f"`{document['command']}`, {document['made'][:16].replace('T', ' ')} UTC, "
        f"{_describe_machine(document)}, {_describe_load(document)}, {document['rounds']} "
        f"rounds{absent}{note}"
    )


def _describe_machine(document: Document) -> str:
    machine = document["machine"]
    return f"{machine['cores']} cores ({machine['processor']})"


def _load_averages(document: Document) -> list[float]:
    return [float(load) for load in document["machine"]["load_average"][:1]]


def _describe_load(document: Document) -> str:
    load = _load_averages(document)
    return f"load {load[0]:.1f}" if load else "load not noted"


def _as_documents(columns: Iterable[Any]) -> list[dict[str, Any]]:
    return [asdict(column) for column in columns]


_TABLE_BUILDERS: dict[str, Callable[[Figures, Sequence[str]], str]] = {
    "promises": _promise_table,
    "unmet": _unmet_table,
    "peers": _peer_table,
    "runs": _run_summary,
    "rows": _row_tables,
    "pipeline": _pipeline_tables,
}
