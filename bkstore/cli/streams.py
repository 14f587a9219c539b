"""bkstore streams: which objects hold a stream's offsets, and what finding them costs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.counts import counted
from bkstore.errors import InvalidArgument
from bkstore.files.opening import read_whole
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.syntax.json_text import parse_json
from bkstore.tables import ANSWERS, LOOKUPS, Table

if TYPE_CHECKING:
    from bkstore.streams.image.stream_image import StreamImage
    from bkstore.streams.lookup.answer_chain import AnswerObject
    from bkstore.streams.lookup.result import LookupResult
    from bkstore.streams.lookup.stream_lookup import StreamLookup

_STRATEGIES = ("load-all", "sparse-index", "partial", "preload", "index", "bloom")
"""As `bkstore.streams` has them (a test compares), which need not be loaded for `--help`."""

_SUMS = LOOKUPS.names[LOOKUPS.names.index("loads") :]
_RANDOM = 100
_LIMIT = 1 << 30


def add_arguments(parser: Parser) -> None:
    """Declare both commands and their arguments."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="streams_command")
    what = "the objects that hold a range of a stream; what they cost goes to stderr"
    lookup = commands.add_parser("lookup", help=what, description=what)
    _add_image(lookup)
    lookup.add_argument("--stream", metavar="S", type=int, required=True, help="stream id")
    lookup.add_argument("--start", metavar="A", type=int, required=True, help="first offset")
    lookup.add_argument(
        "--end", metavar="B", type=int, default=-1, help="offset behind the last; -1: no end"
    )
    lookup.add_argument("--limit", metavar="N", type=int, default=10, help="at most (10)")
    lookup.add_argument(
        "--strategy", choices=_STRATEGIES, default="bloom", help="how to search (bloom)"
    )
    what = "loads and waves of every strategy; 1 if answers are not the expected or differ"
    compare = commands.add_parser("compare", help=what, description=what)
    _add_image(compare)
    compare.add_argument(
        "--strategy", choices=_STRATEGIES, action="append", help="only this one; repeatable"
    )
    compare.add_argument(
        "--queries", metavar="N", type=int, help=f"random ones; those of the file, else {_RANDOM}"
    )
    compare.add_argument("--seed", type=int, default=0, help="of the random ones (0)")
    compare.add_argument("--totals", action="store_true", help="only the rows of sums")
    for command, schema in ((lookup, ANSWERS), (compare, LOOKUPS)):
        _add_options(command)
        add_output(command, schema)


