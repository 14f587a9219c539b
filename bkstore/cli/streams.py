"""bkstore streams: the objects that hold a stream's offsets, and the cost of finding them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.errors import InvalidArgument
from bkstore.files.opening import read_file
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.syntax.json_text import parse_json
from bkstore.tables import LOOKUP_OBJECTS, LOOKUPS, Table

if TYPE_CHECKING:
    from bkstore.streams.image.stream_image import StreamImage
    from bkstore.streams.lookup.answer_chain import AnswerObject
    from bkstore.streams.lookup.result import LookupResult
    from bkstore.streams.lookup.stream_lookup import StreamLookup

_STRATEGIES = ("load-all", "sparse-index", "partial", "preload", "index", "bloom")
"""A copy of the names in `bkstore.streams`, which `--help` must not load; a test compares them."""

_COST_COLUMNS = LOOKUPS.names[LOOKUPS.names.index("loads") :]
_DEFAULT_QUERIES = 100
_MAX_IMAGE_BYTES = 1 << 30


def add_arguments(parser: Parser) -> None:
    """Declare both subcommands and their arguments."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="streams_command")
    what = "the objects that hold a range of a stream; the cost goes to stderr"
    lookup = commands.add_parser("lookup", help=what, description=what)
    _add_image(lookup)
    add = lookup.add_argument
    add("--stream", metavar="S", type=int, required=True, help="stream id")
    add("--start", metavar="A", type=int, required=True, help="first offset")
    add("--end", metavar="B", type=int, default=-1, help="offset after the last; -1: no end")
    add("--limit", metavar="N", type=int, default=10, help="at most (10)")
    add("--strategy", choices=_STRATEGIES, default="bloom", help="how to search (bloom)")
    what = "loads and waves of every strategy; exit code 1 if answers differ or are not as expected"
    compare = commands.add_parser("compare", help=what, description=what)
    _add_image(compare)
    add = compare.add_argument
    add("--strategy", choices=_STRATEGIES, action="append", help="only this one; may be repeated")
    add(
        "--queries",
        metavar="N",
        type=int,
        help=f"number of random queries (those of the file, else {_DEFAULT_QUERIES})",
    )
    add("--seed", type=int, default=0, help="seed of the random ones (0)")
    add("--totals", action="store_true", help="print only the totals")
    for command, schema in ((lookup, LOOKUP_OBJECTS), (compare, LOOKUPS)):
        _add_lookup_options(command)
        add_output(command, schema)


