"""The JSON document of an experiment: made of rows, written, read again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bkstore.errors import InvalidArgument
from bkstore.files.user_outputs import write_output
from tools.bench.report import environment
from tools.lab.experiment import Experiment, Row, Run

__all__ = ["FORMAT", "Document", "made", "read", "save"]

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
        "command": shlex.join(["python", "-m", f"tools.{experiment.name}", *words]),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(),
        "absent": sorted(run.absent),
        "seed": run.seed,
        "scale": run.size,
        "rounds": run.rounds,
        "question": experiment.question,
        "data": experiment.data,
        "method": experiment.method,
        "columns": [asdict(column) for column in experiment.columns],
        "rows": whole,
        "finding": experiment.found(whole),
        "seconds": seconds,
    }


def save(document: Document, target: Path) -> None:
    """Write a document as JSON."""
    write_output(target, (json.dumps(document, indent=1) + "\n").encode())


def read(experiment: Experiment, source: Path) -> Document:
    """Return a saved document of the experiment; `InvalidArgument` for anything else."""
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{source}: no result can be read: {error}") from error
    said = document.get("format") if isinstance(document, dict) else None
    if said != FORMAT:
        raise InvalidArgument(f"{source}: format {said!r}, not {FORMAT!r}")
    if document["experiment"] != experiment.name:
        other = document["experiment"]
        raise InvalidArgument(f"{source}: a result of {other}, not of {experiment.name}")
    return dict(document)
