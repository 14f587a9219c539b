"""`bkstore COMMAND ...`: parsing, and turning errors into one line and an exit code.

Exit codes: 0 clean, 1 findings, 2 wrong usage or unreadable input. Data go to stdout,
messages to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import bkstore
from bkstore.errors import BkstoreError

__all__ = ["main"]

COMMANDS = (
    "inspect",
    "ledgers",
    "ledger",
    "availability",
    "readledger",
    "where",
    "readlog",
    "readlogmetadata",
    "readjournal",
    "lastmark",
    "listfiles",
    "audit",
    "streams",
    "dump",
    "load",
    "analyze",
    "demo",
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bkstore",
        description="Apache BookKeeper bookie storage, outside the JVM.",
        epilog="DIR is a ledger directory, a folder of ledger directories, or a bk_server.conf. "
        "Nothing is ever written there.",
    )
    parser.add_argument("--version", action="version", version=f"bkstore {bkstore.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"bkstore.cli.{name}")
        summary = (module.__doc__ or "").splitlines()[0].split(": ", 1)[1].rstrip(".")
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader left: nobody is there to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except BkstoreError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'input'}: {error.strerror or error}")
    else:
        return code


def _fail(message: str) -> int:
    print(f"bkstore: {message}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main())
