"""bkstore audit: what bookies hold against ledger metadata, by the rules of BP-34."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    as_known,
    metadata_word,
    paths_only,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import add_opening
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.user_outputs import check_output, refuse_inputs
from bkstore.ids import LedgerId
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import VIOLATIONS, Schema, Table

if TYPE_CHECKING:
    from bkstore.cluster.audit import Violation
    from bkstore.cluster.audit.auditor import Progress
    from bkstore.cluster.placement.policies import PlacementPolicy
    from bkstore.cluster.store.api import MetadataStore

__all__ = ["add_arguments", "on_screen", "run"]

_AT_A_TIME = 1000


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "metadata",
        metavar="METADATA",
        type=metadata_word,
        help=f"ledger metadata: {METADATA_HELP}",
    )
    parser.add_argument(
        "bookies",
        metavar="BOOKIE=DIR",
        nargs="+",
        help="a bookie's id, as ensembles name it, and its directory (DIR alone: the cookie's id)",
    )
    parser.add_argument(
        "--grace-period",
        metavar="SECONDS",
        type=float,
        help="underreplicated marks that are older are violations (default: not judged)",
    )
    parser.add_argument(
        "--placement",
        choices=("default", "rack", "region"),
        default="default",
        help="the policy that ensembles should keep to (default: any distinct bookies)",
    )
    parser.add_argument(
        "--places",
        metavar="FILE",
        type=Path,
        help="where bookies are: lines of a bookie id and /rack or /region/rack",
    )
    parser.add_argument(
        "--spread",
        metavar="N",
        type=int,
        default=2,
        help="racks or regions that a write set needs at least (default 2)",
    )
    parser.add_argument(
        "--enforce-places",
        action="store_true",
        help="a bookie in /default-rack or /default-region breaks the policy",
    )
    parser.add_argument(
        "--compat",
        choices=("bookkeeper",),
        help="report as the real auditor does, with its false alarms",
    )
    parser.add_argument(
        "--resume", metavar="FILE", type=Path, help="keep what is done in FILE, or go on from it"
    )
    add_opening(parser)
    add_output(parser, VIOLATIONS)


def run(args: argparse.Namespace) -> int:
    """Print the violations; the counts go to stderr. Exit code 1 unless all is well."""
    from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie
    from bkstore.cluster.store.opening import opened_metadata

    placement = _placement(args)
    options = AuditOptions(grace_period=args.grace_period, looks=0, compat=args.compat)
    with ExitStack() as stack:
        store = stack.enter_context(opened_metadata(args.metadata))
        opened = dict(_opened(args, stack))
        _refuse_output(args, list(opened.values()))
        _tell_strangers(store, opened)
        bookies = {name: DirectoryBookie(found, args.compat) for name, found in opened.items()}
        auditor = Auditor(store, bookies, placement=placement, options=options)
        with work_progress("ledgers") as show:
            report = auditor.run(
                progress=_progress(show), resume=args.resume, what=_what(args, opened)
            )
        for found in opened.values():
            found.check_unchanged()
    write_output(args, *on_screen(report.violations))
    for line in report.summary():
        tell(line)
    return 0 if report.clean else 1


def _what(args: argparse.Namespace, opened: dict[str, BookieDir]) -> str:
    """Say what is audited, and by which policy: all that a resumed run must have in common."""
    places = [f"{name}={os.path.realpath(bookie.path)}" for name, bookie in opened.items()]
    policy = [args.placement, str(args.spread), str(args.enforce_places)]
    if args.places is not None:
        policy.append(os.path.realpath(args.places))
    return " ".join([as_known(args.metadata), *sorted(places), *policy])


def _progress(show: Callable[[str, int, int, int], None] | None) -> Progress | None:
    return None if show is None else lambda done, total: show("audit", done, total, done)


def _placement(args: argparse.Namespace) -> PlacementPolicy:
    from bkstore.cluster.placement.network_locations import read_places
    from bkstore.cluster.placement.policies import DefaultPlacement, RackPlacement, RegionPlacement

    if args.placement == "default":
        if args.places is not None or args.enforce_places:
            raise InvalidArgument("--places goes with --placement rack or region")
        return DefaultPlacement()
    if args.places is None:
        raise InvalidArgument(f"--placement {args.placement} needs --places FILE")
    places = read_places(args.places)
    if args.placement == "rack":
        return RackPlacement(places, min_racks=args.spread, enforce=args.enforce_places)
    return RegionPlacement(places, min_regions=args.spread, enforce=args.enforce_places)


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
    targets = [path for path in (args.output, args.resume) if path is not None]
    for target in targets:
        refuse_inputs(target, read)
        for bookie in bookies:
            bookie.refuse_output(target)
    if len(targets) > 1:
        refuse_inputs(args.resume, [args.output])
    if args.output is not None:
        check_output(args.output)


def _tell_strangers(store: MetadataStore, opened: dict[str, BookieDir]) -> None:
    """Say which of the given bookies no ensemble names, in whatever segment of any ledger."""
    strangers = set(opened)
    for name in store.ledgers():
        strangers -= _bookies_of(store, name)
        if not strangers:
            return
    registered = store.registered_bookies()
    for bookie in sorted(strangers):
        more = ""
        if registered is not None:
            more = ", but it is registered" if bookie in registered else ", nor is it registered"
        tell(f"{bookie}: no ensemble names it{more}")


def _bookies_of(store: MetadataStore, name: LedgerId) -> frozenset[str]:
    try:
        return store.read(name).metadata.bookies
    except CorruptionError:  # the audit tells of it
        return frozenset()


def on_screen(violations: Sequence[Violation]) -> tuple[Schema, Iterator[Table]]:
    """Return violations as tables of bounded size."""
    from bkstore.cluster.audit import violations_table

    return VIOLATIONS, map(violations_table, _parts(violations))


def _parts(violations: Sequence[Violation]) -> Iterator[Sequence[Violation]]:
    for at in range(0, len(violations), _AT_A_TIME):
        yield violations[at : at + _AT_A_TIME]
