"""Arguments that choose entry logs: in a bookie's directories, or a single file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.cli.terminal.shared_options import add_directory, open_bookie
from bkstore.counts import format_count
from bkstore.errors import InvalidArgument
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.entrylog import parse_log_name
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.read_only.bookie_dir import BookieDir

_FILE_NAME_PATTERN = re.compile(r"([0-9a-fA-F]{1,8})\.log")
_LOG_ID_PATTERN = re.compile(r"[0-9]{1,10}|0[xX][0-9a-fA-F]{1,8}")


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add DIR, LOG and --dir-index."""
    add_directory(parser)
    add = parser.add_argument
    add(
        "log",
        metavar="LOG",
        nargs="?",
        help="an id, decimal or with 0x, or a file name <hex id>.log (default: all); "
        "DIR may be a log file",
    )
    add("--dir-index", metavar="N", type=int, help="number of the ledger directory, from 0")


@contextmanager
def open_logs(args: argparse.Namespace) -> Iterator[tuple[BookieDir | None, list[LogFile]]]:
    """Yield (the bookie, None for a single file; the logs that the arguments name). Raises
    `InvalidArgument` if they name no log or contradict each other."""
    path: Path = args.directory
    if path.is_file() and path.suffix == ".log":
        yield None, [_single_log(path, args)]
        return
    with open_bookie(args, needs_index=False) as bookie:
        yield bookie, _chosen_logs(bookie, args.log, args.dir_index)


def _single_log(path: Path, args: argparse.Namespace) -> LogFile:
    """Return the log file given as DIR; raises `InvalidArgument` for arguments that choose one."""
    log_id = parse_log_name(path.name)
    if log_id is None:
        raise InvalidArgument(f"{path}: not an entry log's name (<hex id>.log)")
    if args.log is not None or args.dir_index is not None:
        raise InvalidArgument(f"{path} is an entry log: omit LOG and --dir-index")
    if args.output is not None:
        refuse_inputs(args.output, [path.resolve().parent])
    return LogFile(dir_index=0, log_id=log_id, path=str(path), bytes=path.stat().st_size)


def _chosen_logs(bookie: BookieDir, log: str | None, dir_index: int | None) -> list[LogFile]:
    """Return the entry logs that LOG and ``--dir-index`` choose; all without them."""
    dir_count = len(bookie.folders.ledger)
    if dir_index is not None and not 0 <= dir_index < dir_count:
        count = format_count(dir_count, "is", "are")
        raise InvalidArgument(f"--dir-index {dir_index}: {count} here, from 0 on")
    if log is not None:
        return [bookie.log_file(parse_log_id(log), dir_index)]
    return [log_file for log_file in bookie.entry_logs if dir_index in (None, log_file.dir_index)]


def parse_log_id(text: str) -> int:
    """Return the log id of a number, decimal or hex with ``0x``, or of a file name; else raise
    `InvalidArgument`. (The bookie shell's `readlogmetadata` reads a bare number as hex.)"""
    file_name = _FILE_NAME_PATTERN.fullmatch(text)
    if file_name:
        return int(file_name[1], 16)
    if _LOG_ID_PATTERN.fullmatch(text):
        return int(text, 16 if text[:2] in ("0x", "0X") else 10)
    raise InvalidArgument(f"not an entry log: {text[:60]!r} (an id, 0x and hex, or <hex id>.log)")
