"""The parser of the command line and of each command: argparse's, with rules of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from bkstore.tables.safe_text import shown

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """One that tells of errors with its own usage, and shows only what is fit to be shown.

    `declare` is called with the parser before it is first used: it declares the arguments then,
    so that nothing is loaded for a command that is not chosen. With `intermixed`, an optional
    positional may stand behind options; before Python 3.12.7 argparse gives it up at the first.
    `check` is called with the parser and what it found, for rules that argparse has no words for.
    """

    declare: Callable[[Parser], None] | None = None
    intermixed = False
    check: Callable[[Parser, argparse.Namespace], None] | None = None
    _parsing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, as argparse does; what is left over is an error of this parser."""
        if self._parsing:  # a pass of an intermixed one
            return super().parse_known_args(args, namespace)
        self.declare_once()
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
        if self.check is not None:
            self.check(self, found)
        return found, left

    def declare_once(self) -> None:
        """Declare the arguments, unless that is done."""
        if self.declare is not None:
            declare, self.declare = self.declare, None
            declare(self)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and exit with code 2."""
        super().error(shown(message))

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, an error of writing is not kept silent."""
        (file or sys.stdout).write(self.format_help())
