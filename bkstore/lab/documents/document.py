"""The JSON document of an experiment: built of rows, saved, read again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.user_outputs import write_output
from bkstore.formats.syntax.json_text import parse_json
from bkstore.lab.documents.document_validation import find_fault, find_misfit
from bkstore.lab.documents.machine import describe_environment
from bkstore.lab.experiment import Experiment, LabRun, Row

FORMAT = "bkstore-lab/1"

Document = dict[str, Any]


def build_document(
    experiment: Experiment,
    run: LabRun,
    rows: Iterable[Row],
    arguments: Sequence[str],
    seconds: float,
) -> Document:
    """Return the document of a run with its findings, given its command-line arguments and
    duration. Raises `ValueError` if two rows have the same values in the columns of kind "given",
    which identify a row, and `SummaryError` if the experiment's `summarize` fails."""
    document = document_of_rows(experiment, run, rows, arguments, seconds)
    try:
        document["finding"] = experiment.summarize(document["rows"])
    except Exception as error:
        raise SummaryError(document) from error
    return document


def document_of_rows(
    experiment: Experiment,
    run: LabRun,
    rows: Iterable[Row],
    arguments: Sequence[str],
    seconds: float,
) -> Document:
    """Return the document of a run without findings. Raises `ValueError` as `build_document`."""
    complete_rows = [experiment.complete_row(row) for row in rows]
    keys = [experiment.key(row) for row in complete_rows]
    if len(set(keys)) != len(keys):
        raise ValueError(f"{experiment.name}: two rows with the same given columns")
    options = map(_strip_directory, arguments)
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "command": f"{experiment.command_line} {shlex.join(options)}".rstrip(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        **describe_environment(),
        "absent": sorted(run.missing_libraries),
        "seed": run.seed,
        "scale": run.scale,
        "rounds": run.rounds,
        "question": experiment.question,
        "data": experiment.data,
        "dump": _file_name(run.dump),
        "trace": _file_name(run.trace),
        "method": experiment.method,
        "columns": [asdict(column) for column in experiment.columns],
        "rows": complete_rows,
        "finding": [],
        "seconds": seconds,
    }


class SummaryError(Exception):
    """The findings could not be made; `document` has everything else. Its cause is the error."""

    def __init__(self, document: Document) -> None:
        super().__init__("the findings could not be made")
        self.document = document


def _strip_directory(argument: str) -> str:
    """Return an argument, without the directory if it is an absolute path of this machine."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _file_name(path: Path | None) -> str | None:
    return None if path is None else path.absolute().name


def save_document(document: Document, target: Path) -> None:
    """Write a document as JSON, with each row on a line of its own."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in document["rows"])
    head = {key: value for key, value in document.items() if key != "rows"}
    head_text = json.dumps(head, indent=1).removesuffix("\n}")
    text = f'{head_text},\n "rows": [\n{rows}\n ]\n}}\n'
    write_output(target, text.encode())


def read_document(experiment: Experiment, source: Path) -> Document:
    """Return a saved document of the experiment, with None for columns that it lacked when it was
    saved. Raises `InvalidArgument` if the file is not a valid document of this experiment."""
    document = load_document(source)
    saved_experiment = document["experiment"]
    if saved_experiment != experiment.name:
        raise InvalidArgument(f"{source}: a result of {saved_experiment}, not of {experiment.name}")
    return fill_missing_columns(experiment, document, source)


def load_document(source: Path) -> Document:
    """Return a saved document of any experiment; raise `InvalidArgument` if it is not valid."""
    try:
        document = parse_json(source.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"{source}: cannot be read: {error.strerror}") from error
    except CorruptionError as error:
        raise InvalidArgument(f"{source}: no result can be read: {error}") from error
    found_format = document.get("format") if isinstance(document, dict) else None
    if found_format != FORMAT:
        raise InvalidArgument(f"{source}: format {found_format!r}, not {FORMAT!r}")
    _raise_if_faulty(source, find_fault(document))
    return dict(document)


def fill_missing_columns(experiment: Experiment, document: Document, source: Path) -> Document:
    """Return the document with None for the columns that the experiment got later. Raises
    `InvalidArgument` if the document does not fit the experiment."""
    _raise_if_faulty(source, find_misfit(document, experiment))
    empty_row = {column.name: None for column in experiment.columns}
    return {**document, "rows": [empty_row | row for row in document["rows"]]}


def _raise_if_faulty(source: Path, fault: str | None) -> None:
    if fault is not None:
        raise InvalidArgument(f"{source}: no whole result: {fault}")
