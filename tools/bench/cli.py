"""The benchmark as an experiment of the lab: its columns, options and findings."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence

from bkstore.lab import Experiment, LabRun, Panel, ResultColumn, Row, main as run_command
from bkstore.lab.experiment import Rows
from bkstore.lab.number_format import as_text, format_missed
from tools.bench.cases import run_row
from tools.bench.rows import ROWS


def _parse_row(text: str) -> str:
    if text not in (names := [row.name for row in ROWS]):
        raise argparse.ArgumentTypeError(f"no row {text!r}; there are {', '.join(names)}")
    return text


class _ListRows(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for row in ROWS:
            print(f"{row.name:20} {row.title}{' (long)' if row.long else ''}")
        parser.exit()


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--row", action="append", type=_parse_row, metavar="NAME", help="only this; repeatable")
    add("--long", action="store_true", help="the long rows as well")
    add("--list", action=_ListRows, nargs=0, help="list the rows and stop")


def choose_rows(names: Sequence[str] | None, long: bool) -> list[str]:
    """Return the rows to run: those named; otherwise all, the long ones only if `long` is true."""
    return [row.name for row in ROWS if (row.name in names if names else long or not row.long)]


def measure(run: LabRun) -> Iterator[Row]:
    """Yield the ratio and the other figures of each case of the rows to run."""
    names = choose_rows(getattr(run.options, "row", None), getattr(run.options, "long", False))
    run.expect_steps(len(names))
    for row in ROWS:
        if row.name in names:
            run.report_progress(row.name)
            yield from run_row(row, run, run.rounds)
            for leftover in run.directory.iterdir():
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def summarize(rows: Rows) -> list[str]:
    """Return the number of targets that hold, and a sentence for each missed one."""
    judged = [row for row in rows if row["holds"] is not None]
    missed = [row for row in judged if not row["holds"]]
    return [
        f"{len(judged) - len(missed)} of {len(judged)} targets hold.",
        *(
            f"{row['row']}, {row['case']}{row['what'] and ', '}{row['what']}: "
            f"{format_missed_value(row)}, and {row['target']} is wanted."
            for row in missed
        ),
    ]


def format_missed_value(row: Row) -> str:
    """Return the figure of a row that misses its target, rounded so that it differs from it."""
    if row["what"]:
        return as_text(row["value"])
    return format_missed(row["ratio"], float(row["target"].split()[1]))


EXPERIMENT = Experiment(
    name="bench",
    question="How do bkstore's paths compare with what they must beat?",
    method=(
        "Sides beside each other, in turning order; CPU time of the measuring thread, medians of "
        "the rounds. Of several baselines the fastest counts. Ratio: baseline / ours, where the "
        "target reads '>='; with '<=' it is ours / baseline. What each side includes: the end of "
        "the modules in tools/bench/rows."
    ),
    data="As each row says, at scale 1; `items` is how many entries a side handles.",
    columns=(
        ResultColumn("row", "row", kind="given"),
        ResultColumn("case", "case", kind="given"),
        ResultColumn("what", "what", kind="given"),
        ResultColumn("items", "entries", kind="kept"),
        ResultColumn("shape", "data", kind="kept"),
        ResultColumn("ratio", "ratio"),
        ResultColumn("value", "value"),
        ResultColumn("target", "target", kind="told"),
        ResultColumn("holds", "holds", kind="told"),
        ResultColumn("spread", "of single rounds", kind="told"),
        ResultColumn("wall", "by the clock", kind="told"),
        ResultColumn("ours", "ours", kind="told"),
        ResultColumn("ours_ms", "it takes", "ms", "told"),
        ResultColumn("baseline", "baseline", kind="told"),
        ResultColumn("baseline_ms", "it takes", "ms", "told"),
        ResultColumn("is", "ratio is", kind="kept"),
        ResultColumn("samples", "samples", kind="kept"),
    ),
    panels=tuple(Panel(row.name, "case", "ratio", None, {"row": row.name}) for row in ROWS),
    measure=measure,
    summarize=summarize,
    add_options=_add_options,
    table_title=lambda row: "other figures" if row["what"] else "ratios of CPU time",
    tables_by_row=True,
    group_columns=("row",),
    command="python -m tools.bench",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 0 if it ran, whatever the ratios."""
    return run_command(EXPERIMENT, arguments)
