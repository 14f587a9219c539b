"""The options of ``spark.read.format("bookie")``: validation, and expansion of path patterns.

Patterns have Hadoop's syntax, as in Spark's file sources: ``*``, ``?``, ``[ab]``, ``[a-c]``,
``[^a]`` (or ``[!a]``) and ``{a,b}``. ``*`` matches no ``/`` and no hidden names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from typing import cast

from bkstore.arguments import boolean, check_fields, instance, integer, sequence_of
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.json_text import parse_json
from bkstore.offline.dump import TABLES, DumpSource
from bkstore.storage.directories.layout import Layout
from bkstore.tables import Schema

PARTITION_ROWS = 1 << 20
"""Default target for the rows of a partition; a task costs as much as some 20,000 rows."""

_PATTERN_CHARACTERS = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")  # innermost braces

_OPTIONS = {"path", "paths", "table", "live", "layout", "root", "length", "damage", "partitionrows"}


@dataclass(frozen=True)
class SourceOptions:
    """The parsed options: the bookies and the table to read, and how to read them."""

    sources: tuple[DumpSource, ...]
    table: Schema
    length: bool
    skip_damage: bool
    partition_rows: int

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_CHECKS = {
    "sources": sequence_of(instance(DumpSource)),
    "table": instance(Schema),
    "length": boolean,
    "skip_damage": boolean,
    "partition_rows": integer(1),
}


def parse_options(options: Mapping[str, str], paths: bool = True) -> SourceOptions:
    """Parse the options, whose names are in lower case.

    With `paths` at least one path is required, and `sources` are the bookies that the paths and
    patterns stand for now; without, `sources` is empty. Raises `InvalidArgument` for an unknown
    option or value, a pattern that matches nothing, and NAME=PATTERN that matches several paths.
    Cost: a listing of each directory that a pattern searches; unlistable ones have no match.
    """
    unknown_options = sorted(set(options) - _OPTIONS)
    if unknown_options:
        raise InvalidArgument(
            f"unknown option {unknown_options[0]!r}; there are {', '.join(sorted(_OPTIONS))}"
        )
    tables = {schema.name: schema for schema in TABLES}
    table_name = options.get("table", "entries")
    if table_name not in tables:
        raise InvalidArgument(f"no table {table_name!r}; there are {', '.join(tables)}")
    # The bookies: paths or patterns, and how each is opened.
    arguments = _path_arguments(options)
    if paths and not arguments:
        raise InvalidArgument("no bookies: give paths to load(), or the option path")
    layout = options.get("layout")
    if layout not in (None, "idx", "rocksdb"):
        raise InvalidArgument(f"unknown layout {layout!r}: 'idx' or 'rocksdb'")
    live = _parse_flag(options, "live")
    root = options.get("root")
    if root == "":
        raise InvalidArgument("option root is a directory, not ''")
    source_options = (live, cast("Layout | None", layout), root)
    expanded = map(_expand_argument, arguments if paths else ())
    bookies = (bookie for argument_bookies in expanded for bookie in argument_bookies)
    sources = [DumpSource(path, name, *source_options) for name, path in bookies]
    # How the tables are read.
    damage = options.get("damage", "fail")
    if damage not in ("fail", "skip"):
        raise InvalidArgument(f"option damage must be 'fail' or 'skip', not {damage!r}")
    partition_rows = options.get("partitionrows", str(PARTITION_ROWS))
    if not partition_rows.isdecimal() or not int(partition_rows):
        raise InvalidArgument(f"option partitionRows must be 1 or more, not {partition_rows!r}")
    length = _parse_flag(options, "length")
    table, skip_damage = tables[table_name], damage == "skip"
    return SourceOptions(tuple(sources), table, length, skip_damage, int(partition_rows))


def _path_arguments(options: Mapping[str, str]) -> list[str]:
    """Return the paths: Spark's `load` passes one as `path`, several as a JSON list in `paths`."""
    arguments = [options["path"]] if options.get("path") else []
    if options.get("paths"):
        try:
            listed_paths = parse_json(options["paths"])
        except CorruptionError:
            listed_paths = None
        is_list = isinstance(listed_paths, list)
        if not is_list or not all(isinstance(path, str) for path in listed_paths):
            text = options["paths"][:60]
            raise InvalidArgument(f"option paths must be a JSON list of strings: {text}")
        arguments += listed_paths
    return arguments


def _parse_flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise InvalidArgument(f"option {name} must be true or false, not {value!r}")
    return value == "true"


def _expand_argument(argument: str) -> list[tuple[str | None, str]]:
    """Return (name, path) of each bookie that PATH or NAME=PATH stands for: the path if it exists
    as written, otherwise the paths that match the pattern."""
    for name, path in _name_path_candidates(argument):
        if os.path.lexists(path) or not _PATTERN_CHARACTERS.search(path):
            return [(name, path)]
        matches = _matching_paths(path)
        if name is not None and len(matches) > 1:
            raise InvalidArgument(f"{argument}: one name for {len(matches)} matching paths")
        if matches:
            return [(name, match) for match in matches]
    raise InvalidArgument(f"{argument}: nothing matches this pattern")


def _name_path_candidates(argument: str) -> Iterator[tuple[str | None, str]]:
    """Yield the possible (name, path) meanings of an argument, in the order to try them."""
    name, _, path = argument.partition("=")
    is_pattern = _PATTERN_CHARACTERS.search(argument) is not None
    # A pattern with "=" behind a slash is a path that contains "=".
    is_named = bool(name and path) and not (is_pattern and "/" in name)
    if is_pattern or not is_named or os.path.lexists(argument):
        yield None, argument
    if is_named:
        yield name, path


def _matching_paths(pattern: str) -> list[str]:
    try:
        matches = {path for glob_pattern in _expand_braces(pattern) for path in glob(glob_pattern)}
    except ValueError:  # a NUL, or half of a surrogate pair, which no path contains
        return []
    return sorted(matches)


def _expand_braces(pattern: str) -> Iterator[str]:
    """Yield a pattern in the syntax of Python's `glob` for each choice from the braces."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern.replace("[^", "[!")
        return
    for choice in braces[1].split(","):
        yield from _expand_braces(pattern[: braces.start()] + choice + pattern[braces.end() :])
