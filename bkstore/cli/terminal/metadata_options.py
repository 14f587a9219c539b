"""METADATA: where ledger metadata are, a path or a service URI."""

from __future__ import annotations

import argparse
from pathlib import Path

from bkstore.errors import BkstoreError

METADATA_HELP = (
    "a JSON file, a metadata store's folder, a dump of ZooKeeper, or a service URI such as "
    "zk+hierarchical://host:2181/ledgers"
)


def metadata_word(text: str) -> str | Path:
    """Return the place that an argument names; the parser's error for a wrong service URI.

    >>> metadata_word("zk://host/ledgers")
    'zk://host/ledgers'
    """
    if "://" not in text and not text.startswith("file:"):
        return Path(text)
    from bkstore.cluster.store.opening import metadata_place  # loads the stores

    try:
        return metadata_place(text)
    except BkstoreError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def paths_only(*places: str | Path | None) -> list[Path]:
    """Return those of the places that are paths: what an output must not be written over."""
    return [place for place in places if isinstance(place, Path)]


def as_known(place: str | Path) -> str:
    """Return a place by its one name: a path without links, a service URI as it is."""
    return str(place.resolve()) if isinstance(place, Path) else place
