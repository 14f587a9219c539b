"""bkstore audit: bookies' entries compared with ledger metadata, by the rules of BP-34."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.audit_settings import (
    add_live_options,
    add_rule_options,
    announcing_sleep,
    audit_options_from_args,
    check_audit_arguments,
    is_live,
    placement_from_args,
    show_audit,
    tls_context_from_args,
)
from bkstore.cli.owners.ledger_choice import read_ledger_choice
from bkstore.cli.owners.owner_columns import add_owners, with_owner_columns
from bkstore.cli.owners.owner_options import add_owner_options, describe_filters
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    canonical_location,
    local_paths,
    parse_metadata_location,
)
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import sasl_user_from_args
from bkstore.cli.terminal.shared_options import add_opening_options
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.user_outputs import check_output, refuse_inputs, write_output as write_file
from bkstore.metrics import audit_textfile
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import VIOLATIONS, Table

if TYPE_CHECKING:
    from bkstore.cluster.audit import AvailabilitySource, Violation
    from bkstore.cluster.store.api import MetadataStore

_ROWS_PER_TABLE = 1000
_SCHEMA = with_owner_columns(VIOLATIONS)


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.intermixed = True  # allows METADATA --live BOOKIE=DIR
    parser.checks += (check_audit_arguments,)
    add = parser.add_argument
    add(
        "metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help=f"ledger metadata: {METADATA_HELP}",
    )
    add(
        "bookies",
        metavar="BOOKIE=DIR",
        nargs="*",
        help="a bookie's id, as in ensembles, and its directory (DIR alone: the id in its cookie); "
        "with a service URI the other bookies are queried at their registered addresses",
    )
    add_rule_options(parser)
    add_live_options(parser)
    add("--resume", metavar="FILE", type=Path, help="keep progress in FILE, and resume from it")
    add(
        "--textfile",
        metavar="FILE",
        type=Path,
        help="write metrics for Prometheus' textfile collector; the name must end in .prom",
    )
    add_opening_options(parser)
    add_owner_options(parser)
    add_output(parser, _SCHEMA)


def run(args: argparse.Namespace) -> int:
    """Print the violations, counts to stderr; return 1 unless clean, 3 if nothing was judged."""
    from bkstore.cluster.audit import Auditor, DirectoryBookie
    from bkstore.cluster.store.opening import opened_metadata

    if args.textfile is not None:
        require_packages("--textfile", "prometheus_client")
    live = is_live(args)
    placement, options = placement_from_args(args), audit_options_from_args(args, live)
    tls, sasl_user = tls_context_from_args(args), sasl_user_from_args(args)
    # With --topic and the like, only the ledgers of the chosen owners are audited.
    choice = read_ledger_choice(args) if describe_filters(args) else None
    with ExitStack() as stack:
        store = stack.enter_context(opened_metadata(args.metadata))
        bookie_dirs = dict(_open_bookies(args, stack))
        _refuse_output(args, list(bookie_dirs.values()))
        _print_unused_bookies(store, bookie_dirs)
        bookies: Mapping[str, AvailabilitySource] = {
            bookie_id: DirectoryBookie(bookie_dir, args.compat)
            for bookie_id, bookie_dir in bookie_dirs.items()
        }
        if live:  # the bookies without a directory are queried
            from bkstore.network import AuditedBookies

            audited = AuditedBookies(store, bookies, timeout=args.timeout, tls=tls, sasl=sasl_user)
            bookies = stack.enter_context(audited)
        wait = announcing_sleep(options.recheck_delay)
        auditor = Auditor(
            store,
            bookies,
            placement=placement,
            options=options,
            wait=wait,
            ledgers=None if choice is None else choice.ledgers,
        )
        with work_progress("ledger") as show_progress:
            report = auditor.run(
                progress=show_progress and partial(show_audit, show_progress),
                resume=args.resume,
                description=_describe_audit(args, store, bookie_dirs, live),
            )
        # A directory that changed meanwhile fails the command before anything is written.
        for bookie_dir in bookie_dirs.values():
            bookie_dir.check_unchanged()
    if args.textfile is not None:
        write_file(args.textfile, audit_textfile(report))
    tables = add_owners(violation_tables(report.violations), report.owners)
    write_output(args, _SCHEMA, tables)
    for line in report.summary():
        print_stderr(line)
    code = exit_code(findings=not report.clean, checked=not report.checked_nothing)
    return code if choice is None else choice.report(code, is_empty=not report.ledgers)


def _describe_audit(
    args: argparse.Namespace, store: MetadataStore, bookie_dirs: dict[str, BookieDir], live: bool
) -> str:
    """Return what is audited and by which policy: a resumed run must have the same."""
    paths = {bookie_id: os.path.realpath(dirs.path) for bookie_id, dirs in bookie_dirs.items()}
    directories = [f"{bookie_id}={path}" for bookie_id, path in paths.items()]
    policy = [args.placement, str(args.spread), str(args.enforce_places)]
    if args.places is not None:
        policy.append(os.path.realpath(args.places))
    cluster = [canonical_location(args.metadata)]
    if isinstance(args.metadata, str):  # a URI: another cluster may have its address by then
        get_instance_id = getattr(store, "instance_id", lambda: None)
        cluster.append(f"instance {get_instance_id()}")
    policy += filter(None, [describe_filters(args)])
    if live:
        policy.append("live")
    return " ".join([*cluster, *sorted(directories), *policy])


def _open_bookies(args: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[str, BookieDir]]:
    """Yield (bookie id, its directories); raises `InvalidArgument` if either is given twice."""
    bookie_ids: set[str] = set()
    bookie_of_folder: dict[str, str] = {}
    for word in args.bookies:
        given_id, separator, path = word.partition("=")
        is_path = not separator or os.path.exists(word)  # a directory's name may contain "="
        if is_path:
            given_id, path = "", word
        if not path or not (given_id or is_path):
            raise InvalidArgument(f"not a bookie and its directory: {word!r} (BOOKIE=DIR)")
        bookie = BookieDir(path, live=args.live, layout=args.layout, root=args.root)
        stack.enter_context(bookie)
        bookie_id = _checked_bookie_id(given_id, bookie, word)
        for folder in map(os.path.realpath, bookie.folders.ledger):
            if folder in bookie_of_folder:
                other = bookie_of_folder[folder]
                raise InvalidArgument(f"{folder} is given twice, as {other} and {bookie_id}")
            bookie_of_folder[folder] = bookie_id
        if bookie_id in bookie_ids:
            raise InvalidArgument(f"bookie {bookie_id} is given twice")
        bookie_ids.add(bookie_id)
        yield bookie_id, bookie


def _checked_bookie_id(given_id: str, bookie: BookieDir, word: str) -> str:
    """Return the given id ("" for none) or the cookie's; `InvalidArgument` for none or two ids."""
    cookie = bookie.folders.cookie
    cookie_id = "" if cookie is None else cookie.bookie_id
    if not given_id and not cookie_id:
        raise InvalidArgument(f"{word}: no cookie identifies the bookie: give BOOKIE={word}")
    if given_id and cookie_id and given_id != cookie_id:
        raise InvalidArgument(f"{word}: according to its cookie this is bookie {cookie_id}")
    return given_id or cookie_id


