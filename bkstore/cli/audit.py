"""bkstore audit: what bookies hold against ledger metadata, by the rules of BP-34."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.audit_settings import (
    add_live,
    add_rules,
    check_bookies,
    is_live,
    options_of,
    placement_of,
    tls_of,
)
from bkstore.cli.terminal.exit_codes import verdict
from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    as_known,
    metadata_word,
    paths_only,
)
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import chosen_sasl_user
from bkstore.cli.terminal.shared_options import add_opening
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.user_outputs import check_output, refuse_inputs, write_output as write_file
from bkstore.metrics import audit_textfile
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import VIOLATIONS, Schema, Table

if TYPE_CHECKING:
    from bkstore.cluster.audit import EntriesOfLedger, Violation
    from bkstore.cluster.audit.auditor import Progress
    from bkstore.cluster.store.api import MetadataStore

_AT_A_TIME = 1000


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.intermixed = True
    parser.checks += (check_bookies,)
    parser.add_argument(
        "metadata",
        metavar="METADATA",
        type=metadata_word,
        help=f"ledger metadata: {METADATA_HELP}",
    )
    parser.add_argument(
        "bookies",
        metavar="BOOKIE=DIR",
        nargs="*",
        help="a bookie's id, as ensembles name it, and its directory (DIR alone: the cookie's id); "
        "with a service URI the others are asked where they are registered",
    )
    add_rules(parser)
    add_live(parser)
    parser.add_argument(
        "--resume", metavar="FILE", type=Path, help="keep what is done in FILE, or go on from it"
    )
    parser.add_argument(
        "--textfile",
        metavar="FILE",
        type=Path,
        help="the figures for Prometheus' textfile collector; its name ends in .prom",
    )
    add_opening(parser)
    add_output(parser, VIOLATIONS)


def run(args: argparse.Namespace) -> int:
    """Print the violations; the counts go to stderr.

    Exit code 1 unless all is well, 3 where no ledger was judged by an answer of a bookie.
    """
    from bkstore.cluster.audit import Auditor, DirectoryBookie
    from bkstore.cluster.store.opening import opened_metadata

    if args.textfile is not None:
        require_packages("--textfile", "prometheus_client")
    live = is_live(args)
    placement, options = placement_of(args), options_of(args, live)
    tls, user = tls_of(args), chosen_sasl_user(args)
    with ExitStack() as stack:
        store = stack.enter_context(opened_metadata(args.metadata))
        opened = dict(_opened(args, stack))
        _refuse_output(args, list(opened.values()))
        _tell_strangers(store, opened)
        bookies: Mapping[str, EntriesOfLedger] = {
            name: DirectoryBookie(found, args.compat) for name, found in opened.items()
        }
        if live:
            from bkstore.network import AuditedBookies

            asking = AuditedBookies(store, bookies, timeout=args.timeout, tls=tls, sasl=user)
            bookies = stack.enter_context(asking)
        auditor = Auditor(
            store, bookies, placement=placement, options=options, wait=_told(options.look_delay)
        )
        with work_progress("ledgers") as show:
            report = auditor.run(
                progress=_progress(show), resume=args.resume, what=_what(args, store, opened, live)
            )
        for found in opened.values():
            found.check_unchanged()
    if args.textfile is not None:
        write_file(args.textfile, audit_textfile(report))
    write_output(args, *on_screen(report.violations))
    for line in report.summary():
        tell(line)
    return verdict(findings=not report.clean, checked=not report.nothing)


def _told(look_delay: float) -> Callable[[float], None]:
    """Return what passes time, and says so where it is the time between two looks."""

    def wait(seconds: float) -> None:
        if seconds == look_delay:
            tell(f"some bookies gave no answer: they are asked again in {seconds:g} s")
        time.sleep(seconds)

    return wait


def _what(
    args: argparse.Namespace, store: MetadataStore, opened: dict[str, BookieDir], live: bool
) -> str:
    """Say what is audited, and by which policy: all that a resumed run must have in common."""
    places = [f"{name}={os.path.realpath(bookie.path)}" for name, bookie in opened.items()]
    policy = [args.placement, str(args.spread), str(args.enforce_places)]
    if args.places is not None:
        policy.append(os.path.realpath(args.places))
    cluster = [as_known(args.metadata)]
    if isinstance(args.metadata, str):
        instance = getattr(store, "instance_id", None)
        cluster = [as_known(args.metadata), f"instance {instance() if instance else None}"]
    return " ".join([*cluster, *sorted(places), *policy, *["live"][:live]])


def _progress(show: Callable[[str, int, int, int], None] | None) -> Progress | None:
    return None if show is None else lambda done, total: show("audit", done, total, done)


def _opened(args: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[str, BookieDir]]:
    """Yield (bookie id, its directories); a bookie or a directory given twice is refused."""
    names: set[str] = set()
    places: dict[str, str] = {}
    for word in args.bookies:
        name, found, path = word.partition("=")
        if not found or os.path.exists(word):
            name, path = "", word
        if not path or (found and not name and path != word):
            raise InvalidArgument(f"not a bookie and its directory: {word!r} (BOOKIE=DIR)")
        bookie = stack.enter_context(
            BookieDir(path, live=args.live, layout=args.layout, root=args.root)
        )
        name = _checked_name(name, bookie, word)
        for folder in map(os.path.realpath, bookie.folders.ledger):
            if folder in places:
                raise InvalidArgument(f"{folder} is given twice, as {places[folder]} and {name}")
            places[folder] = name
        if name in names:
            raise InvalidArgument(f"bookie {name} is given twice")
        names.add(name)
        yield name, bookie


def _checked_name(given: str, bookie: BookieDir, word: str) -> str:
    """Return the bookie's id: the given one, which must be the cookie's if there is one."""
    cookie = bookie.folders.cookie
    own = "" if cookie is None else cookie.bookie_id
    if not given and not own:
        raise InvalidArgument(f"{word}: no cookie tells whose it is: say BOOKIE={word}")
    if given and own and given != own:
        raise InvalidArgument(f"{word}: by its cookie this is bookie {own}")
    return given or own


def _refuse_output(args: argparse.Namespace, bookies: Iterable[BookieDir]) -> None:
    """Refuse to write to what is read, and both outputs to one file."""
    read = paths_only(args.metadata, args.places)
    targets = [path for path in (args.output, args.resume, args.textfile) if path is not None]
    for target in targets:
        refuse_inputs(target, read)
        for bookie in bookies:
            bookie.refuse_output(target)
    for at, target in enumerate(targets):
        refuse_inputs(target, targets[:at])
    for target in (args.output, args.textfile):
        if target is not None:
            check_output(target)


def _tell_strangers(store: MetadataStore, opened: dict[str, BookieDir]) -> None:
    """Say which of the given bookies no ensemble names, in whatever segment of any ledger."""
    strangers = set(opened)
    for _, found in store.read_many(store.ledgers()) if strangers else ():
        if not isinstance(found, CorruptionError):  # else the audit tells of it
            strangers -= found.metadata.bookies
        if not strangers:
            return
    registered = store.registered_bookies()
    for bookie in sorted(strangers):
        more = ""
        if registered is not None:
            more = ", but it is registered" if bookie in registered else ", nor is it registered"
        tell(f"{bookie}: no ensemble names it{more}")


def on_screen(violations: Sequence[Violation]) -> tuple[Schema, Iterator[Table]]:
    """Return violations as tables of bounded size."""
    from bkstore.cluster.audit import violations_table

    return VIOLATIONS, map(violations_table, _parts(violations))


def _parts(violations: Sequence[Violation]) -> Iterator[Sequence[Violation]]:
    for at in range(0, len(violations), _AT_A_TIME):
        yield violations[at : at + _AT_A_TIME]
