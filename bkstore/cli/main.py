"""`bkstore COMMAND ...`: parses arguments and turns errors into one line and an exit code.

Exit codes: `bkstore.cli.terminal.exit_codes`. Data go to stdout, messages to stderr. A command's
module is imported when the command is chosen: `bkstore --help` imports none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module

from bkstore.cli.commands import COMMAND_GROUPS, COMMANDS, Command
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


def make_parser(*, load_all: bool = False) -> Parser:
    """Return the parser, which imports a command's module at its first use, or now (`load_all`)."""
    parser = Parser(
        prog="bkstore",
        description="Apache BookKeeper bookie storage, outside the JVM.",
        epilog="DIR is a ledger directory, a folder of ledger directories, or a bk_server.conf. "
        "Only serve writes there. The help of each command ends with an example: "
        "bkstore COMMAND --help.",
    )
    parser.add_argument("--version", action="version", version=f"bkstore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    parser.command_groups = {title: list(group) for title, group in COMMAND_GROUPS.items()}
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.summary, description=command.summary)
        subparser.declare = partial(_declare, command)
        if load_all:
            subparser.declare_once()
    return parser


def _declare(command: Command, parser: Parser) -> None:
    module = import_module(f"bkstore.cli.{command.module}")
    module.add_arguments(parser)
    parser.set_examples(command.examples.splitlines())
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
    """Run the command that `argv` names; return its exit code, or that of a failure, printed."""
    try:
        args = _parser().parse_args(argv)
        code: int = args.run(args)
    except BrokenPipeError:  # the reader has closed the pipe
        redirect_to_null(sys.stdout)
        return 0
    except BkstoreError as error:
        return _print_failure(str(error), getattr(error, "__notes__", ()))
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


def _print_failure(message: str, advice: Sequence[str] = ()) -> int:
    """Print why the command failed, and what to do, a line each; return the exit code."""
    print_stderr(f"bkstore: {message}")
    for line in advice:
        print_stderr(line)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
