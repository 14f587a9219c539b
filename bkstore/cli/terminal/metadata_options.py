"""The argument METADATA: where ledger metadata are stored, a path or a service URI."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count, join_words
from bkstore.errors import BkstoreError, InvalidArgument, NoSuchLedger

if TYPE_CHECKING:
    from bkstore.formats.entry import DigestTypes
    from bkstore.ids import LedgerId

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


def add_digest_metadata(parser: argparse.ArgumentParser) -> None:
    """Add --metadata, for commands that show payloads."""
    parser.add_argument(
        "--metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help="ledger metadata, as for audit, which have the digest types (without, they are "
        "found by trial)",
    )


@contextmanager
def opened_digests(
    location: str | Path | None,
) -> Iterator[Callable[[LedgerId], tuple[str | None, bytes | None]]]:
    """Yield a function that returns a ledger's (digest type, password) in the metadata: None for
    what they do not have, or without metadata."""
    if location is None:
        yield lambda _: (None, None)
        return
    from bkstore.cluster.store.opening import opened_metadata

    with opened_metadata(location) as store:

        def read_digest(ledger: LedgerId) -> tuple[str | None, bytes | None]:
            """Return (digest type, password) of a ledger's metadata; None where unknown."""
            try:
                metadata = store.read(ledger).metadata
            except NoSuchLedger:
                return None, None
            return metadata.digest_type, metadata.password

        yield read_digest


def add_payload_digests(parser: argparse.ArgumentParser) -> None:
    """Add --digest-type and --metadata, for commands that show payloads of many ledgers."""
    from bkstore.formats.entry.digest import DIGEST_NUMBERS  # loads numpy

    parser.add_argument(
        "--digest-type",
        choices=[*DIGEST_NUMBERS, "MAC"],
        help="with --msg: the type of all digests, which precede the payloads (default: found for "
        "each ledger by trial)",
    )
    add_digest_metadata(parser)


@contextmanager
def opened_digest_types(args: argparse.Namespace) -> Iterator[DigestTypes]:
    """Yield the digest types of ledgers: the given one, else those of the metadata, else by trial.
    Raises `InvalidArgument` for a given type together with metadata."""
    from bkstore.formats.entry import DigestTypes

    if args.digest_type is None:
        with opened_digests(args.metadata) as read_digest:
            # Only the type, which determines how many bytes the digest takes.
            yield DigestTypes(lambda ledger: read_digest(ledger)[0])
        return
    if args.metadata is not None:
        raise InvalidArgument("--digest-type and --metadata exclude each other")
    given_type = "HMAC" if args.digest_type == "MAC" else args.digest_type
    yield DigestTypes(lambda _: given_type)


def print_digest_types(digest_types: DigestTypes, args: argparse.Namespace) -> None:
    """Print the digest types by which the digests were removed from the payloads, unless they were
    given, and the ledgers whose type is unknown."""
    if args.digest_type is not None:
        return
    types = Counter(trial.digest_type for trial in digest_types.trials.values())
    source = "by trial" if args.metadata is None else "by metadata or trial"
    if types:
        counts = join_words([f"{each} ({format_count(n, 'ledger')})" for each, n in types.items()])
        print_stderr(f"digest types, {source}: {counts}")
    # Ledgers whose type is neither in the metadata nor found by trial.
    if digest_types.untold:
        lowest, count = min(digest_types.untold), len(digest_types.untold)
        subject = f"ledger {lowest}"
        if count > 1:
            subject = f"{format_count(count, 'ledger')}, from {lowest} on"
        advice = (
            "pass --digest-type TYPE or --metadata METADATA"
            if args.metadata is None
            else "it is not in METADATA either"
        )
        print_stderr(
            f"{subject}: unknown digest type ({advice}): the digest is shown as the beginning of "
            "each payload"
        )


def local_paths(*locations: str | Path | None) -> list[Path]:
    """Return those locations that are paths; an output must not overwrite them."""
    return [location for location in locations if isinstance(location, Path)]


def canonical_location(location: str | Path) -> str:
    """Return a location in canonical form: a path with links resolved, a service URI unchanged."""
    return str(location.resolve()) if isinstance(location, Path) else location
