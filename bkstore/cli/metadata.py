"""bkstore metadata: the ledger metadata of a cluster: listed, one ledger's, or as a file."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.owners.owner_options import add_owner_options, owner_filter_from_args
from bkstore.cli.owners.row_counter import RowCounter
from bkstore.cli.terminal.exit_codes import CLEAN, NOTHING_CHECKED
from bkstore.cli.terminal.ledger_options import (
    add_ledger_argument,
    add_scope_options,
    ledger_from_args,
    scope_from_args,
)
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    local_paths,
    parse_metadata_location,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.standard_streams import print_stderr, print_text
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.counts import format_count
from bkstore.errors import CorruptionError, NoSuchLedger
from bkstore.files.user_outputs import check_output, refuse_inputs, write_output as write_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import OwnerFilter, read_owner
from bkstore.tables import METADATA_LEDGERS, METADATA_SEGMENTS, Table

if TYPE_CHECKING:
    from bkstore.cluster.store.api import MetadataStore, Versioned

_ROWS_PER_TABLE = 1000


def add_arguments(parser: Parser) -> None:
    """Declare the four subcommands and their arguments."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="metadata_command")
    what = "the ledgers of a cluster, one row each"
    listing = commands.add_parser("list", help=what, description=what)
    _add_metadata(listing)
    add_scope_options(listing)
    add_owner_options(listing)
    add_output(listing, METADATA_LEDGERS)
    what = "the segments of one ledger, one row each; its other metadata go to stderr"
    show = commands.add_parser("show", help=what, description=what)
    _add_metadata(show)
    add_ledger_argument(show)
    add_output(show, METADATA_SEGMENTS)
    what = "all metadata as a JSON file for audit, analyze and check"
    export = commands.add_parser("export", help=what, description=what)
    _add_metadata(export)
    add = export.add_argument
    add("-o", "--output", metavar="FILE", type=Path, help="write there instead of to stdout")
    add(
        "--show-passwords",
        action="store_true",
        help="include the passwords, which allow reading and writing ledgers",
    )
    add(
        "--pulsar",
        metavar="LOCATION",
        nargs="?",
        const="",
        type=_parse_pulsar,
        help="include the metadata of Pulsar that refer to ledgers, from zk://HOST:PORT/ROOT or a "
        "copied folder (without LOCATION: in the same ZooKeeper or folder as METADATA)",
    )
    _add_delete(commands)


def _add_delete(commands: Any) -> None:
    from bkstore.cli.pulsar import delete

    what = "delete the ledgers of a reviewed list of `bkstore leaks`"
    delete.add_arguments(commands.add_parser("delete", help=what, description=what))


def _parse_pulsar(text: str) -> Any:
    from bkstore.cli.pulsar.location_options import parse_pulsar

    return parse_pulsar(text) if text else ""


