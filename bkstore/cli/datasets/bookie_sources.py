"""The arguments [NAME=]DIR: bookie directories to dump, each optionally with an id."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.counts import format_count
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.offline.dump import DumpSource

BOOKIES_HELP = "bookie directories, one per bookie, optionally with another id"


def bookie_sources(
    args: argparse.Namespace, given_ids: Sequence[str] | None = None
) -> list[DumpSource]:
    """Return the bookies of `args.directories`, opened with the opening options.

    Ids are those of NAME=DIR or `given_ids`, one for each; `InvalidArgument` for both, or for
    another number of ids.
    """
    from bkstore.offline.dump import DumpSource

    names_and_paths = list(map(split_name, args.directories))
    own_ids = [bookie_id for bookie_id, _ in names_and_paths]
    bookie_ids: Sequence[str | None] = given_ids or own_ids
    if len(bookie_ids) != len(names_and_paths):
        directories = format_count(len(names_and_paths), "directory", "directories")
        raise InvalidArgument(f"{directories}, {len(bookie_ids)} --bookie-id")
    if given_ids and any(bookie_id is not None for bookie_id in own_ids):
        raise InvalidArgument("ids by both NAME=DIR and --bookie-id: use one of them")
    return [
        DumpSource(path, bookie_id, args.live, args.layout, args.root)
        for bookie_id, (_, path) in zip(bookie_ids, names_and_paths)
    ]


def split_name(word: str) -> tuple[str | None, Path]:
    """Return (name, directory) of NAME=DIR; an existing path is taken whole, without a name.

    >>> split_name("two=/copies/2")
    ('two', PosixPath('/copies/2'))
    """
    name, separator, path = word.partition("=")
    if not separator or not name or not path or os.path.exists(word):
        return None, Path(word)
    return name, Path(path)
