"""bkstore completion: a script that lets a shell complete commands, options and files.

The script is self-contained: completion does not start Python. `docs/install.md` installs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bkstore.cli.terminal.metadata_options import parse_metadata_location
from bkstore.cli.terminal.standard_streams import print_text

_SHELLS = ("bash", "zsh", "fish", "tcsh")
_FILES = ("DIR", "FILE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script, for which every command's module is loaded."""
    import shtab

    from bkstore.cli.main import make_parser

    parser = make_parser(load_all=True)
    for action in _actions(parser):
        if _takes_a_path(action):
            action.complete = shtab.FILE
    print_text(shtab.complete(parser, args.shell) + "\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Yield the arguments of a parser and of its subcommands, recursively."""
    for action in parser._actions:  # argparse has no public list; shtab does the same
        if isinstance(action, argparse._SubParsersAction):
            for subparser in dict.fromkeys(action.choices.values()):  # each once, despite aliases
                yield from _actions(subparser)
        else:
            yield action


def _takes_a_path(action: argparse.Action) -> bool:
    return action.type in (Path, parse_metadata_location) or str(action.metavar).endswith(_FILES)
