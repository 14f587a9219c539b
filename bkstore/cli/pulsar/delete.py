"""bkstore metadata delete: delete the ledgers of a reviewed list of `bkstore leaks`."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.pulsar.age_options import add_grace, grace_milliseconds
from bkstore.cli.pulsar.location_options import PULSAR_HELP, parse_pulsar, pulsar_location
from bkstore.cli.terminal.metadata_options import METADATA_HELP, parse_metadata_location
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr, print_text
from bkstore.errors import InvalidArgument
from bkstore.tables.safe_text import escape_unprintable

if TYPE_CHECKING:
    from bkstore.cluster.store.api import MetadataStore
    from bkstore.pulsar.deletion import LedgerDeletion


def add_arguments(parser: Parser) -> None:
    """Declare the subcommand's arguments."""
    add = parser.add_argument
    add("metadata", metavar="METADATA", type=parse_metadata_location, help=METADATA_HELP)
    add(
        "--from",
        dest="list",
        metavar="FILE",
        type=Path,
        required=True,
        help="the list: the .csv, .json or .jsonl file of `bkstore leaks -o`, or some rows of it",
    )
    add("--apply", action="store_true", help="delete; without it, only say what would be deleted")
    add("--pulsar", metavar="LOCATION", type=parse_pulsar, help=PULSAR_HELP)
    add_grace(parser)


def run(args: argparse.Namespace) -> int:
    """Print what becomes of each ledger of the list; the exit code is 1 if any is kept."""
    from bkstore.cli.pulsar.reviewed_list import read_leak_list
    from bkstore.cluster.store.opening import open_metadata, open_store
    from bkstore.pulsar import LeakSearch
    from bkstore.pulsar.deletion import delete_leaks
    from bkstore.pulsar.sources.opening import opened_pulsar

    listed = read_leak_list(args.list)
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        nodes = stack.enter_context(opened_pulsar(pulsar_location(args)))
        is_uri = isinstance(args.metadata, str)
        if args.apply and is_uri and not nodes.is_live:
            message = "ledgers are deleted by the metadata of a running Pulsar, not by a copy"
            raise InvalidArgument(f"{message}: pass its URI with --pulsar")
        store = (open_store if args.apply else open_metadata)(args.metadata)
        _close_with(stack, store)
        grace = grace_milliseconds(args)
        search = LeakSearch(store, nodes, grace=grace, store_is_copy=not is_uri)
        for deletion in delete_leaks(store, search, listed, apply=args.apply):
            counts[deletion.outcome] += 1
            print_text(f"{_describe(deletion)}\n")
        report_findings(search.findings)
    _print_summary(counts, args.apply)
    return 1 if counts["kept"] else 0


def _close_with(stack: ExitStack, store: MetadataStore) -> None:
    close: Any = getattr(store, "close", None)
    if close is not None:
        stack.callback(close)


def _describe(deletion: LedgerDeletion) -> str:
    parts = [f"ledger {deletion.ledger}", deletion.outcome]
    if deletion.reason:
        parts.append(deletion.reason)
    if deletion.current is not None and deletion.current.owner.subject is not None:
        parts.append(deletion.current.owner.subject)
    return escape_unprintable(": ".join(parts))


def _print_summary(counts: Counter[str], applied: bool) -> None:
    outcomes = ["deleted" if applied else "would be deleted", "gone", "kept"]
    print_stderr(", ".join(f"{counts[outcome]} {outcome}" for outcome in outcomes))
    if not applied and counts["would be deleted"]:
        print_stderr("nothing was deleted: --apply deletes them")
