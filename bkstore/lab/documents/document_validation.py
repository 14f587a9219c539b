"""Validation of saved documents: the members that a result must have, and their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bkstore.lab.experiment import Experiment, columns_of_kind

_NUMBER = (int, float)
_CELL = (str, int, float, type(None))  # bool is an int

_DOCUMENT_TYPES: dict[str, Any] = {
    "experiment": str,
    "command": str,
    "made": str,
    "machine": dict,
    "python": str,
    "packages": dict,
    "absent": list,
    "seed": int,
    "scale": _NUMBER,
    "rounds": int,
    "question": str,
    "data": str,
    "method": str,
    "columns": list,
    "rows": list,
    "finding": list,
    "seconds": _NUMBER,
}
_MACHINE_TYPES: dict[str, Any] = {
    "system": str,
    "architecture": str,
    "processor": str,
    "cores": int,
    "load_average": list,
}
_COLUMN_TYPES = dict.fromkeys(("name", "label", "unit", "kind"), str)


def find_fault(document: dict[str, Any]) -> str | None:
    """Return the first fault of a result of any experiment, or None for a valid one."""
    return next(_find_faults(document), None)


def _find_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield the faults. The caller must stop at the first one, as each check relies on those before
    it: rows, for example, are checked against columns that are known to be valid."""
    yield from _check_members("", document, _DOCUMENT_TYPES)
    yield from _check_members("machine: ", document["machine"], _MACHINE_TYPES)
    for key, item_type in (("absent", str), ("finding", str)):
        yield from _check_items(key, document[key], item_type)
    yield from _check_items("load_average", document["machine"]["load_average"], _NUMBER)
    for index, column in enumerate(document["columns"]):
        yield from _check_members(f"column {index}: ", column, _COLUMN_TYPES)
    cell_types = _cell_types(document["columns"])
    for index, row in enumerate(document["rows"]):
        yield from _check_members(f"row {index}: ", row, cell_types)


def _cell_types(columns: list[dict[str, str]]) -> dict[str, Any]:
    return {column["name"]: object if column["kind"] == "kept" else _CELL for column in columns}


def _check_members(location: str, value: Any, types: dict[str, Any]) -> Iterator[str]:
    """Yield the members that a JSON object lacks, or has with another type."""
    if not isinstance(value, dict):
        yield f"{location}{value!r:.40} is no object"
        return
    for key, expected_type in types.items():
        if key not in value:
            yield f"{location}no {key!r}"
        elif not isinstance(value[key], expected_type):
            yield f"{location}{key!r} is {value[key]!r:.40}"


def _check_items(key: str, values: list[Any], item_type: Any) -> Iterator[str]:
    """Yield the items of a list that have another type."""
    misfits = (value for value in values if not isinstance(value, item_type))
    yield from (f"{key!r} has {value!r:.40}" for value in misfits)


def find_misfit(document: dict[str, Any], experiment: Experiment) -> str | None:
    """Return why the experiment cannot identify the rows of a valid result, or None if it can."""
    column_names = {column["name"] for column in document["columns"]}
    for column in columns_of_kind(experiment.columns, "given"):
        if column.name not in column_names:
            return f"no column {column.name!r}, by which {experiment.name} names its rows"
    keys = [experiment.key(row) for row in document["rows"]]
    return "two rows of one name" if len(set(keys)) != len(keys) else None