def _add_image(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("image", metavar="IMAGE", type=Path, help='JSON: an image, or several under "worlds"')
    add("--world", metavar="NAME", help="the image to use, if there are several")


def _add_lookup_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a lookup, which searches a stream's offsets in objects. It loads objects
    in waves, several at the same time; a wave that does not find the offset is a miss."""
    parser.add_argument(
        "--batch",
        metavar="N",
        type=int,
        default=5,
        help="maximum number of objects loaded together, in one wave (5)",
    )
    parser.add_argument(
        "--growth",
        choices=("fixed", "growing", "doubling"),
        default="fixed",
        help="of the batch: none, one more after every five waves, or twice after a miss (fixed)",
    )
    parser.add_argument(
        "--preload",
        choices=("miss", "eager"),
        default="miss",
        help="load distant objects after a miss, or with the first waves (miss)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand that was named."""
    if args.output is not None:
        refuse_inputs(args.output, [args.image])
    command = _run_lookup if args.streams_command == "lookup" else _run_compare
    return command(args)


class _World(NamedTuple):
    """An image of streams and objects, and queries of it with their expected answers, if any."""

    name: str | None
    image: StreamImage
    queries: list[dict[str, Any]] | None


def _read_worlds(path: Path, name: str | None) -> list[_World]:
    """Return the worlds in a file (images of streams, with queries), only the one of `name` if it
    is given. A file without "worlds" is one. Raises `InvalidArgument` if there is none."""
    document = parse_json(read_file(path, _MAX_IMAGE_BYTES, text=True), path)
    world_list = document.get("worlds") if isinstance(document, dict) else None
    worlds: list[Any] = world_list if isinstance(world_list, list) else [document]
    names = [world.get("name") if isinstance(world, dict) else None for world in worlds]
    if name is not None and name not in names:
        raise InvalidArgument(f"{path}: no world {name!r}, known are: {', '.join(map(str, names))}")
    selected = [world for world, world_name in zip(worlds, names) if name in (None, world_name)]
    if not selected:
        raise InvalidArgument(f"{path}: has no world")
    try:
        return [_parse_world(world) for world in selected]
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _parse_world(document: Any) -> _World:
    """Return the image and queries in a JSON object; raises `InvalidArgument` for a bad query."""
    from bkstore.streams.image.stream_image import StreamImage

    image = StreamImage.from_json(document)
    queries = document.get("queries")
    for index, query in enumerate(queries or ()):
        numbers = query.get("q") if isinstance(query, dict) else None
        if not isinstance(numbers, list) or [int] * 4 != list(map(type, numbers)):
            raise InvalidArgument(f"queries[{index}]: q must be [stream, start, end, limit]")
    return _World(document.get("name"), image, queries)


def _open_lookup(args: argparse.Namespace, image: StreamImage, strategy: Any) -> StreamLookup:
    from bkstore.streams.lookup.object_reader import ImageReader
    from bkstore.streams.lookup.options import LookupOptions
    from bkstore.streams.lookup.stream_lookup import StreamLookup

    options = LookupOptions(batch=args.batch, growth=args.growth, preload=args.preload)
    return StreamLookup(image, ImageReader(image), strategy, options=options)


def _run_lookup(args: argparse.Namespace) -> int:
    """Print a row for each object of the answer in one world (image), and a summary to stderr."""
    worlds = _read_worlds(args.image, args.world)
    if len(worlds) != 1:
        names = ", ".join(str(world.name) for world in worlds)
        raise InvalidArgument(f"{args.image}: choose one by --world: {names}")
    with _open_lookup(args, worlds[0].image, args.strategy) as lookup:
        result = lookup.get_objects(args.stream, args.start, args.end, args.limit)
    if result.status == "invalid":
        raise InvalidArgument(_why_invalid(worlds[0].image, args))
    write_output(args, LOOKUP_OBJECTS, [Table.from_rows(LOOKUP_OBJECTS, result.objects)])
    print_stderr(_describe_result(result))
    return 0


def _why_invalid(image: StreamImage, args: argparse.Namespace) -> str:
    """Return why a lookup with these options has the status "invalid"."""
    stream = image.streams.get(args.stream)
    if stream is None:
        return f"{args.image}: no stream {args.stream}"
    if args.start < stream.start_offset:
        return f"--start {args.start}: stream {args.stream} begins at {stream.start_offset}"
    return f"--start {args.start} --end {args.end} --limit {args.limit} is not a valid range"


def _describe_result(result: LookupResult) -> str:
    """Return a line on the answer and its cost: loads of objects, in waves that follow each other,
    with the size of each wave."""
    stats = result.stats
    covered = "" if result.covered_to is None else f", covered to {result.covered_to}"
    trace = "".join(f" {wave}" for wave in stats.trace)
    return (
        f"{result.kind}: {format_count(len(result.objects), 'object')}{covered}; "
        f"{format_count(stats.loads, 'load')} in {format_count(stats.waves, 'wave')}{trace}; "
        f"{stats.filter_refusals} refused by filters"
    )


def _run_compare(args: argparse.Namespace) -> int:
    """Print a row for each lookup and strategy, and their sums; return 1 if answers are wrong."""
    worlds = _read_worlds(args.image, args.world)
    wrong_answers: list[str] = []
    tables = (_compare_strategies(args, world, wrong_answers) for world in worlds)
    write_output(args, LOOKUPS, tables)
    for line in wrong_answers:
        print_stderr(line)
    return 1 if wrong_answers else 0


def _compare_strategies(args: argparse.Namespace, world: _World, wrong_answers: list[str]) -> Table:
    """Return a row for each query of an image by each strategy, and their sums. A strategy keeps
    its index and filters over all queries. Texts on unexpected answers are added to
    `wrong_answers`."""
    from bkstore.testing.stream_worlds import random_queries

    queries = world.queries
    if args.queries is not None or queries is None:
        count = _DEFAULT_QUERIES if args.queries is None else args.queries
        queries = [{"q": list(query)} for query in random_queries(world.image, count, args.seed)]
    # None for a query without an expected answer, until the first strategy has answered it.
    expected_answers = [_expected_answer(query) for query in queries]
    table_rows: list[tuple[Any, ...]] = []
    for strategy in args.strategy or _STRATEGIES:
        rows = []
        with _open_lookup(args, world.image, strategy) as lookup:
            for index, query in enumerate(queries):
                result = lookup.get_objects(*query["q"])
                answer = result.status, result.objects
                expected = expected_answers[index]
                agrees = None if expected is None else expected == answer
                if expected is None:
                    expected_answers[index] = answer
                elif not agrees:
                    wrong_answers.append(
                        f"{world.name}: {strategy}: query {index} {query['q']}: "
                        f"{_format_answer(answer)}, not {_format_answer(expected)}"
                    )
                rows.append(_lookup_row(world.name, strategy, index, query["q"], result, agrees))
        table_rows += [] if args.totals else rows
        table_rows.append(_sum_row(world.name, strategy, rows))
    return Table.from_rows(LOOKUPS, table_rows)


_Answer: TypeAlias = "tuple[Any, list[AnswerObject]]"


def _expected_answer(query: Mapping[str, Any]) -> _Answer | None:
    """Return (status, objects) that a query of the file must have, None if the file has none."""
    from bkstore.streams.lookup.answer_chain import AnswerObject

    if "objects" not in query:
        return None
    try:
        objects = [AnswerObject(*fields) for fields in query["objects"]]
    except TypeError:
        raise InvalidArgument(f"query {query['q']}: objects must be lists of four") from None
    return query.get("status", "ok"), objects


def _lookup_row(
    world: str | None,
    strategy: str,
    query_index: int,
    query: list[int],
    result: LookupResult,
    agrees: bool | None,
) -> tuple[Any, ...]:
    """Return the row of one lookup; `query` is [stream, start, end, limit]."""
    costs = (round(getattr(result.stats, name), 6) for name in _COST_COLUMNS)
    answer = _format_answer((result.status, result.objects))
    return (world, strategy, query_index, *query, answer, result.covered_to, agrees, *costs)


def _sum_row(world: str | None, strategy: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the row of sums; `agrees` is null unless every answer could be compared."""
    columns = dict(zip(LOOKUPS.names, zip(*rows)))
    agreements = columns.get("agrees", ())
    sums: dict[str, Any] = {"world": world, "strategy": strategy}
    sums["agrees"] = None if None in agreements or not agreements else all(agreements)
    sums |= {name: round(sum(columns.get(name, ())), 6) for name in _COST_COLUMNS}
    return tuple(sums.get(name) for name in LOOKUPS.names)  # null in the columns of a query


def _format_answer(answer: _Answer) -> str:
    """Return an answer as text: its status if that is not "ok", else object ids."""
    status, objects = answer
    if status != "ok":
        return str(status)
    # "so" marks a stream object, with one stream; the others are stream set objects.
    names = (f"{'so' if item.kind == 'SO' else ''}{item.object_id}" for item in objects)
    return " ".join(names) or "none"
