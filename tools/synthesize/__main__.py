"""`python -m tools.synthesize`: write a synthetic cluster."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import BkstoreError
from tools.synthesize.shape import ClusterShape
from tools.synthesize.writing import write_cluster


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.synthesize", description=__doc__)
    parser.add_argument("out", type=Path, help="a new or empty folder")
    for field in dataclasses.fields(ClusterShape):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default),
            default=field.default,
            metavar="N",
            help=f"(default {field.default})",
        )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after an error message on standard error."""
    args = vars(_parser().parse_args(arguments))
    out, jobs = args.pop("out"), args.pop("jobs")
    try:
        numbers = write_cluster(ClusterShape(**args), out, jobs=jobs)
    except BkstoreError as error:
        print_stderr(f"error: {error}")
        return 2
    for name, count in numbers.items():
        print(f"{name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
