"""The option --pulsar: where Pulsar's metadata are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.errors import BkstoreError

if TYPE_CHECKING:
    from bkstore.offline.analyses import PulsarMetadata
    from bkstore.pulsar.sources.opening import PulsarUri

PULSAR_HELP = (
    "Pulsar's metadata: zk://HOST:PORT/ROOT, a copied folder, or a file of `bkstore metadata "
    "export --pulsar` (default: in the same ZooKeeper, folder or file as METADATA)"
)

PULSAR_COPY_HELP = (
    "a copy of Pulsar's metadata, for leaked_ledgers: a copied folder, or a file of `bkstore "
    "metadata export --pulsar`"
)


def parse_pulsar(text: str) -> PulsarUri | Path:
    """Return where Pulsar's metadata are, for use as argparse's `type`; raises
    `ArgumentTypeError`."""
    from bkstore.pulsar.sources.opening import parse_pulsar_location

    try:
        return parse_pulsar_location(text)
    except BkstoreError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pulsar_location(args: argparse.Namespace) -> PulsarUri | Path:
    """Return the location of --pulsar, by default where METADATA are."""
    from bkstore.pulsar.sources.opening import default_pulsar_location

    location: PulsarUri | Path | None = args.pulsar
    return default_pulsar_location(args.metadata) if location is None else location


def open_pulsar_copy(location: PulsarUri | Path) -> PulsarMetadata:
    """Open a copy for an analysis; raises `InvalidArgument` for a running cluster."""
    from bkstore.offline.analyses import PulsarMetadata

    return PulsarMetadata.open(location if isinstance(location, Path) else str(location))
