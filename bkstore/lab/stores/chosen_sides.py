"""Sides (implementations that are compared) of the user's own: an index class by its name, RocksDB
with other options."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rocksdict import Options

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.index.api import EntryIndex
from bkstore.lab.stores.index_sides import IndexSide, rocksdb_opener
from bkstore.lab.stores.tuned_rocks import Change, compression, table_format

ENTRY_POINTS = "bkstore.index"
"""The group of entry points by which an installed package names its index classes."""

_TABLE_OPTIONS = ("block_size", "bloom_bits")


Side = TypeVar("Side")


class ChosenRocks(NamedTuple):
    """RocksDB with other options than a bookie's."""

    label: str
    changes: tuple[Change, ...]


def add_side_options(parser: ArgumentParser) -> None:
    """Add --side, --rocks and --only to an experiment whose sides are indexes."""
    parser.add_argument(
        "--side",
        metavar="MODULE:CLASS",
        action="append",
        default=[],
        type=parse_index_class,
        help=f"an index class of yours as one more side, or an entry point of {ENTRY_POINTS}",
    )
    add_rocks_options(parser)


def add_rocks_options(parser: ArgumentParser) -> None:
    """Add --rocks and --only to an experiment whose sides are RocksDB databases."""
    add_rocks_option(parser)
    parser.add_argument(
        "--only", metavar="SIDE", nargs="+", help="measure only these sides, by their names"
    )


def add_rocks_option(parser: ArgumentParser) -> None:
    """Add the option --rocks, which names RocksDB's options for one more compared store."""
    parser.add_argument(
        "--rocks",
        metavar="OPTION=VALUE[,...]",
        action="append",
        default=[],
        type=_parse_rocks_options,
        help="RocksDB with these options as one more side: block_size, bloom_bits, compression, "
        "or any that rocksdict's Options can set",
    )


def own_indexes(options: Namespace) -> dict[str, IndexSide]:
    """Return the indexes of --side, by their names."""
    return dict(getattr(options, "side", []))


def own_rocks(options: Namespace) -> dict[str, tuple[Change, ...]]:
    """Return the changes of options of each --rocks, by their names."""
    return dict(getattr(options, "rocks", []))


def own_rocks_indexes(options: Namespace) -> dict[str, IndexSide]:
    """Return an index with the options of each --rocks, by their names."""
    return {
        label: IndexSide(rocksdb_opener(*changes)) for label, changes in own_rocks(options).items()
    }


def choose_sides(options: Namespace, sides: Mapping[str, IndexSide]) -> dict[str, IndexSide]:
    """Return the sides to measure: those of the experiment and the user's, or those of --only.
    Raises `InvalidArgument` for a name of --only that there is not."""
    return only_sides(options, {**sides, **own_indexes(options), **own_rocks_indexes(options)})


def only_sides(options: Namespace, sides: Mapping[str, Side]) -> dict[str, Side]:
    """Return those of the compared implementations ("sides") that --only names, or all without it.
    Raises `InvalidArgument` for an unknown name."""
    only = getattr(options, "only", None)
    if only is None:
        return dict(sides)
    unknown = [label for label in only if label not in sides]
    if unknown:
        raise InvalidArgument(f"--only: no side {unknown[0]!r}; there are {', '.join(sides)}")
    return {label: sides[label] for label in only}


def parse_index_class(text: str) -> tuple[str, IndexSide]:
    """Return a user's index class for the comparison, with the name of the class or entry point;
    for argparse, so errors are `ArgumentTypeError`. The class is not called, only its signature
    checked."""
    try:
        index_class = _load_index_class(text)
        inspect.signature(index_class).bind(Path(), writable=True)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentTypeError(f"{text}: {error}") from None
    except TypeError as error:
        raise ArgumentTypeError(f"{text}: called with (path, writable=True): {error}") from None

    def open_index(directory: Path, writable: bool) -> EntryIndex:
        """Open an index of the class; raises `BkstoreError` if it is not an `EntryIndex`."""
        index = index_class(directory / "index", writable=writable)
        if not isinstance(index, EntryIndex):
            raise BkstoreError(f"{text} makes a {type(index).__name__}, not an EntryIndex")
        return index

    class_name = text.rpartition(":")[2]
    return class_name, IndexSide(open_index, file_endings=("",))  # all its files count


def _load_index_class(text: str) -> Any:
    """Return the class that a text such as MODULE:CLASS names, or an entry point's name. Modules of
    the working directory can be imported. Raises `ValueError` if there is no such entry point."""
    module, separator, attribute = text.partition(":")
    if separator:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return getattr(importlib.import_module(module), attribute)
    matches = entry_points(group=ENTRY_POINTS, name=text)
    if not matches:
        known = ", ".join(sorted(entry_points(group=ENTRY_POINTS).names)) or "none"
        raise ValueError(f"not MODULE:CLASS, and no entry point of {ENTRY_POINTS} ({known})")
    return next(iter(matches)).load()


def _parse_rocks_options(text: str) -> ChosenRocks:
    """Return the named changes of RocksDB's options that a text such as ``block_size=16384`` asks
    for; for argparse."""
    values: dict[str, str] = {}
    for item in text.split(","):
        option, separator, value = item.partition("=")
        if not (option and separator and value):
            raise ArgumentTypeError(f"{item!r} is not OPTION=VALUE")
        values[option] = value
    try:
        changes = [_change(option, value) for option, value in values.items()]
        table_values = {key: int(values[key]) for key in _TABLE_OPTIONS if key in values}
        for change in changes:
            change(Options())  # an option or value that RocksDB does not have is refused here
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"{text}: {error}") from None
    if table_values:
        changes.append(table_format(**table_values))
    return ChosenRocks(f"rocksdb {text.replace(',', ' ')}", tuple(changes))


def _change(option: str, value: str) -> Change:
    """Return a function that sets one option. For an option of table files it does nothing: RocksDB
    takes all of these in one call, which `_parse_rocks_options` adds."""
    if option in _TABLE_OPTIONS:
        return lambda _: None
    if option == "compression":
        return compression(value)
    setter = getattr(Options, f"set_{option}", None)
    if setter is None:
        raise ValueError(f"RocksDB's Options have no set_{option}")
    boolean = {"true": True, "false": False}.get(value)
    parsed = boolean if boolean is not None else (float(value) if "." in value else int(value))
    return lambda options: setter(options, parsed)
