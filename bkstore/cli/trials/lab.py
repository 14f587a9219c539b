"""bkstore lab: experiments with storage layouts: tables, pictures, findings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bkstore.cli.terminal.standard_streams import print_text
from bkstore.lab.catalog import QUESTIONS, load_experiment

if TYPE_CHECKING:
    from bkstore.cli.terminal.parser import Parser


class _NamesAndFiles(tuple[str, ...]):
    """The names that help and completion offer; the name of a file is accepted too."""

    def __contains__(self, _: object) -> bool:
        return True


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments; those of an experiment are parsed by the experiment's."""
    parser.add_argument(
        "experiment",
        metavar="NAME",
        nargs="?",
        choices=_NamesAndFiles(QUESTIONS),
        help="an experiment, or a file with one of yours (default: list the experiments)",
    )
    parser.add_argument(
        "arguments",
        metavar="...",
        nargs=argparse.REMAINDER,
        help="options of the experiment: bkstore lab NAME --help lists them",
    )


def run(args: argparse.Namespace) -> int:
    """List the experiments, or run one; return its exit code."""
    if args.experiment is None:
        name_width = max(map(len, QUESTIONS))
        lines = [f"{name:{name_width}}  {question}" for name, question in QUESTIONS.items()]
        print_text("\n".join([*lines, "", "bkstore lab NAME --help lists its options.", ""]))
        return 0
    experiment = load_experiment(args.experiment)
    from bkstore.lab.command import main

    return main(experiment, args.arguments)
