"""The command line of all experiments: measure or read again, print, save, draw, compare."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.standard_streams import print_stderr, print_text
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.user_outputs import check_output, write_output
from bkstore.lab.documents.comparison import list_differences
from bkstore.lab.documents.document import (
    Document,
    SummaryError,
    build_document,
    document_of_rows,
    read_document,
    save_document,
)
from bkstore.lab.documents.result_folder import add_to_folder, read_folder
from bkstore.lab.experiment import Experiment, LabRun, Row
from bkstore.lab.presentation.page import build_page
from bkstore.lab.presentation.picture import draw_picture
from bkstore.lab.presentation.table import to_markdown
from bkstore.lab.presentation.terminal_tables import print_document
from bkstore.report.charts import require_matplotlib

_DATA_OPTIONS = {
    "dump": ("DIR", "a dump's entries as data"),
    "trace": ("FILE", "recorded reads as one more order of reading"),
}

_REFUSED_SIDE = "refused_side"
"""The attribute of a --side that is given to an experiment without sides that are indexes."""


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> int:
    """Run an experiment's command line and return the exit code. It is 2 for a refused option or
    file, 1 if a row has an `error` in place of figures, else 0."""
    given_arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = make_parser(experiment)
    options = parser.parse_args(given_arguments)
    try:
        earlier_document = _check_options(experiment, options)
        if options.read is not None:
            document = read_document(experiment, options.read)
            # A measurement that ended early was saved without findings.
            document["finding"] = document["finding"] or experiment.summarize(document["rows"])
        else:
            document = _run_experiment(experiment, options, given_arguments)
        if options.json is not None:
            save_document(document, options.json)
        if options.into is not None:
            add_to_folder(experiment, document, options.into)
        _print_result(experiment, options, document, earlier_document)
        if options.pictures:
            drawn = document
            if earlier_document is not None and experiment.compared_by:
                rows = experiment.add_earlier_rows(document["rows"], earlier_document["rows"])
                drawn = {**document, "rows": rows}
            for target in options.pictures:
                write_output(target, _render_picture(experiment, drawn, target.suffix))
    except BkstoreError as error:
        print_stderr(f"{parser.prog}: {error}")
        return 2
    return int(any(row.get("error") for row in document["rows"]))


def _check_options(experiment: Experiment, options: argparse.Namespace) -> Document | None:
    """Validate the options before the long measurement; return the document to compare with."""
    given_data = [option for option in _DATA_OPTIONS if getattr(options, option) is not None]
    for option in given_data:
        if option not in experiment.data_sources:
            raise InvalidArgument(f"--{option}: {experiment.name} takes none")
    if getattr(options, _REFUSED_SIDE, None) is not None:
        raise InvalidArgument(
            f"--side: {experiment.name} takes no index of yours; layouts, deletes and workload do"
        )
    if len(given_data) > 1:
        raise InvalidArgument("--dump and --trace both say what the data are: one of them, please")
    if options.pictures:
        require_matplotlib("a picture", "lab")
    folder_target = None if options.into is None else options.into / f"{experiment.name}.json"
    for target in (options.json, *options.pictures, folder_target):
        if target is not None:
            check_output(target)
    if options.into is not None:
        read_folder(experiment, options.into)  # raises if a result in it is not valid
    return None if options.compare is None else read_document(experiment, options.compare)


def _print_result(
    experiment: Experiment,
    options: argparse.Namespace,
    document: Document,
    earlier_document: Document | None,
) -> None:
    """Print the result, then what differs from the earlier one, if one was given."""
    if options.markdown:
        tables = to_markdown(document["columns"], document["rows"], experiment.table_title)
        print_text(f"{tables}\n")
    else:
        print_document(experiment, document, wide=options.wide)
    if earlier_document is not None:
        lines = list_differences(experiment, document, earlier_document) or ["nothing moved"]
        title = f"\nagainst {earlier_document['command']} ({earlier_document['made']}):"
        print_text("\n  ".join([title, *lines]) + "\n")


def _run_experiment(
    experiment: Experiment, options: argparse.Namespace, arguments: Sequence[str]
) -> Document:
    """Measure, and return the document. If that or the summary fails, the rows are kept in a file
    that is named on stderr."""
    started = time.perf_counter()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix=f"bkstore-{experiment.name}-") as directory:
        given = {"rounds": options.rounds, "dump": options.dump, "trace": options.trace}
        run = LabRun(Path(directory), options.scale, options.seed, **given, options=options)
        try:
            for row in experiment.measure(run):
                rows.append(row)  # noqa: PERF402 (those before a failure are kept)
        except BaseException as failure:
            run.progress.end()
            if rows:
                seconds = time.perf_counter() - started
                document = document_of_rows(experiment, run, rows, arguments, seconds)
                ended_by = type(failure).__name__
                document["finding"] = [f"The measurement ended early, by {ended_by}."]
                _keep_rows(experiment, options, document)
            raise
        run.progress.end()
    try:
        return build_document(experiment, run, rows, arguments, time.perf_counter() - started)
    except SummaryError as failed:
        _keep_rows(experiment, options, failed.document)
        raise


def _keep_rows(experiment: Experiment, options: argparse.Namespace, document: Document) -> None:
    """Save the rows of a run that failed, so that they need not be measured again: in the file of
    --json, or in a temporary file that is named on stderr and not removed."""
    target = options.json
    if target is None:
        descriptor, path = tempfile.mkstemp(".json", f"bkstore-{experiment.name}-")
        os.close(descriptor)
        target = Path(path)
    save_document(document, target)
    print_stderr(f"the rows are in {target}: --from that file measures nothing again")


def _render_picture(experiment: Experiment, document: Document, suffix: str) -> bytes:
    picture = draw_picture(experiment, document, "png" if suffix == ".png" else "svg")
    if suffix != ".html":
        return picture
    narrow = draw_picture(experiment, document, "svg", max_columns=1)
    return build_page(experiment, document, picture, narrow)


def _parse_picture_path(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".svg", ".html", ".png"):
        raise argparse.ArgumentTypeError(f"{text}: a picture ends with .svg, .html or .png")
    return path


def _parse_positive(text: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: not a number") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: not above 0")
    return value


def _parse_integer(text: str, minimum: int, fault: str) -> int:
    """Return a whole number of at least `minimum`; `fault` is the error below it."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number") from None
    if value < minimum:
        raise argparse.ArgumentTypeError(f"{text}: {fault}")
    return value


