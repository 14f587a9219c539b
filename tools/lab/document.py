"""The JSON document of an experiment: made of rows, written, read again, kept with others."""

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
from tools.lab.experiment import Experiment, Row, Run
from tools.lab.known_documents import fault, misfit
from tools.lab.machine import environment

FORMAT = "bkstore-lab/1"

Document = dict[str, Any]


def made(
    experiment: Experiment, run: Run, rows: Iterable[Row], words: Sequence[str], seconds: float
) -> Document:
    """Return the document of a run that was started with these words and took so long."""
    whole = [experiment.whole(row) for row in rows]
    keys = [experiment.key(row) for row in whole]
    if len(set(keys)) != len(keys):
        raise ValueError(f"{experiment.name}: two rows with the same given columns")
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "command": shlex.join(["python", "-m", f"tools.{experiment.name}", *map(_said, words)]),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(),
        "absent": sorted(run.absent),
        "seed": run.seed,
        "scale": run.size,
        "rounds": run.rounds,
        "question": experiment.question,
        "data": experiment.data,
        "dump": _last_part(run.dump),
        "trace": _last_part(run.trace),
        "method": experiment.method,
        "columns": [asdict(column) for column in experiment.columns],
        "rows": whole,
        "finding": experiment.found(whole),
        "seconds": seconds,
    }


def _said(word: str) -> str:
    """Return a word of a command as documents have it: without where on a machine a file is."""
    return Path(word).name if Path(word).is_absolute() else word


def _last_part(path: Path | None) -> str | None:
    """Return what data of one's own are called, without where they are; None without any."""
    return None if path is None else path.absolute().name


def save(document: Document, target: Path) -> None:
    """Write a document as JSON, a line a row."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in document["rows"])
    head = {name: value for name, value in document.items() if name != "rows"}
    text = f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'
    write_output(target, text.encode())


def read(experiment: Experiment, source: Path) -> Document:
    """Return a saved document of the experiment; `InvalidArgument` for anything else.

    Columns that the experiment did not have then are None in its rows.
    """
    document = _loaded(source)
    if document["experiment"] != experiment.name:
        other = document["experiment"]
        raise InvalidArgument(f"{source}: a result of {other}, not of {experiment.name}")
    return _fitting(experiment, document, source)


def _loaded(source: Path) -> Document:
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{source}: no result can be read: {error}") from error
    said = document.get("format") if isinstance(document, dict) else None
    if said != FORMAT:
        raise InvalidArgument(f"{source}: format {said!r}, not {FORMAT!r}")
    _refuse(source, fault(document))
    return dict(document)


def _fitting(experiment: Experiment, document: Document, source: Path) -> Document:
    _refuse(source, misfit(document, experiment))
    empty = {column.name: None for column in experiment.columns}
    return {**document, "rows": [empty | row for row in document["rows"]]}


def _refuse(source: Path, wrong: str | None) -> None:
    if wrong is not None:
        raise InvalidArgument(f"{source}: no whole result: {wrong}")


# -- a folder of results


def kept(experiment: Experiment, folder: Path) -> Iterator[tuple[Path, Document]]:
    """Yield the results of an experiment that a folder has, the oldest first.

    Raises `InvalidArgument` where a file is no result, of whatever experiment.
    """
    found = [(path, _loaded(path)) for path in sorted(folder.glob("*.json"))]
    mine = [
        (path, _fitting(experiment, document, path))
        for path, document in found
        if document["experiment"] == experiment.name
    ]
    yield from sorted(mine, key=lambda each: str(each[1]["made"]))


def keep(experiment: Experiment, document: Document, folder: Path) -> Path:
    """Add a result to a folder that is there; what it measures anew leaves older files.

    Returns its file. What is measured together stays together: rows of the same `unit` and scale
    are replaced as a whole, and a file without any rows left goes.
    """
    new = {_unit(experiment, row) for row in document["rows"]}
    for path, old in list(kept(experiment, folder)):
        rows = [row for row in old["rows"] if _unit(experiment, row) not in new]
        if old["scale"] != document["scale"] or len(rows) == len(old["rows"]):
            continue
        if rows:
            save({**old, "rows": rows, "finding": experiment.found(rows)}, path)
        else:
            path.unlink()
    stamp = "".join(sign for sign in document["made"][:19] if sign not in "-:")
    names = chain([""], (f"-{number}" for number in count(2)))
    target = next(
        path
        for path in (folder / f"{experiment.name}-{stamp}{more}.json" for more in names)
        if not path.exists()
    )
    save(document, target)
    return target


def _unit(experiment: Experiment, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in experiment.unit)
