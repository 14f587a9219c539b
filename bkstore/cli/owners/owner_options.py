"""The options that choose ledgers by what their metadata state of their owners."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from bkstore.cli.terminal.ledger_options import is_ledger_named
from bkstore.cli.terminal.metadata_options import METADATA_HELP, parse_metadata_location
from bkstore.cli.terminal.parser import Parser

if TYPE_CHECKING:
    from bkstore.ledger_metadata import OwnerFilter

_OWNER_HELP = {
    "topic": "only ledgers of topics that match, such as 'shop/orders/*'; a partitioned topic "
    "stands for its partitions",
    "namespace": "only ledgers of namespaces that match, such as shop/orders",
    "tenant": "only ledgers of tenants that match",
    "component": "only ledgers of this component, such as compacted-ledger",
}


def add_owner_options(parser: argparse.ArgumentParser) -> None:
    """Add --topic, --namespace, --tenant and --component, each with a pattern as of shells."""
    group = parser.add_argument_group(
        "owners", "Patterns as of shells: * ? [ab]. Ledgers of unknown owners match none."
    )
    for field, description in _OWNER_HELP.items():
        group.add_argument(f"--{field}", metavar="PATTERN", help=description)


def add_metadata_of_owners(parser: Parser, use: str) -> None:
    """Add --metadata, for a command whose `use` of the metadata are owners."""
    parser.add_argument(
        "--metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help=f"ledger metadata: {METADATA_HELP}; {use}",
    )


def add_owner_filters(parser: Parser, use: str | None = None) -> None:
    """Add the filters, which require --metadata; it is added too if its `use` is given."""
    if use is not None:
        add_metadata_of_owners(parser, use)
    add_owner_options(parser)
    parser.checks += (_check_filters,)


def add_ledger_or_filters(parser: Parser, use: str | None = None) -> None:
    """As `add_owner_filters`, for a command with an optional LEDGER: one of them is required."""
    add_owner_filters(parser, use)
    parser.checks += (_check_some_ledger,)


def refuse_owner_filters(parser: Parser, reason: str) -> None:
    """Refuse the filters with a reason, for a command that is always about all ledgers."""
    refused = {f"--{field}": f"not allowed: {reason}" for field in _OWNER_HELP}
    parser.refused_options = {**parser.refused_options, **refused}


def _check_filters(parser: Parser, args: argparse.Namespace) -> None:
    """End with a usage error for a filter without metadata, or beside the id of a ledger."""
    for option in list(_given_filters(args))[:1]:  # one is enough for the message
        if args.metadata is None:
            parser.error(f"argument --{option}: requires --metadata METADATA")
        takes_id = hasattr(args, "ledger_id")
        if takes_id and (is_ledger_named(args) or args.ledger_scope_id is not None):
            parser.error(f"argument --{option}: not allowed with a ledger's id")


def _check_some_ledger(parser: Parser, args: argparse.Namespace) -> None:
    if not is_ledger_named(args) and not _given_filters(args):
        ids = "LEDGER --ledger-id --ledger-qualified-name"
        filters = "a filter such as --topic PATTERN with --metadata METADATA"
        parser.error(f"one of the arguments {ids} is required, or {filters}")


def _given_filters(args: argparse.Namespace) -> dict[str, str]:
    """Return the patterns that were given, by the names of the options."""
    patterns = {field: getattr(args, field, None) for field in _OWNER_HELP}
    return {field: pattern for field, pattern in patterns.items() if pattern is not None}


def owner_filter_from_args(args: argparse.Namespace) -> OwnerFilter:
    """Return the filter that the options give, false without any of them."""
    from bkstore.ledger_metadata import OwnerFilter  # loads numpy

    return OwnerFilter(**_given_filters(args))


def describe_filters(args: argparse.Namespace) -> str:
    """Return the filters as they may be given again: ``--topic 'shop/*' --tenant shop``."""
    filters = _given_filters(args).items()
    return " ".join(f"--{field} {shlex.quote(pattern)}" for field, pattern in filters)
