"""The options --grace and --as-of: from which age on a ledger may be leaked, at which time."""

from __future__ import annotations

import argparse

from bkstore.cli.pulsar.durations import parse_duration, parse_time

_DAY_SECONDS = 86400.0


def add_grace(parser: argparse.ArgumentParser) -> None:
    """Add --grace, in seconds."""
    parser.add_argument(
        "--grace",
        metavar="TIME",
        type=parse_duration,
        default=_DAY_SECONDS,
        help="age from which a ledger without a reference is leaked: 36h, 2d (default: 1d)",
    )


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """Add --as-of, in milliseconds since 1970; None if it is not given."""
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        type=parse_time,
        help="when these ages are counted from, as 2026-11-28T12:00 in UTC (default: now, or when "
        "the copy was made)",
    )


def grace_milliseconds(args: argparse.Namespace) -> int:
    """Return --grace in milliseconds."""
    seconds: float = args.grace
    return round(seconds * 1000)
