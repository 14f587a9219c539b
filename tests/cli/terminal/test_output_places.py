"""Every argument that names a place is one of two kinds: it is written, or nothing may be there."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.cli.main import make_parser
from bkstore.cli.terminal.parser import OUTPUT_ARGUMENTS, Parser, refuse_outputs_in_inputs
from bkstore.errors import InvalidArgument

_WRITERS = {"serve", "ensemble up", "ensemble fault", "ensemble heal", "ensemble down"} | {
    "metadata delete"
}
"""Commands whose DIR is theirs to write: they name no output."""


def _commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, Parser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                below.declare_once()
                yield from _commands(below, f"{name} {word}".strip())
            return
    assert isinstance(parser, Parser)
    yield name, parser


def _is_place(action: argparse.Action) -> bool:
    """Whether the help calls the argument's value a file, a directory or a place of data."""
    words = str(action.metavar)
    named = ("DIR", "FILE", "OUT", "DST", "SRC", "METADATA", "DUMP", "IMAGE")
    return any(word in words for word in named) or (action.type is Path)


COMMANDS = dict(_commands(make_parser(load_all=True)))
PAIRS = [
    (name, written.dest, read.dest)
    for name, parser in COMMANDS.items()
    for written in filter(_is_place, parser._actions)
    for read in filter(_is_place, parser._actions)
    if written.dest in OUTPUT_ARGUMENTS and read.dest not in OUTPUT_ARGUMENTS
]


def test_the_pairs_are_all() -> None:
    """A command without an output writes to its directory, says so, or reads nothing."""
    with_pairs = {name for name, _, _ in PAIRS}
    places = {n for n, parser in COMMANDS.items() if any(map(_is_place, parser._actions))}

    assert _WRITERS == places - with_pairs


@pytest.mark.parametrize(("name", "written", "read"), PAIRS, ids=str)
def test_no_output_in_an_input(name: str, written: str, read: str, tmp_path: Path) -> None:
    """What is written may not be, or lie in, what is read: by its name, or through a link."""
    source = tmp_path / "in"
    source.mkdir()
    (tmp_path / "link").symlink_to("in")
    parser = COMMANDS[name]
    (action,) = (each for each in parser._actions if each.dest == read)
    named = "=" in str(action.metavar)
    given = [str(source), f"b={source}"] if named else [source]
    many = action.nargs in ("+", "*")

    assert refuse_outputs_in_inputs in parser.checks
    for word in given:
        value = [word] if many else word
        for output in (source, source / "x", tmp_path / "link" / "y"):
            args = argparse.Namespace(**{read: value, written: output})
            with pytest.raises(InvalidArgument, match=r"is also an input|is inside"):
                refuse_outputs_in_inputs(parser, args)
        args = argparse.Namespace(**{read: value, written: tmp_path / "beside"})
        refuse_outputs_in_inputs(parser, args)


def test_a_stream_is_no_input() -> None:
    """A device is written whatever is read, the same one too: a terminal is both."""
    place = Path("/dev/null")
    refuse_outputs_in_inputs(None, argparse.Namespace(password_file=place, output=place))
