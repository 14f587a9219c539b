"""The options of ``spark.read.format("bookie")``, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bkstore.arguments import any_of, check_fields, instance, truth, whole
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.json_text import parse_json
from bkstore.offline.dump import TABLES, DumpSource
from bkstore.storage.directories.layout import Layout
from bkstore.tables import Schema

__all__ = ["PARTITION_ROWS", "SourceOptions", "parse_options"]

PARTITION_ROWS = 1 << 20
"""Rows that a partition aims at; the cost of a task is that of some 20,000 rows."""

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
    """Return the options; names come in lower case. `paths`: there must be a bookie.

    Raises `InvalidArgument` for an option or a value that is none.
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
    sources = (DumpSource(path, name, *how) for name, path in map(_named, words))
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


def _named(word: str) -> tuple[str | None, str]:
    """Return (name, directory) of DIR or NAME=DIR; a directory that is there is taken as it is."""
    name, equals, path = word.partition("=")
    if not equals or not name or not path or os.path.exists(word):
        return None, word
    return name, path
