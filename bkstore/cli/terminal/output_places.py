"""No command writes into what it reads: the rule for all arguments that name places."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUTPUTS = frozenset({"out", "output", "report", "resume", "target", "textfile"})
"""Arguments that name what is written, where they are paths; every other path is read."""

_NAMED = frozenset({"bookies", "directories"})
"""Arguments of words NAME=DIR, or DIR alone."""


def refuse_outputs_in_inputs(_parser: object, args: argparse.Namespace) -> None:
    """Raise `InvalidArgument` for an output that is what is read, or lies in it, through links too.

    Before any work is done, and whatever becomes of the inputs. Directories that a `bk_server.conf`
    names are not known yet: `BookieDir.refuse_output` knows them.
    """
    given = vars(args)
    outputs = [given[name] for name in sorted(OUTPUTS) if isinstance(given.get(name), Path)]
    if not outputs:
        return
    from bkstore.files.user_outputs import refuse_inputs

    inputs = [
        place
        for name, value in given.items()
        if name not in OUTPUTS
        for place in _places(value, named=name in _NAMED)
    ]
    for output in outputs:
        refuse_inputs(output, inputs)


def _places(value: Any, *, named: bool) -> Iterator[Path]:
    """Yield the paths of an argument's value."""
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, Path):
            yield each
        elif named and isinstance(each, str):
            whole = not each.partition("=")[2] or os.path.exists(each)
            yield Path(each if whole else each.partition("=")[2])
