"""The options of ``spark.read.format("bookie")``, checked; patterns of paths, expanded.

A pattern is of Hadoop's kind, as with Spark's file sources: ``*``, ``?``, ``[ab]``, ``[a-c]``,
``[^a]`` (or ``[!a]``) and ``{a,b}``. ``*`` stays in its directory, and leaves out hidden names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from typing import cast

from bkstore.arguments import any_of, check_fields, instance, truth, whole
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.json_text import parse_json
from bkstore.offline.dump import TABLES, DumpSource
from bkstore.storage.directories.layout import Layout
from bkstore.tables import Schema

PARTITION_ROWS = 1 << 20
"""Rows that a partition aims at; the cost of a task is that of some 20,000 rows."""

_PATTERN = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")  # those that no others are in

_KNOWN = {"path", "paths", "table", "live", "layout", "root", "length", "damage", "partitionrows"}


@dataclass(frozen=True)
class SourceOptions:
    """What is to be read: the bookies, the table, and how."""

    sources: tuple[DumpSource, ...]
    table: Schema
    length: bool
    skip_damage: bool
    partition_rows: int

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_CHECKS = {
    "sources": any_of(instance(DumpSource)),
    "table": instance(Schema),
    "length": truth,
    "skip_damage": truth,
    "partition_rows": whole(1),
}


def parse_options(options: Mapping[str, str], paths: bool = True) -> SourceOptions:
    """Return the options; names come in lower case. With `paths` there must be a bookie, and
    `sources` are what is there now for each path or pattern; without, they are empty.

    Raises `InvalidArgument` for an option or a value that is none, for a pattern that matches
    nothing, and for NAME=PATTERN that matches several. Cost: a listing of each directory in
    which a pattern is looked for; one that may not be listed has no match.
    """
    odd = sorted(set(options) - _KNOWN)
    if odd:
        raise InvalidArgument(f"unknown option {odd[0]!r}; there are {', '.join(sorted(_KNOWN))}")
    tables = {schema.name: schema for schema in TABLES}
    table = options.get("table", "entries")
    if table not in tables:
        raise InvalidArgument(f"no table {table!r}; there are {', '.join(tables)}")
    words = _words(options)
    if paths and not words:
        raise InvalidArgument("which bookies? give paths to load(), or the option path")
    layout = options.get("layout")
    if layout not in (None, "idx", "rocksdb"):
        raise InvalidArgument(f"unknown layout {layout!r}: 'idx' or 'rocksdb'")
    live = _flag(options, "live")
    root = options.get("root")
    if root == "":
        raise InvalidArgument("option root is a directory, not ''")
    how = (live, cast("Layout | None", layout), root)
    named = (one for word in words for one in _bookies(word)) if paths else ()
    sources = [DumpSource(path, name, *how) for name, path in named]
    damage = options.get("damage", "fail")
    if damage not in ("fail", "skip"):
        raise InvalidArgument(f"option damage is 'fail' or 'skip', not {damage!r}")
    rows = options.get("partitionrows", str(PARTITION_ROWS))
    if not rows.isdecimal() or not int(rows):
        raise InvalidArgument(f"option partitionRows is 1 or more, not {rows!r}")
    length = _flag(options, "length")
    return SourceOptions(tuple(sources), tables[table], length, damage == "skip", int(rows))


def _words(options: Mapping[str, str]) -> list[str]:
    """Return the paths: `load` gives one as `path`, several as a JSON list in `paths`."""
    words = [options["path"]] if options.get("path") else []
    if options.get("paths"):
        try:
            more = parse_json(options["paths"])
        except CorruptionError:
            more = None
        if not isinstance(more, list) or not all(isinstance(word, str) for word in more):
            raise InvalidArgument(f"option paths is a JSON list of texts: {options['paths'][:60]}")
        words += more
    return words


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise InvalidArgument(f"option {name} is true or false, not {value!r}")
    return value == "true"


def _bookies(word: str) -> list[tuple[str | None, str]]:
    """Return (name, path) of each bookie that PATH or NAME=PATH stands for.

    What is there under these very characters is taken as it is, else what matches the pattern.
    """
    for name, path in _readings(word):
        if os.path.lexists(path) or not _PATTERN.search(path):
            return [(name, path)]
        found = _matching(path)
        if name is not None and len(found) > 1:
            raise InvalidArgument(f"{word}: one name for {len(found)} paths that match")
        if found:
            return [(name, one) for one in found]
    raise InvalidArgument(f"{word}: nothing matches this pattern")


def _readings(word: str) -> Iterator[tuple[str | None, str]]:
    """Yield (name, path) as which a word is to be tried, in this order."""
    name, _, path = word.partition("=")
    pattern = _PATTERN.search(word) is not None
    is_named = bool(name and path) and not (pattern and "/" in name)  # a path, with "=" in it
    if pattern or not is_named or os.path.lexists(word):
        yield None, word
    if is_named:
        yield name, path


def _matching(pattern: str) -> list[str]:
    """Return the paths that are there, sorted."""
    try:
        found = {path for one in _without_braces(pattern) for path in glob(one)}
    except ValueError:  # a NUL, or half of a surrogate pair: no path has these
        return []
    return sorted(found)


def _without_braces(pattern: str) -> Iterator[str]:
    """Yield a pattern for each choice from its braces, as Python's `glob` takes it."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern.replace("[^", "[!")
        return
    for word in braces[1].split(","):
        yield from _without_braces(pattern[: braces.start()] + word + pattern[braces.end() :])
