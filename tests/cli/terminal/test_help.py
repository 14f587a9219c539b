"""The help of the command line: groups, summaries, and examples that parse."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from bkstore.cli.commands import COMMAND_GROUPS, COMMANDS
from bkstore.cli.main import main, make_parser
from bkstore.cli.terminal.parser import Parser


def _parsers(parser: Parser, name: str) -> Iterator[tuple[str, Parser]]:
    """Yield a command's parser and those of its subcommands, by their words."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, subparser in action.choices.items():
                yield from _parsers(subparser, f"{name} {word}")


ROOT_PARSER = make_parser(load_all=True)
PARSERS = dict(_parsers(ROOT_PARSER, "bkstore"))
WITH_EXAMPLES = [name for name in PARSERS if name != "bkstore"]


def _help(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    out, err = capsys.readouterr()

    assert (0, "") == (stopped.value.code, err)
    return out


@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_names_every_command_in_its_group(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--help` has each command once, below the title of its group, with its summary."""
    monkeypatch.setenv("COLUMNS", columns)
    shown: dict[str, dict[str, str]] = {}
    for line in _help(capsys).splitlines():
        if title := re.fullmatch(r"(\S.*):", line):
            shown[title[1]] = group = {}
        elif command := re.fullmatch(r"  ([\w-]+)  +(.*)", line):
            group[command[1]] = command[2]
            last = command[1]
        elif continued := re.fullmatch(r" {10,}(.*)", line):
            group[last] += " " + continued[1]
    options = shown.pop("options")

    assert [] == [name for name in options if name in COMMANDS]
    assert {
        title: {name: command.summary for name, command in group.items()}
        for title, group in COMMAND_GROUPS.items()
    } == shown
    assert list(COMMAND_GROUPS) == list(shown)


def test_groups_are_of_a_size_to_read() -> None:
    """No command is in two groups, none is outside, and no group is a list of all."""
    names = [name for group in COMMAND_GROUPS.values() for name in group]

    assert sorted(COMMANDS) == sorted(set(names)) == sorted(names)
    assert 12 >= max(map(len, COMMAND_GROUPS.values()))
    assert {name.split()[1] for name in WITH_EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_help_ends_with_an_example_that_parses(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The help of each command and subcommand ends with examples of it, which its parser takes;
    they fit a terminal of 80 columns."""
    _, _, ending = _help(capsys, *name.split()[1:]).rpartition("\n\n")
    title, *lines = ending.splitlines()
    examples = [line.removeprefix("  ") for line in lines]

    assert title == ("example:" if len(lines) == 1 else "examples:")
    assert examples
    for example in examples:
        assert example.startswith(f"{name} ") or (example == name == "bkstore demo")
        assert 76 >= len(example)
        args = ROOT_PARSER.parse_args(shlex.split(example.partition(" > ")[0])[1:])
        assert args.run.__module__ == f"bkstore.cli.{COMMANDS[name.split()[1]].module}"


def test_a_parent_has_an_example_of_each_subcommand() -> None:
    """The examples of `ensemble` and its like are those of its subcommands, in their order."""
    parents = {name: parser for name, parser in PARSERS.items() if parser._subparsers}
    del parents["bkstore"]

    assert {"bkstore ensemble", "bkstore metadata", "bkstore streams"} <= set(parents)
    for name, parser in parents.items():
        below = [each for each in PARSERS if each.startswith(f"{name} ")]
        assert list(parser.examples) == [line for each in below for line in PARSERS[each].examples]
