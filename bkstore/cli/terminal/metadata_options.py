"""The argument METADATA: where ledger metadata are stored, a path or a service URI."""

from __future__ import annotations

import argparse
from pathlib import Path

from bkstore.errors import BkstoreError

METADATA_HELP = (
    "a JSON file, a metadata store's folder, a dump of ZooKeeper, or a service URI such as "
    "zk+hierarchical://host:2181/ledgers"
)


def parse_metadata_location(text: str) -> str | Path:
    """Return a path or service URI, for use as argparse's `type`; raises `ArgumentTypeError`.

    >>> parse_metadata_location("zk://host/ledgers")
    'zk://host/ledgers'
    """
    if "://" not in text and not text.startswith("file:"):
        return Path(text)
    from bkstore.cluster.store.opening import parse_metadata_location  # loads the stores

    try:
        return parse_metadata_location(text)
    except BkstoreError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def local_paths(*locations: str | Path | None) -> list[Path]:
    """Return those locations that are paths; an output must not overwrite them."""
    return [location for location in locations if isinstance(location, Path)]


def canonical_location(location: str | Path) -> str:
    """Return a location in canonical form: a path with links resolved, a service URI unchanged."""
    return str(location.resolve()) if isinstance(location, Path) else location