_parse_rounds = partial(_parse_integer, minimum=1, fault="not 1 or more")
_parse_seed = partial(_parse_integer, minimum=0, fault="below 0")


def make_parser(experiment: Experiment) -> Parser:
    """Return the parser of an experiment's command line."""
    parser = Parser(
        prog=experiment.command_line,
        description=f"{experiment.question} {experiment.method}",
    )
    add = parser.add_argument
    scale_help = "multiply the usual amount of data by this (default: 1)"
    add("--scale", "--size", type=_parse_positive, default=1.0, help=scale_help)
    seed_help = "the seed of all random choices (default: %(default)s)"
    add("--seed", type=_parse_seed, default=20260801, help=seed_help)
    rounds_help = "the number of rounds that medians are taken of (default: %(default)s)"
    add("--rounds", type=_parse_rounds, default=5, help=rounds_help)
    for option, (metavar, description) in _DATA_OPTIONS.items():
        help_text = description if option in experiment.data_sources else argparse.SUPPRESS
        add(f"--{option}", type=Path, metavar=metavar, help=help_text)
    add("--json", type=Path, metavar="FILE", help="write the result to this file")
    add(
        "--into",
        type=Path,
        metavar="DIR",
        help="add the result to this folder of results, in place of older rows",
    )
    add(
        "--picture",
        "--report",
        dest="pictures",
        action="append",
        default=[],
        type=_parse_picture_path,
        metavar="FILE",
        help="draw the result here: .svg, .png, or .html with findings and tables; repeatable",
    )
    add("--wide", action="store_true", help="print every column of every row")
    add("--markdown", action="store_true", help="print the tables in Markdown")
    add(
        "--from",
        dest="read",
        type=Path,
        metavar="JSON",
        help="read this result instead of measuring",
    )
    add("--compare", type=Path, metavar="JSON", help="print what differs from this earlier result")
    if experiment.add_options is not None:
        experiment.add_options(parser)
    if "--side" not in parser.options:  # take it, so that it is refused by a sentence of its own
        parser.add_argument("--side", dest=_REFUSED_SIDE, help=argparse.SUPPRESS)
    return parser
