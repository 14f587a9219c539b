"""Options of `bkstore repair`: what is repaired, how, and at which pace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.audit_settings import (
    add_connection_options,
    add_placement_options,
    audit_options_from_args,
    check_tls_arguments,
)
from bkstore.cli.owners.owner_options import add_owner_options
from bkstore.cli.pulsar.durations import parse_duration
from bkstore.cli.terminal.metadata_options import parse_metadata_location
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args

if TYPE_CHECKING:
    from bkstore.repair import RepairOptions

_PARALLEL_LEDGERS = 4
_OWNER_OPTIONS = ("topic", "namespace", "tenant", "component")


def add_repair_options(parser: Parser) -> None:
    """Declare the command's arguments, but for the output."""
    parser.checks += (check_tls_arguments, _check_repair_arguments)
    add = parser.add_argument
    add(
        "metadata",
        metavar="URI",
        type=parse_metadata_location,
        help="a cluster's service URI, such as zk+hierarchical://host:2181/ledgers, or a metadata "
        "store's folder",
    )
    add(
        "--from",
        dest="report",
        metavar="FILE",
        type=Path,
        help="plan by the output of an audit (.json or .jsonl) instead of asking the bookies",
    )
    add("--apply", action="store_true", help="repair what is planned; without it nothing changes")
    _add_manner_options(parser)
    _add_service_options(parser)
    add_placement_options(parser)
    add_owner_options(parser)
    add_digest_options(parser, "the type of digests, where the metadata have none")
    add_connection_options(parser)


def _add_manner_options(parser: Parser) -> None:
    """Declare what counts as missing, what is repaired of it, and at which pace."""
    add = parser.add_argument
    add(
        "--bytes-per-second",
        metavar="N",
        type=float,
        help="copy, and with --verify read, at most N bytes of records in a second (default: no "
        "limit)",
    )
    add(
        "--parallel",
        metavar="N",
        type=int,
        default=_PARALLEL_LEDGERS,
        help=f"repair N ledgers at a time (default {_PARALLEL_LEDGERS})",
    )
    add(
        "--verify",
        action="store_true",
        help="read every copy of every entry; one whose digest does not match counts as missing",
    )
    add("--recover", action="store_true", help="close open ledgers whose last segment is affected")
    add(
        "--replace-read-only",
        action="store_true",
        help="replace read-only bookies that lack entries, instead of leaving them as they are",
    )


def _add_service_options(parser: Parser) -> None:
    """Declare the options of repeated repairs and their metrics."""
    add = parser.add_argument
    add(
        "--every",
        metavar="TIME",
        type=parse_duration,
        help="with --apply: repair again and again, TIME (30m, 1h) after the end of the last "
        "repair, until a signal ends the command; bookies that are gone are replaced in the second "
        "repair that does not find them",
    )
    add(
        "--textfile",
        metavar="FILE",
        type=Path,
        help="with --apply: write metrics for Prometheus' textfile collector after each repair",
    )


def _check_repair_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with a usage error if an option has no effect, or cannot be repeated."""
    if not args.apply and (args.every is not None or args.textfile is not None):
        parser.error("--every and --textfile need --apply")
    if args.every is None:
        return
    if args.every <= 0:
        parser.error("--every needs a time above 0")
    if args.report is not None or any(getattr(args, each) for each in _OWNER_OPTIONS):
        parser.error("--every repairs all ledgers: it takes no --from and no owners")


def repair_options_from_args(args: argparse.Namespace) -> RepairOptions:
    """Return the options of the repair; raises `InvalidArgument`."""
    from bkstore.repair import RepairOptions

    return RepairOptions(
        password=password_from_args(args),
        digest_type=args.digest_type,
        recover=args.recover,
        replace_read_only=args.replace_read_only,
        verify=args.verify,
        parallel=args.parallel,
        bytes_per_second=args.bytes_per_second,
        audit=audit_options_from_args(args, live=True),
    )