def _add_metadata(parser: Parser) -> None:
    parser.add_argument(
        "metadata", metavar="METADATA", type=parse_metadata_location, help=METADATA_HELP
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; the exit code is 1 if the metadata of a ledger cannot be read."""
    if args.metadata_command == "delete":
        from bkstore.cli.pulsar import delete

        return delete.run(args)
    from bkstore.cluster.store.opening import opened_metadata

    if args.output is not None:
        refuse_inputs(args.output, local_paths(args.metadata))
        check_output(args.output)
    commands = {"list": _run_list, "show": _run_show, "export": _run_export}
    with opened_metadata(args.metadata) as store:
        return commands[args.metadata_command](args, store)


def _run_list(args: argparse.Namespace, store: MetadataStore) -> int:
    """Print a row per ledger that the owner filter chooses, then the unreadable ones; return 3 if
    the filter chooses none."""
    damaged: list[str] = []
    scope = None if args.all_scopes else scope_from_args(args)
    underreplicated = _marked_ledgers(store, damaged)
    ledgers = _readable_ledgers(store.read_many(store.ledgers(scope)), damaged)
    owner_filter = owner_filter_from_args(args)
    rows = (
        _ledger_row(ledger_id, versioned, underreplicated)
        for ledger_id, versioned in ledgers
        if _is_chosen(owner_filter, versioned)
    )
    counter = RowCounter()
    tables = counter.count(tables_of_rows(METADATA_LEDGERS, rows, _ROWS_PER_TABLE))
    write_output(args, METADATA_LEDGERS, tables)
    is_empty = bool(owner_filter) and not counter.rows
    return _print_damage(damaged) or (NOTHING_CHECKED if is_empty else CLEAN)


def _readable_ledgers(
    read_results: Iterable[tuple[LedgerId, Versioned | CorruptionError]], damaged: list[str]
) -> Iterator[tuple[LedgerId, Versioned]]:
    """Yield the ledgers whose metadata can be read; append the others' errors to `damaged`."""
    for ledger_id, versioned in read_results:
        if isinstance(versioned, CorruptionError):
            damaged.append(f"ledger {ledger_id}: {versioned}")
        else:
            yield ledger_id, versioned


def _marked_ledgers(store: MetadataStore, damaged: list[str]) -> frozenset[LedgerId] | None:
    """Return the ledgers that the store has marked as underreplicated, None if it cannot tell; an
    error in reading the marks is appended to `damaged`."""
    try:
        marks = store.underreplicated()
    except CorruptionError as error:
        damaged.append(str(error))
        return None
    return None if marks is None else frozenset(marks)


def _is_chosen(owner_filter: OwnerFilter, versioned: Versioned) -> bool:
    return not owner_filter or owner_filter.matches(read_owner(versioned.metadata.custom_metadata))


def _ledger_row(
    ledger_id: LedgerId, versioned: Versioned, underreplicated: frozenset[LedgerId] | None
) -> tuple[Any, ...]:
    """Return a ledger's row; `underreplicated` are the ledgers marked so, None if unknown."""
    # The columns of `METADATA_LEDGERS`, in its order, in groups.
    metadata = versioned.metadata
    quorums = (metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size)
    end = (metadata.last_entry_id, metadata.length) if metadata.closed else (None, None)
    ctime = None if metadata.ctime < 0 else metadata.ctime  # -1 = unknown
    marked = None if underreplicated is None else ledger_id in underreplicated
    ids = (*ledger_id.signed, ledger_id.qualified_name)
    others = (metadata.digest_type, len(metadata.segments), ctime, marked)
    versions = (metadata.version, versioned.version)
    owner = read_owner(metadata.custom_metadata)
    return (*ids, metadata.state, *quorums, *end, *others, *versions, *owner.columns)


def _print_damage(damaged: list[str]) -> int:
    for message in damaged:
        print_stderr(message)
    return 1 if damaged else 0


def _run_show(args: argparse.Namespace, store: MetadataStore) -> int:
    """Print a ledger's segments, the rest to stderr; return 1 if it is unknown or has problems."""
    ledger_id = ledger_from_args(args)
    try:
        metadata, version = store.read(ledger_id)
    except NoSuchLedger as error:
        print_stderr(str(error))
        return 1
    last_entries: list[int | None] = [segment.first_entry - 1 for segment in metadata.segments[1:]]
    last_entries.append(metadata.last_entry_id if metadata.closed else None)
    rows = [
        (*ledger_id.signed, first_entry, last_entry, ", ".join(ensemble))
        for (first_entry, ensemble), last_entry in zip(metadata.segments, last_entries)
    ]
    write_output(args, METADATA_SEGMENTS, [Table.from_rows(METADATA_SEGMENTS, rows)])
    print_stderr(f"version {version}: {metadata.to_safe_string()}")
    owner = read_owner(metadata.custom_metadata)
    if owner.application is not None:
        print_stderr(f"owner: {owner}")
    mark = store.mark_of(ledger_id)
    if mark is not None:
        missing_bookies = ", ".join(mark.missing_bookies) or "no bookie named"
        print_stderr(f"marked as underreplicated: {missing_bookies}")
    problems = metadata.problems()
    for problem in problems:
        print_stderr(problem)
    return 1 if problems else 0


def _run_export(args: argparse.Namespace, store: MetadataStore) -> int:
    """Write all metadata as a JSON file; return 1 if those of a ledger could not be read."""
    from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file

    damaged: list[str] = []
    readable_ledgers = _readable_ledgers(store.read_many(store.ledgers()), damaged)
    ledgers = tuple(versioned.metadata for _, versioned in readable_ledgers)
    # Pulsar's nodes after the ledgers: a ledger that is created in between is then only referred
    # to, and does not seem to be a leak.
    pulsar_parts = {} if args.pulsar is None else _read_pulsar(args, damaged)
    bookies = (store.registered_bookies(), store.unavailable_bookies())
    content = ClusterMetadata(ledgers, *bookies, store.underreplicated())
    data = encode_file(content, passwords=args.show_passwords, other_parts=pulsar_parts)
    if args.output is None:
        print_text(data.decode("ascii"))
    else:
        write_file(args.output, data, private=args.show_passwords)
    print_stderr(f"{format_count(len(ledgers), 'ledger')} exported")
    return _print_damage(damaged)


def _read_pulsar(args: argparse.Namespace, damaged: list[str]) -> dict[str, str]:
    """Return Pulsar's part of the file; append what cannot be read to `damaged`."""
    from bkstore.pulsar.sources.exports import encode_nodes, read_all_nodes
    from bkstore.pulsar.sources.opening import default_pulsar_location, opened_pulsar

    read_at = int(time.time() * 1000)
    with opened_pulsar(args.pulsar or default_pulsar_location(args.metadata)) as nodes:
        values = list(read_all_nodes(nodes))
        if nodes.read_at is not None:  # when the copy was made
            read_at = nodes.read_at
        is_complete = nodes.is_complete
    damaged += [str(value) for _, value in values if isinstance(value, CorruptionError)]
    print_stderr(f"{format_count(len(values), 'node')} of Pulsar exported")
    return {"pulsar": encode_nodes(values, read_at, is_complete)}
