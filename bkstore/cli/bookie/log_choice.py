"""Choosing entry logs on the command line: in a bookie's directories, or a file by itself."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.cli.terminal.shared_options import add_directory, open_bookie
from bkstore.counts import counted
from bkstore.errors import InvalidArgument
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.entrylog import log_id_of
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.read_only.bookie_dir import BookieDir

_NAME = re.compile(r"([0-9a-fA-F]{1,8})\.log")
_NUMBER = re.compile(r"[0-9]{1,10}|0[xX][0-9a-fA-F]{1,8}")


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add DIR, LOG and --dir-index."""
    add_directory(parser)
    parser.add_argument(
        "log",
        metavar="LOG",
        nargs="?",
        help="an id, decimal or with 0x, or a file name <hex id>.log (default: all); "
        "DIR may be a log file",
    )
    parser.add_argument(
        "--dir-index", metavar="N", type=int, help="number of the ledger directory, from 0"
    )


@contextmanager
def open_logs(args: argparse.Namespace) -> Iterator[tuple[BookieDir | None, list[LogFile]]]:
    """Yield (the bookie, the logs that the arguments name); no bookie for a file by itself."""
    path: Path = args.directory
    if path.is_file() and path.suffix == ".log":
        yield None, [_single(path, args)]
        return
    with open_bookie(args, needs_index=False) as bookie:
        yield bookie, _chosen(bookie, args.log, args.dir_index)


def _single(path: Path, args: argparse.Namespace) -> LogFile:
    log_id = log_id_of(path.name)
    if log_id is None:
        raise InvalidArgument(f"{path}: not named as an entry log (<hex id>.log)")
    if args.log is not None or args.dir_index is not None:
        raise InvalidArgument(f"{path} is an entry log: LOG and --dir-index say no more")
    if args.output is not None:
        refuse_inputs(args.output, [path.resolve().parent])
    return LogFile(0, log_id, str(path), path.stat().st_size)


def _chosen(bookie: BookieDir, log: str | None, directory: int | None) -> list[LogFile]:
    count = len(bookie.folders.ledger)
    if directory is not None and not 0 <= directory < count:
        raise InvalidArgument(
            f"--dir-index {directory}: {counted(count, 'is', 'are')} here, from 0 on"
        )
    if log is not None:
        return [bookie.log_file(log_id_in(log), directory)]
    return [found for found in bookie.entry_logs if directory in (None, found.dir_index)]


def log_id_in(text: str) -> int:
    """Return the id of a number, decimal or hex with ``0x``, or of a name.

    A bare number is decimal for every command; the bookie shell's `readlogmetadata` takes hex.
    """
    name = _NAME.fullmatch(text)
    if name:
        return int(name[1], 16)
    if _NUMBER.fullmatch(text):
        return int(text, 16 if text[:2] in ("0x", "0X") else 10)
    raise InvalidArgument(f"not an entry log: {text[:60]!r} (an id, 0x and hex, or <hex id>.log)")
