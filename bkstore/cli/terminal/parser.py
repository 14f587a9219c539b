"""The parser of the command line and of each command: argparse's, with rules of its own."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from bkstore.cli.terminal.messages import print_text
from bkstore.tables.safe_text import shown

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # argparse's rule for words that are no options

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


class Parser(argparse.ArgumentParser):
    """One that tells of errors with its own usage, and shows only what is fit to be shown.

    `declare` is called with the parser before it is first used: it declares the arguments then,
    so that nothing is loaded for a command that is not chosen. With `intermixed`, an optional
    positional may stand behind options; before Python 3.12.7 argparse gives it up at the first.
    `checks` are called with the parser and what it found, for rules that argparse has no words for;
    that no output lies in an input is one of every command.
    An option that there is not is what an error is about, whatever argparse made of the words
    around it; for it, and for a wrong choice, the nearest one that there is is named.
    """

    declare: Callable[[Parser], None] | None = None
    intermixed = False
    checks: tuple[Check, ...] = (refuse_outputs_in_inputs,)
    _parsing = False
    _unknown: tuple[str, ...] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, as argparse does; what is left over is an error of this parser."""
        if self._parsing:  # a pass of an intermixed one
            return super().parse_known_args(args, namespace)
        self.declare_once()
        self._unknown = tuple(self._unknown_options(sys.argv[1:] if args is None else args))
        self._parsing = True
        try:
            if self.intermixed:
                found, left = self.parse_known_intermixed_args(args, namespace)
            else:
                found, left = super().parse_known_args(args, namespace)
        finally:
            self._parsing = False
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        for check in self.checks:
            check(self, found)
        return found, left

    def _unknown_options(self, words: Sequence[str]) -> Iterator[str]:
        """Yield what argparse will take for an option, and is none of this parser.

        Words behind a command are its own parser's.
        """
        for word in takewhile("--".__ne__, words):
            if not word.startswith("-") or word == "-" or " " in word:
                if self._subparsers is not None:
                    return
            elif not _NUMBER.fullmatch(word):
                name = word.partition("=")[0] if word.startswith("--") else word[:2]
                known = self._option_string_actions
                # argparse takes the beginning of a name for the name
                if name not in known and not any(each.startswith(name) for each in known):
                    yield name

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is no choice, as argparse does, and name the nearest one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _hint(str(value), map(str, action.choices or ()))
            raise

    def declare_once(self) -> None:
        """Declare the arguments, unless that is done."""
        if self.declare is not None:
            declare, self.declare = self.declare, None
            declare(self)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and exit with code 2."""
        if self._unknown and not message.startswith("argument -"):
            options = list(self._option_string_actions)
            words = (f"{name}{_hint(name, options)}" for name in self._unknown)
            message = f"unrecognized arguments: {' '.join(words)}"
        super().error(shown(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, usage or version.

        Unlike argparse, raise `WriteFailed` if standard output does not take it.
        """
        if file is sys.stdout:
            print_text(message)
        else:
            super()._print_message(message, file)


Check = Callable[[Parser, argparse.Namespace], None]
"""A rule: calls the parser's `error` where what was found breaks it."""


def _hint(word: str, known: Iterable[str]) -> str:
    """Return a question in brackets after the nearest of the words, nothing if none is near."""
    near = get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