def _refuse_output(args: argparse.Namespace, bookies: Iterable[BookieDir]) -> None:
    """Raise for an output that is an input or another output, or that cannot be written."""
    inputs = local_paths(args.metadata, args.places)
    targets = [path for path in (args.output, args.resume, args.textfile) if path is not None]
    for index, target in enumerate(targets):
        refuse_inputs(target, [*inputs, *targets[:index]])
        for bookie in bookies:
            bookie.refuse_output(target)
    for target in (args.output, args.textfile):  # the auditor itself checks --resume
        if target is not None:
            check_output(target)


def _print_unused_bookies(store: MetadataStore, bookie_dirs: dict[str, BookieDir]) -> None:
    """Print which bookies are in no ensemble, perhaps misspelled, and if they are registered."""
    unused = set(bookie_dirs)
    if not unused:
        return
    for _, versioned in store.read_many(store.ledgers()):
        if not isinstance(versioned, CorruptionError):  # the audit reports damaged metadata
            unused -= versioned.metadata.bookies
        if not unused:
            return
    registered = store.registered_bookies()
    for bookie_id in sorted(unused):
        registration = ""
        if registered is not None:
            is_registered = bookie_id in registered
            registration = ", but it is registered" if is_registered else ", nor is it registered"
        print_stderr(f"{bookie_id}: it is in no ensemble{registration}")


def violation_tables(violations: Sequence[Violation]) -> Iterator[Table]:
    """Yield the violations as tables of bounded size."""
    from bkstore.cluster.audit import violations_table

    for start in range(0, len(violations), _ROWS_PER_TABLE):
        yield violations_table(violations[start : start + _ROWS_PER_TABLE])