def _add_image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image", metavar="IMAGE", type=Path, help='JSON: a world, or several under "worlds"'
    )
    parser.add_argument("--world", metavar="NAME", help="which of several")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", metavar="N", type=int, default=5, help="loads of a wave (5)")
    parser.add_argument(
        "--growth", choices=("fixed", "growing", "doubling"), default="fixed", help="of the batch"
    )
    parser.add_argument(
        "--preload", choices=("miss", "eager"), default="miss", help="when far-off objects load"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command that was named."""
    if args.output is not None:
        refuse_inputs(args.output, [args.image])
    command = _lookup if args.streams_command == "lookup" else _compare
    return command(args)


# -- what is in the file


class _World(NamedTuple):
    name: str | None
    image: StreamImage
    queries: list[dict[str, Any]] | None


def _worlds(path: Path, name: str | None) -> list[_World]:
    """Return the worlds of a file, only that of the name if one is given."""
    document = parse_json(read_whole(path, _LIMIT, text=True), path)
    listed = document.get("worlds") if isinstance(document, dict) else None
    worlds: list[Any] = listed if isinstance(listed, list) else [document]
    names = [one.get("name") if isinstance(one, dict) else None for one in worlds]
    if name is not None and name not in names:
        raise InvalidArgument(f"{path}: no world {name!r}: {', '.join(map(str, names))}")
    chosen = [one for one, its in zip(worlds, names) if name in (None, its)]
    if not chosen:
        raise InvalidArgument(f"{path}: has no world")
    try:
        return [_world(one) for one in chosen]
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _world(document: Any) -> _World:
    from bkstore.streams.image.stream_image import StreamImage

    image = StreamImage.from_json(document)
    queries = document.get("queries")
    for at, query in enumerate(queries or ()):
        asked = query.get("q") if isinstance(query, dict) else None
        if not isinstance(asked, list) or [int] * 4 != [type(number) for number in asked]:
            raise InvalidArgument(f"queries[{at}]: q must be [stream, start, end, limit]")
    return _World(document.get("name"), image, queries)


def _open(args: argparse.Namespace, image: StreamImage, strategy: Any) -> StreamLookup:
    from bkstore.streams.lookup.object_reader import ImageReader
    from bkstore.streams.lookup.options import LookupOptions
    from bkstore.streams.lookup.stream_lookup import StreamLookup

    options = LookupOptions(batch=args.batch, growth=args.growth, preload=args.preload)
    return StreamLookup(image, ImageReader(image), strategy, options=options)


# -- one look-up


def _lookup(args: argparse.Namespace) -> int:
    """Print a row for each object of the answer, and one line about it to stderr."""
    worlds = _worlds(args.image, args.world)
    if len(worlds) != 1:
        names = ", ".join(str(world.name) for world in worlds)
        raise InvalidArgument(f"{args.image}: --world must say which of {names}")
    with _open(args, worlds[0].image, args.strategy) as lookup:
        result = lookup.get_objects(args.stream, args.start, args.end, args.limit)
    if result.status == "invalid":
        raise InvalidArgument(_why_invalid(worlds[0].image, args))
    write_output(args, ANSWERS, [Table.from_rows(ANSWERS, result.objects)])
    tell(_said(result))
    return 0


def _why_invalid(image: StreamImage, args: argparse.Namespace) -> str:
    stream = image.streams.get(args.stream)
    if stream is None:
        return f"{args.image}: no stream {args.stream}"
    if args.start < stream.start_offset:
        return f"--start {args.start}: stream {args.stream} begins at {stream.start_offset}"
    return f"--start {args.start} --end {args.end} --limit {args.limit} is no range to ask for"


def _said(result: LookupResult) -> str:
    stats = result.stats
    covered = "" if result.covered_to is None else f", covered to {result.covered_to}"
    trace = "".join(f" {wave}" for wave in stats.trace)
    return (
        f"{result.kind}: {counted(len(result.objects), 'object')}{covered}; "
        f"{counted(stats.loads, 'load')} in {counted(stats.waves, 'wave')}{trace}; "
        f"{stats.filter_refusals} refused by filters"
    )


# -- all strategies


def _compare(args: argparse.Namespace) -> int:
    """Print a row for each look-up and strategy, and their sums; 1 if answers are wrong."""
    worlds = _worlds(args.image, args.world)
    wrong: list[str] = []
    tables = (_compared(args, world, wrong) for world in worlds)
    write_output(args, LOOKUPS, tables)
    for line in wrong:
        tell(line)
    return 1 if wrong else 0


def _compared(args: argparse.Namespace, world: _World, wrong: list[str]) -> Table:
    """Return the table of a world; index and filters of a strategy are kept over all queries."""
    from bkstore.testing.stream_worlds import random_queries

    queries = world.queries
    if args.queries is not None or queries is None:
        count = _RANDOM if args.queries is None else args.queries
        queries = [{"q": list(q)} for q in random_queries(world.image, count, args.seed)]
    before: list[_Answer] = [_expected(query) for query in queries]
    shown: list[tuple[Any, ...]] = []
    for strategy in args.strategy or _STRATEGIES:
        rows = []
        with _open(args, world.image, strategy) as lookup:
            for at, query in enumerate(queries):
                result = lookup.get_objects(*query["q"])
                found = result.status, result.objects
                agrees = None if before[at] is None else before[at] == found
                if agrees is False:
                    wrong.append(
                        f"{world.name}: {strategy}: query {at} {query['q']}: {_text(found)}, "
                        f"not {_text(before[at])}"
                    )
                before[at] = before[at] or found
                rows.append(_row(world.name, strategy, at, query["q"], result, agrees))
        shown += [] if args.totals else rows
        shown.append(_sums(world.name, strategy, rows))
    return Table.from_rows(LOOKUPS, shown)


_Answer: TypeAlias = "tuple[Any, list[AnswerObject]] | None"


def _expected(query: Mapping[str, Any]) -> _Answer:
    """Return the answer that the file has, None if it has none."""
    from bkstore.streams.lookup.answer_chain import AnswerObject

    if "objects" not in query:
        return None
    try:
        objects = [AnswerObject(*found) for found in query["objects"]]
    except TypeError:
        raise InvalidArgument(f"query {query['q']}: objects must be lists of four") from None
    return query.get("status", "ok"), objects


def _row(
    world: str | None, strategy: str, at: int, asked: list[int], result: LookupResult, agrees: Any
) -> tuple[Any, ...]:
    costs = (round(getattr(result.stats, name), 6) for name in _SUMS)
    answer = _text((result.status, result.objects))
    return (world, strategy, at, *asked, answer, result.covered_to, agrees, *costs)


def _sums(world: str | None, strategy: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    judged = [row[LOOKUPS.names.index("agrees")] for row in rows]
    agrees = None if None in judged or not judged else all(judged)
    first, last = len(LOOKUPS.names) - len(_SUMS), len(LOOKUPS.names)
    costs = (round(sum(row[at] for row in rows), 6) for at in range(first, last))
    return (world, strategy, *[None] * 7, agrees, *costs)


def _text(answer: _Answer) -> str:
    status, objects = answer or ("ok", [])
    if status != "ok":
        return str(status)
    names = (f"so{one.object_id}" if one.kind == "SO" else str(one.object_id) for one in objects)
    return " ".join(names) or "none"
