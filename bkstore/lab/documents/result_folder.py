"""A folder of saved results: rows that were measured again supersede those of older results."""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path
from typing import Any

from bkstore.lab.documents.document import (
    Document,
    fill_missing_columns,
    load_document,
    save_document,
)
from bkstore.lab.experiment import Experiment, Row


def read_folder(experiment: Experiment, folder: Path) -> list[tuple[Path, Document]]:
    """Return the path and document of each result of an experiment in a folder, oldest first.
    Raises `InvalidArgument` if any JSON file in the folder is not a valid result."""
    documents = [(path, load_document(path)) for path in sorted(folder.glob("*.json"))]
    own_documents = [
        (path, fill_missing_columns(experiment, document, path))
        for path, document in documents
        if document["experiment"] == experiment.name
    ]

    def made_at(path_and_document: tuple[Path, Document]) -> str:
        _, document = path_and_document
        return str(document["made"])

    return sorted(own_documents, key=made_at)


def add_to_folder(experiment: Experiment, document: Document, folder: Path) -> Path:
    """Add a result to an existing folder, in place of the older rows that it measured again.
    Returns the path of the new file. Older rows of the same `group_columns` and scale are removed
    from their files as a whole, and files without rows are deleted."""

    def group_of(row: Row) -> tuple[Any, ...]:
        return tuple(row[column] for column in experiment.group_columns)

    new_groups = {group_of(row) for row in document["rows"]}
    for path, older in read_folder(experiment, folder):
        rows = [row for row in older["rows"] if group_of(row) not in new_groups]
        if older["scale"] != document["scale"] or len(rows) == len(older["rows"]):
            continue
        if rows:
            save_document({**older, "rows": rows, "finding": experiment.summarize(rows)}, path)
        else:
            path.unlink()
    # The new file is named by its time, without the time zone, and gets the first free name: two
    # results of one second are numbered.
    name = f"{experiment.name}-{document['made'][:19].replace('-', '').replace(':', '')}"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    paths = (folder / f"{name}.json" for name in names)
    target = next(path for path in paths if not path.exists())
    save_document(document, target)
    return target
