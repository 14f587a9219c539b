"""bkstore report: the report page on bookies or on a dump, in one step."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.datasets.bookie_sources import bookie_sources, split_name
from bkstore.cli.datasets.dump_location import last_path_part, parse_dump_location
from bkstore.cli.owners.owner_options import refuse_owner_filters
from bkstore.cli.terminal.metadata_options import METADATA_HELP, parse_metadata_location
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import (
    add_opening_options,
    refuse_output_in,
    report_findings,
)
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count, join_words
from bkstore.errors import InvalidArgument
from bkstore.files.scratch import scratch_directory
from bkstore.files.user_outputs import check_output

if TYPE_CHECKING:
    from bkstore.offline.analyses import Inputs
    from bkstore.offline.dump import DumpProgress

_MAX_TITLE_BOOKIES = 3
_ABOUT_ALL_LEDGERS = (
    "the page is about all ledgers; for some topics: bkstore analyze DUMP --metadata METADATA "
    "--topic PATTERN"
)
_DIRECTORY_OPTIONS = ("live", "layout", "root", "jobs")


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "directories",
        metavar="[NAME=]DIR",
        nargs="+",
        help="bookie directories, one per bookie, optionally with another id; or one dump, a path "
        "or a URI",
    )
    add("-o", "--output", metavar="FILE", type=Path, required=True, help="the page, an HTML file")
    add(
        "--metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help=f"ledger metadata, to find lost entries: {METADATA_HELP}",
    )
    add(
        "--other",
        metavar="DUMP2",
        type=parse_dump_location,
        help="a later dump to compare with",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="parallel processes that read directories (default: one per CPU, fewer for few rows)",
    )
    add_opening_options(parser)
    refuse_owner_filters(parser, _ABOUT_ALL_LEDGERS)


def run(args: argparse.Namespace) -> int:
    """Write the page and print its headline; the exit code is that of `bkstore analyze`."""
    from bkstore.cli.datasets.analysis_engines import (
        ENGINES,
        choose_engine,
        run_each,
        start_engine,
    )
    from bkstore.cli.datasets.analysis_verdict import judge_results, print_unread_bookies
    from bkstore.offline.analyses import ANALYSES

    engine_name = choose_engine("report", "auto", report=True)
    given_dump = _given_dump(args)
    with _open_inputs(args, given_dump) as inputs:
        possible = [each for each in ANALYSES.values() if each.missing_input(inputs) is None]
        with start_engine("bkstore report", engine_name) as engine:
            tables = run_each(engine, ((analysis, inputs) for analysis in possible))
            verdict = judge_results(tables, inputs, engine)
        tables["findings"] = inputs.dump.read("findings")
        source = _describe_source(inputs, ENGINES[engine_name], is_dump=given_dump is not None)
        _write_page(args.output, tables, _title(inputs, given_dump), source)
        if given_dump is not None:  # else the findings of reading the directories name them
            print_unread_bookies(inputs)
        return verdict.report()


@contextmanager
def _open_inputs(args: argparse.Namespace, given_dump: str | Path | None) -> Iterator[Inputs]:
    """Yield the inputs of the analyses: the given dump, or one of the directories, which is removed
    afterwards. Before long work, raises for an output or metadata that cannot be used."""
    from bkstore.offline.analyses import open_dump, open_inputs, read_metadata

    check_output(args.output)
    metadata = None if args.metadata is None else read_metadata(args.metadata)
    other = None if args.other is None else open_dump(args.other)
    if given_dump is not None:
        yield open_inputs(given_dump, metadata, other)
        return
    refuse_output_in(args, [path for _, path in map(split_name, args.directories)])
    with scratch_directory("report") as scratch:
        _dump_directories(args, scratch / "dump")
        yield open_inputs(scratch / "dump", metadata, other)


def _given_dump(args: argparse.Namespace) -> str | Path | None:
    """Return the dump that was given instead of directories, None if there is none. Raises
    `InvalidArgument` for a dump among others, or with options that concern directories."""
    from bkstore.offline.diff import is_dump
    from bkstore.offline.reading.file_locations import is_remote

    dumps = [word for word in args.directories if is_remote(word) or is_dump(word)]
    if not dumps:
        return None
    if len(args.directories) > 1:
        raise InvalidArgument(f"{dumps[0]}: is a dump; give it alone, or directories only")
    for option in _DIRECTORY_OPTIONS:
        if getattr(args, option):
            raise InvalidArgument(f"{dumps[0]} is a dump, but --{option} is for directories")
    return parse_dump_location(dumps[0])


def _dump_directories(args: argparse.Namespace, out: Path) -> None:
    """Dump the directories to `out`, and print the findings."""
    from bkstore.offline.dump import dump

    with work_progress("row") as show_progress:

        def progress(state: DumpProgress) -> None:
            if show_progress is not None:
                show_progress(f"{state.bookie}", state.done, state.total, state.rows)

        result = dump(bookie_sources(args), out, progress, jobs=args.jobs, resume=False)
    report_findings(result.findings)


def _describe_source(inputs: Inputs, engine: str, *, is_dump: bool) -> dict[str, Any]:
    """Return the `source` of `write_report`."""
    source = {
        "manifest": inputs.dump.manifest,
        "directories": not is_dump,
        "metadata": None if inputs.metadata is None else inputs.metadata.path,
        "owners": None if inputs.metadata is None else inputs.metadata.owners(),
        "engine": engine,
    }
    return source if inputs.other is None else {**source, "other": inputs.other.manifest}


def _write_page(path: Path, tables: dict[str, Any], title: str, source: dict[str, Any]) -> None:
    from bkstore.report import describe_headline, write_report

    write_report(path, tables, title=title, source=source)
    print_stderr(describe_headline(tables, source))
    print_stderr(f"report: {path}")


def _title(inputs: Inputs, given_dump: str | Path | None) -> str:
    """Return the page's title: the dump's name, or the bookies, a few of them by their ids."""
    if given_dump is not None:
        return f"Bookies in {last_path_part(given_dump)}"
    bookie_ids = [bookie["id"] for bookie in inputs.dump.manifest["bookies"]]
    if len(bookie_ids) > _MAX_TITLE_BOOKIES:
        return format_count(len(bookie_ids), "bookie")
    return f"{'Bookie' if len(bookie_ids) == 1 else 'Bookies'} {join_words(bookie_ids)}"
