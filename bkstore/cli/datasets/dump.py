"""bkstore dump: the tables of bookie directories as Parquet, many bookies in one dataset."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import add_opening, report_findings
from bkstore.counts import counted
from bkstore.errors import InvalidArgument
from bkstore.offline.staging_directory import partial_path

if TYPE_CHECKING:
    from bkstore.offline.dump import DumpProgress, DumpResult, DumpSource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directories",
        metavar="[NAME=]DIR",
        nargs="+",
        help="bookie directories, one a bookie, each with a name if it shall have another",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="a new or empty folder")
    parser.add_argument(
        "--bookie-id",
        metavar="ID",
        action="append",
        help="name of a bookie, once for each DIR (default: the cookie's, else the folder's)",
    )
    parser.add_argument(
        "--length", action="store_true", help="read the length of each record from the entry logs"
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="processes beside each other (default: one a CPU, fewer for few rows)",
    )
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on where an interrupted dump to OUT ended (default), or begin anew",
    )
    add_opening(parser)


def run(args: argparse.Namespace) -> int:
    """Write the tables below OUT and say how many rows; exit code 1 if there are findings."""
    from bkstore.offline.dump import dump

    with work_progress("rows") as show:

        def progress(at: DumpProgress) -> None:
            if show is not None:
                show(f"{at.bookie}", at.done, at.total, at.rows)

        try:
            result = dump(
                _sources(args),
                args.out,
                progress,
                jobs=args.jobs,
                length=args.length,
                resume=args.resume,
            )
        except KeyboardInterrupt:
            partial = partial_path(args.out)
            if partial.is_dir():
                tell(f"interrupted; what is done is kept in {partial}, the same dump goes on")
            raise
    _tell(args.out, result)
    return report_findings(result.findings)


def _sources(args: argparse.Namespace) -> list[DumpSource]:
    from bkstore.offline.dump import DumpSource

    named = list(map(_named, args.directories))
    ids = args.bookie_id or [name for name, _ in named]
    if len(ids) != len(named):
        raise InvalidArgument(
            f"{counted(len(named), 'directory', 'directories')}, {len(ids)} --bookie-id"
        )
    if args.bookie_id and any(name is not None for name, _ in named):
        raise InvalidArgument("names by NAME=DIR and by --bookie-id: give one of them")
    return [
        DumpSource(path, name, args.live, args.layout, args.root)
        for name, (_, path) in zip(ids, named)
    ]


def _named(word: str) -> tuple[str | None, Path]:
    """Return (name, directory) of NAME=DIR; a directory that is there is taken as it is."""
    name, equals, path = word.partition("=")
    if not equals or not name or not path or os.path.exists(word):
        return None, Path(word)
    return name, Path(path)


def _tell(out: Path, result: DumpResult) -> None:
    told = ", ".join(
        counted(count, "entry" if table == "entries" else table.removesuffix("s"), table)
        for table, count in result.rows.items()
    )
    if result.kept:
        told += f"; {result.kept} of {result.pieces} pieces were there already"
    tell(f"{out}: {told}")
