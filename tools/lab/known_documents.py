"""What makes JSON a result that can be shown, drawn and compared: its parts, and their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.lab.experiment import Experiment, kinds

_NUMBER = (int, float)
_CELL = (str, int, float, type(None))  # bool is an int

_PARTS: dict[str, Any] = {
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
_MACHINE: dict[str, Any] = {
    "system": str,
    "architecture": str,
    "processor": str,
    "cores": int,
    "load_average": list,
}
_COLUMN = dict.fromkeys(("name", "label", "unit", "kind"), str)


def fault(document: dict[str, Any]) -> str | None:
    """Return what is first found wrong with a result of any experiment, None for a whole one."""
    return next(_faults(document), None)


def _faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong; each look takes for granted that those before it found nothing."""
    yield from _lacking("", document, _PARTS)
    yield from _lacking("machine: ", document["machine"], _MACHINE)
    for name, kind in (("absent", str), ("finding", str)):
        yield from _no_list_of(name, document[name], kind)
    yield from _no_list_of("load_average", document["machine"]["load_average"], _NUMBER)
    for at, column in enumerate(document["columns"]):
        yield from _lacking(f"column {at}: ", column, _COLUMN)
    cells = _cells(document["columns"])
    for at, row in enumerate(document["rows"]):
        yield from _lacking(f"row {at}: ", row, cells)


def _cells(columns: list[dict[str, str]]) -> dict[str, Any]:
    return {each["name"]: object if each["kind"] == "kept" else _CELL for each in columns}


def _lacking(where: str, part: Any, wanted: dict[str, Any]) -> Iterator[str]:
    """Yield which members a JSON object does not have, or has as something else."""
    if not isinstance(part, dict):
        yield f"{where}{part!r:.40} is no object"
        return
    for name, kind in wanted.items():
        if name not in part:
            yield f"{where}no {name!r}"
        elif not isinstance(part[name], kind):
            yield f"{where}{name!r} is {part[name]!r:.40}"


def _no_list_of(name: str, values: list[Any], kind: Any) -> Iterator[str]:
    yield from (f"{name!r} has {value!r:.40}" for value in values if not isinstance(value, kind))


def misfit(document: dict[str, Any], experiment: Experiment) -> str | None:
    """Return what keeps a whole result's rows from being named as the experiment's rows are."""
    has = {column["name"] for column in document["columns"]}
    for column in kinds(experiment.columns, "given"):
        if column.name not in has:
            return f"no column {column.name!r}, by which {experiment.name} names its rows"
    keys = [experiment.key(row) for row in document["rows"]]
    return "two rows of one name" if len(set(keys)) != len(keys) else None
