"""`bkstore COMMAND ...`: parsing, and turning errors into one line and an exit code.

Exit codes: 0 clean, 1 findings, 2 wrong usage or unreadable input. Data go to stdout,
messages to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from bkstore.cli.terminal.messages import silence, tell, terminable, usable_streams
from bkstore.errors import BkstoreError
from bkstore.tables.safe_text import shown
from bkstore.version import __version__

__all__ = ["main"]

COMMANDS = {
    "inspect": "bookie.inspect",
    "ledgers": "bookie.ledgers",
    "ledger": "bookie.ledger",
    "availability": "bookie.availability",
    "readledger": "bookie.readledger",
    "where": "bookie.where",
    "readlog": "bookie.readlog",
    "readlogmetadata": "bookie.readlogmetadata",
    "readjournal": "bookie.readjournal",
    "lastmark": "bookie.lastmark",
    "listfiles": "bookie.listfiles",
    "audit": "audit",
    "streams": "streams",
    "dump": "datasets.dump",
    "load": "datasets.load",
    "analyze": "datasets.analyze",
    "demo": "demo",
}
"""Each command's module in `bkstore.cli`, in the order of the help."""


class _Parser(argparse.ArgumentParser):
    """One that shows what it was given only as `tell` shows it; its commands' parsers too."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and exit with code 2."""
        super().error(shown(message))

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, an error of writing is not kept silent."""
        (file or sys.stdout).write(self.format_help())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bkstore",
        description="Apache BookKeeper bookie storage, outside the JVM.",
        epilog="DIR is a ledger directory, a folder of ledger directories, or a bk_server.conf. "
        "Nothing is ever written there.",
    )
    parser.add_argument("--version", action="version", version=f"bkstore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, place in COMMANDS.items():
        module = import_module(f"bkstore.cli.{place}")
        summary = (module.__doc__ or "").splitlines()[0].split(": ", 1)[1].rstrip(".")
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    An interrupt gives 130, SIGTERM and SIGHUP raise `SystemExit` with 128 and their number.
    """
    usable_streams()
    try:
        with terminable():
            try:
                code = _command(argv)
            except SystemExit:  # of the parser, which has said why, or of a signal
                _flushed(0)
                raise
            return _flushed(code)
    except KeyboardInterrupt:
        return 130


def _command(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
        code: int = args.run(args)
    except BrokenPipeError:  # the reader left: nobody is there to tell
        silence(sys.stdout)
        return 0
    except BkstoreError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    else:
        return code


def _flushed(code: int) -> int:
    """Write what standard output still holds; return the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        return _fail(f"standard output: {error.strerror or error}")
    return code


def _fail(message: str) -> int:
    tell(f"bkstore: {message}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
