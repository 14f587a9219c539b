"""The JSON document of an experiment: built of rows, saved, read again, added to a folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from bkstore.errors import InvalidArgument
from bkstore.files.user_outputs import write_output
from tools.lab.document_validation import find_fault, find_misfit
from tools.lab.experiment import Experiment, LabRun, Row
from tools.lab.machine import describe_environment

FORMAT = "bkstore-lab/1"

Document = dict[str, Any]


def build_document(
    experiment: Experiment,
    run: LabRun,
    rows: Iterable[Row],
    arguments: Sequence[str],
    seconds: float,
) -> Document:
    """Return the document of a run, given its command-line arguments and duration. Raises
    `ValueError` if two rows have the same values in the given columns."""
    complete_rows = [experiment.complete_row(row) for row in rows]
    keys = [experiment.key(row) for row in complete_rows]
    if len(set(keys)) != len(keys):
        raise ValueError(f"{experiment.name}: two rows with the same given columns")
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "command": shlex.join(
            ["python", "-m", f"tools.{experiment.name}", *map(_strip_directory, arguments)]
        ),
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
        "finding": experiment.summarize(complete_rows),
        "seconds": seconds,
    }


def _strip_directory(argument: str) -> str:
    """Return an argument, without the directory if it is an absolute path of this machine."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def _file_name(path: Path | None) -> str | None:
    return None if path is None else path.absolute().name


def save_document(document: Document, target: Path) -> None:
    """Write a document as JSON, with each row on a line of its own."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in document["rows"])
    head = {key: value for key, value in document.items() if key != "rows"}
    text = f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'
    write_output(target, text.encode())


def read_document(experiment: Experiment, source: Path) -> Document:
    """Return a saved document of the experiment.

    Columns that the experiment lacked when the document was saved are None in its rows.
    Raises `InvalidArgument` if the file is not a valid document of this experiment.
    """
    document = _load_document(source)
    if document["experiment"] != experiment.name:
        other_experiment = document["experiment"]
        raise InvalidArgument(f"{source}: a result of {other_experiment}, not of {experiment.name}")
    return _fill_missing_columns(experiment, document, source)


def _load_document(source: Path) -> Document:
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{source}: no result can be read: {error}") from error
    found_format = document.get("format") if isinstance(document, dict) else None
    if found_format != FORMAT:
        raise InvalidArgument(f"{source}: format {found_format!r}, not {FORMAT!r}")
    _raise_if_faulty(source, find_fault(document))
    return dict(document)


def _fill_missing_columns(experiment: Experiment, document: Document, source: Path) -> Document:
    """Return the document with None for the columns that the experiment got later."""
    _raise_if_faulty(source, find_misfit(document, experiment))
    empty_row = {column.name: None for column in experiment.columns}
    return {**document, "rows": [empty_row | row for row in document["rows"]]}


def _raise_if_faulty(source: Path, fault: str | None) -> None:
    if fault is not None:
        raise InvalidArgument(f"{source}: no whole result: {fault}")


def read_folder(experiment: Experiment, folder: Path) -> Iterator[tuple[Path, Document]]:
    """Yield the path and document of each result of an experiment in a folder, oldest first.

    Raises `InvalidArgument` if any JSON file in the folder is not a valid result.
    """
    documents = [(path, _load_document(path)) for path in sorted(folder.glob("*.json"))]
    own_documents = [
        (path, _fill_missing_columns(experiment, document, path))
        for path, document in documents
        if document["experiment"] == experiment.name
    ]
    yield from sorted(
        own_documents, key=lambda path_and_document: str(path_and_document[1]["made"])
    )


def add_to_folder(experiment: Experiment, document: Document, folder: Path) -> Path:
    """Add a result to an existing folder, in place of the older rows that it measured again.

    Returns the path of the new file. Older rows of the same `group_columns` and scale are removed
    from their files as a whole, and files without rows are deleted.
    """
    new_units = {_unit_key(experiment, row) for row in document["rows"]}
    for path, old_document in list(read_folder(experiment, folder)):
        remaining_rows = [
            row for row in old_document["rows"] if _unit_key(experiment, row) not in new_units
        ]
        if old_document["scale"] != document["scale"] or len(remaining_rows) == len(
            old_document["rows"]
        ):
            continue
        if remaining_rows:
            save_document(
                {
                    **old_document,
                    "rows": remaining_rows,
                    "finding": experiment.summarize(remaining_rows),
                },
                path,
            )
        else:
            path.unlink()
    # The new file gets the first free name: two results of one second are numbered.
    timestamp = "".join(character for character in document["made"][:19] if character not in "-:")
    suffixes = chain([""], (f"-{number}" for number in count(2)))
    target = next(
        path
        for path in (folder / f"{experiment.name}-{timestamp}{suffix}.json" for suffix in suffixes)
        if not path.exists()
    )
    save_document(document, target)
    return target


def _unit_key(experiment: Experiment, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in experiment.group_columns)
