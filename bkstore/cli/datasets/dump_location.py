"""The argument DUMP: a path, or a URI of a dump on a remote file system."""

from __future__ import annotations

import argparse
from pathlib import Path

from bkstore.errors import BkstoreError

DUMP_HELP = "a dump by `bkstore dump`: a path, or a URI such as s3://bucket/dump"


def parse_dump_location(text: str) -> str | Path:
    """Return the path or remote URI of a dump, for use as argparse's `type`; raises
    `ArgumentTypeError` for a ``file:`` URI without a path.

    >>> parse_dump_location("s3://bucket/dump"), str(parse_dump_location("file:///data/dump"))
    ('s3://bucket/dump', '/data/dump')
    """
    from bkstore.offline.reading.file_locations import is_remote, local_path  # loads numpy

    try:
        return text if is_remote(text) else Path(local_path(text))
    except BkstoreError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def last_path_part(location: str | Path) -> str:
    """Return the last part of a path or URI, without its query.

    >>> last_path_part("s3://bucket/today?region=x")
    'today'
    """
    return Path(location.partition("?")[0] if isinstance(location, str) else location).name
