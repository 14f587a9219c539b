"""The parser of the command line and of each command: argparse's, extended."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, cast

from bkstore.cli.terminal.standard_streams import print_text
from bkstore.tables.safe_text import escape_unprintable

_NUMBER_PATTERN = re.compile(r"-\d+|-\d*\.\d+")  # argparse does not take such words for options

OUTPUT_ARGUMENTS = frozenset({"out", "output", "report", "resume", "target", "textfile"})
"""Arguments that are paths to be written; every other path is read."""

_MIN_SIMILARITY = 0.7
"""From this share of common letters on, a wrong word is taken for a mistyped one."""

_NAME_DIR_ARGUMENTS = frozenset({"attach", "bookies", "directories"})
"""Arguments whose values are NAME=DIR or DIR."""


def refuse_outputs_in_inputs(_parser: object, args: argparse.Namespace) -> None:
    """Raise `InvalidArgument` if an output is one of the inputs or lies in one, links resolved.

    Inputs need not be readable. `BookieDir.refuse_output` later checks a conf's directories.
    """
    values = vars(args)
    output_values = [values.get(name) for name in sorted(OUTPUT_ARGUMENTS)]
    outputs = [value for value in output_values if isinstance(value, Path)]
    if not outputs:
        return
    from bkstore.files.user_outputs import refuse_inputs

    inputs = [
        path
        for name, value in values.items()
        if name not in OUTPUT_ARGUMENTS
        for path in _paths_in(value, named=name in _NAME_DIR_ARGUMENTS)
    ]
    for output in outputs:
        refuse_inputs(output, inputs)


def _paths_in(value: Any, *, named: bool) -> Iterator[Path]:
    """Yield the paths in an argument's value; if `named`, also in its words NAME=DIR or DIR."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, Path):
            yield item
        elif named and isinstance(item, str):
            _, _, named_path = item.partition("=")
            is_path = not named_path or os.path.exists(item)  # a directory's name may contain "="
            yield Path(item if is_path else named_path)


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that reports errors with its own usage and escapes what it prints.

    `declare` is called with the parser before its first use to declare the arguments, so that
    nothing is imported for a command that is not chosen. With `intermixed`, an optional positional
    may follow options; argparse before Python 3.12.7 drops it at the first option. `checks` are
    called with the parser and the parsed arguments, for other rules; every command checks that no
    output lies in an input. `command_groups` (title -> names) divide the commands of the help, and
    `examples` end it. An unknown option is reported before errors that argparse derives from
    it. Errors about an unknown option or a wrong choice name the nearest valid one; options that
    other commands have, and this one cannot have, are in `refused_options` (option -> reason).
    """

    declare: Callable[[Parser], None] | None = None
    intermixed = False
    checks: tuple[ArgumentCheck, ...] = (refuse_outputs_in_inputs,)
    command_groups: Mapping[str, Sequence[str]] = MappingProxyType({})
    examples: Sequence[str] = ()
    refused_options: Mapping[str, str] = MappingProxyType({})
    _parsing = False
    _unknown_names: tuple[str, ...] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; leftover words are an error of this parser, with its usage."""
        if self._parsing:  # called again by argparse, for a pass of intermixed parsing
            return super().parse_known_args(args, namespace)
        self.declare_once()
        self._unknown_names = tuple(self._unknown_options(sys.argv[1:] if args is None else args))
        self._parsing = True
        try:
            if self.intermixed:
                parsed, leftover = self.parse_known_intermixed_args(args, namespace)
            else:
                parsed, leftover = super().parse_known_args(args, namespace)
        finally:
            self._parsing = False
        if leftover:
            self.error(f"unrecognized arguments: {' '.join(leftover)}; {self._positional_text()}")
        for check in self.checks:
            check(self, parsed)
        return parsed, leftover

    def _positional_text(self) -> str:
        """Return the positional arguments that the command takes, as "inspect takes one DIR"."""
        actions = self._get_positional_actions()
        names = [f"one {action.metavar or action.dest}" for action in actions]
        return f"{self.prog} takes {' and '.join(names) if names else 'options only'}"

    def _unknown_options(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the words that look like options but are not options of this parser. Words after a
        command's name belong to the command's parser and are skipped."""
        for word in takewhile("--".__ne__, words):
            if not word.startswith("-") or word == "-" or " " in word:
                if self._subparsers is not None:
                    return
            elif not _NUMBER_PATTERN.fullmatch(word):
                option = word.partition("=")[0] if word.startswith("--") else word[:2]
                known_options = self._option_string_actions
                # argparse accepts unique prefixes of option names
                if option not in known_options and not any(
                    known_option.startswith(option) for known_option in known_options
                ):
                    yield option

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise for a value that is not a choice, as argparse does, and name the nearest one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            suggestion = _suggest_word(str(value), map(str, action.choices or ()))
            if self.command_groups:  # the help lists all commands, in their groups
                self.error(f"no command {value!r}{suggestion or f'; {self._help_hint}'}")
            error.message += suggestion
            raise

    @property
    def _help_hint(self) -> str:
        return f"{self.prog} --help lists the commands"

    @property
    def options(self) -> frozenset[str]:
        """The names of all options, such as ``--help``."""
        return frozenset(self._option_string_actions)

    def declare_once(self) -> None:
        """Declare the arguments if that has not been done yet."""
        if self.declare is not None:
            declare, self.declare = self.declare, None
            declare(self)

    def set_examples(self, examples: Sequence[str]) -> None:
        """Set command lines as examples, also those of each subcommand in its own parser."""
        self.examples = examples
        for subparser in self._subcommands().values():
            prefix = f"{subparser.prog} "
            subparser.set_examples([line for line in examples if line.startswith(prefix)])

    def _subcommands(self) -> Mapping[str, Parser]:
        """Return the parsers of the subcommands by their names; none if there are none."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return cast(Mapping[str, Parser], action.choices)
        return {}

    def format_help(self) -> str:
        """Return argparse's help, with the commands in their groups and with the examples."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            if self.command_groups and group is self._subparsers:
                self._add_command_groups(formatter)
                continue
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        # A formatter would fill the lines, and an example is copied as it is.
        title = "example" if len(self.examples) == 1 else "examples"
        ending = [f"\n{title}:\n", *(f"  {line}\n" for line in self.examples)]
        return formatter.format_help() + "".join(ending if self.examples else [])

    def _add_command_groups(self, formatter: argparse.HelpFormatter) -> None:
        """Add a section for each group, with the summaries of its commands."""
        assert self._subparsers is not None
        action: Any = self._subparsers._group_actions[0]
        by_name = {summary.dest: summary for summary in action._get_subactions()}
        for title, names in self.command_groups.items():
            formatter.start_section(title)
            formatter.add_arguments([by_name[name] for name in names])
            formatter.end_section()

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the arguments to stderr, and exit with code 2. An unknown option
        explains most of argparse's messages, but none about another option ("argument --to: ")."""
        if self._unknown_names and not message.startswith("argument -"):
            message = self._describe_unknown_options()
        elif self.command_groups and message.endswith("arguments are required: COMMAND"):
            message = f"a command is required; {self._help_hint}"
        super().error(escape_unprintable(message))

    def _describe_unknown_options(self) -> str:
        """Return why an option is refused, if one is; else all unknown options."""
        for name in self._unknown_names:
            if name in self.refused_options:
                return f"argument {name}: {self.refused_options[name]}"
        options = list(self._option_string_actions)
        words = (f"{name}{_suggest_word(name, options)}" for name in self._unknown_names)
        return f"unrecognized arguments: {' '.join(words)}"

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, usage or version; unlike argparse, raises `WriteFailed` if stdout fails."""
        if file is sys.stdout:
            print_text(message)
        else:
            super()._print_message(message, file)


ArgumentCheck = Callable[[Parser, argparse.Namespace], None]
"""A rule for the parsed arguments: calls the parser's `error` if they break it."""


def _suggest_word(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean X?)" for the nearest known word, an empty string if none is near."""
    matches = get_close_matches(word, list(known), 1, _MIN_SIMILARITY)
    return f" (did you mean {matches[0]}?)" if matches else ""
