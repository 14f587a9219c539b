"""`bkstore COMMAND ...`: parses arguments and turns errors into one line and an exit code.

Exit codes: `bkstore.cli.terminal.exit_codes`. Data go to stdout, messages to stderr. A command's
module is imported when the command is chosen: `bkstore --help` imports none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from typing import NamedTuple

from bkstore.cli.terminal.exit_codes import FAILED
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.signals import signals_as_exceptions
from bkstore.cli.terminal.standard_streams import (
    ensure_standard_streams,
    print_stderr,
    redirect_to_null,
)
from bkstore.errors import BkstoreError, WriteFailed
from bkstore.version import __version__


class Command(NamedTuple):
    """A command's module, relative to `bkstore.cli`, and its summary, the first line of the
    module's docstring, which `bkstore --help` prints without importing it."""

    module: str
    summary: str


COMMANDS = {
    "inspect": Command(
        "bookie.inspect", "layout, directories, counts, bytes and oddities of a bookie directory"
    ),
    "ledgers": Command("bookie.ledgers", "the ledgers of a bookie directory, one row each"),
    "ledger": Command("bookie.ledger", "the entries of one ledger and their locations"),
    "availability": Command(
        "bookie.availability", "which entries of a ledger are here, condensed as in BP-34"
    ),
    "readledger": Command("bookie.readledger", "the entries of one ledger, as they are stored"),
    "where": Command(
        "bookie.where", "the entry logs that hold a ledger's entries, found without the index"
    ),
    "readlog": Command("bookie.readlog", "the records of entry logs"),
    "readlogmetadata": Command(
        "bookie.readlogmetadata", "the ledgers of entry logs, and their bytes"
    ),
    "readjournal": Command("bookie.readjournal", "the records of journal files"),
    "lastmark": Command(
        "bookie.lastmark", "for each journal, the position at which a replay would begin"
    ),
    "listfiles": Command("bookie.listfiles", "the files of a bookie, by what they are"),
    "rocks": Command(
        "rocksdb.rocks", "the files, rows and logs of RocksDB databases, read without RocksDB"
    ),
    "audit": Command(
        "audit", "bookies' entries compared with ledger metadata, by the rules of BP-34"
    ),
    "metadata": Command(
        "metadata", "the ledger metadata of a cluster: listed, one ledger's, or as a file"
    ),
    "streams": Command(
        "streams", "the objects that hold a stream's offsets, and the cost of finding them"
    ),
    "dump": Command(
        "datasets.dump", "the tables of bookie directories as Parquet, many bookies in one dataset"
    ),
    "load": Command(
        "datasets.load", "a new index, RocksDB or index files, from a bookie's part of a dump"
    ),
    "analyze": Command(
        "datasets.analyze", "analyses of a dump: losses, garbage, growth, as tables and a report"
    ),
    "report": Command("datasets.report", "the report page on bookies or on a dump, in one step"),
    "sql": Command("datasets.sql", "SQL over a dump: its tables, and its analyses as tables"),
    "check": Command("maintenance.check", "consistency of index, entry logs, journals and states"),
    "usage": Command(
        "maintenance.usage",
        "what fills the disk: live bytes, garbage, pinned logs, the index, caches",
    ),
    "diff": Command(
        "maintenance.diff", "differences between two bookies: ledgers, entries as ranges, states"
    ),
    "convert": Command(
        "maintenance.convert", "a bookie's directory with its index as RocksDB, or as index files"
    ),
    "rebuild-index": Command(
        "maintenance.rebuild_index",
        "a bookie's directory with an index rebuilt from its entry logs",
    ),
    "salvage": Command(
        "maintenance.salvage",
        "all readable records of damaged entry logs, as a new bookie's directory",
    ),
    "serve": Command("serve", "serve a bookie's directory on a port, for clients of BookKeeper"),
    "ensemble": Command(
        "ensemble", "a ZooKeeper and bookies on loopback, for trials and tests: up, status, down"
    ),
    "lab": Command("trials.lab", "experiments with storage layouts: tables, pictures, findings"),
    "demo": Command(
        "trials.demo", "a tour with generated data: cluster, faults, audit, dump, analyses, report"
    ),
    "completion": Command(
        "completion", "a script that lets a shell complete commands, options and files"
    ),
}
"""The commands, in the order of `bkstore --help`."""


def make_parser(*, load_all: bool = False) -> Parser:
    """Return the parser, which imports a command's module at its first use, or now (`load_all`)."""
    parser = Parser(
        prog="bkstore",
        description="Apache BookKeeper bookie storage, outside the JVM.",
        epilog="DIR is a ledger directory, a folder of ledger directories, or a bk_server.conf. "
        "Only serve writes there.",
    )
    parser.add_argument("--version", action="version", version=f"bkstore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.summary, description=command.summary)
        subparser.declare = partial(_declare, command)
        if load_all:
            subparser.declare_once()
    return parser


def _declare(command: Command, parser: Parser) -> None:
    module = import_module(f"bkstore.cli.{command.module}")
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)


@cache
def _parser() -> Parser:
    """Return the parser, built once for all commands that this process runs."""
    return make_parser()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, 130 for an interrupt. SIGTERM raises `SystemExit`."""
    ensure_standard_streams()
    try:
        with signals_as_exceptions():
            try:
                code = _run_command(argv)
            except SystemExit as exit_request:  # from the parser, after its message, or a signal
                flush_code = _flush_output(0)
                if flush_code and not exit_request.code:  # help was printed, but writing it failed
                    return flush_code
                raise
            return _flush_output(code)
    except KeyboardInterrupt:
        return 130


def _run_command(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
        code: int = args.run(args)
    except BrokenPipeError:  # the reader has closed the pipe
        redirect_to_null(sys.stdout)
        return 0
    except BkstoreError as error:
        return _print_failure(str(error))
    except OSError as error:
        return _print_failure(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        return _print_failure("not enough memory")
    else:
        return code


def _flush_output(code: int) -> int:
    """Return `code`, or that of a failure to write the output; a closed pipe is none."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except OSError as error:
        redirect_to_null(sys.stdout)
        return _print_failure(str(WriteFailed("standard output", error)))
    return code


def _print_failure(message: str) -> int:
    print_stderr(f"bkstore: {message}")
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
