"""The arguments of `bkstore rescue`, and the bookies, ledgers and secrets that they choose."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.owners.owner_options import add_owner_options, owner_filter_from_args
from bkstore.cli.terminal.ledger_options import add_ledger_options, only_ledger_from_args
from bkstore.cli.terminal.metadata_options import METADATA_HELP, parse_metadata_location
from bkstore.cli.terminal.output_options import add_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args
from bkstore.cli.terminal.shared_options import add_opening_options
from bkstore.errors import InvalidArgument
from bkstore.tables import RESCUE

if TYPE_CHECKING:
    from bkstore.ledger_metadata import LedgerMetadata
    from bkstore.rescue import LedgerSecret, SourceBookie

FORMS = ("folders", "parquet", "bookies")


def add_rescue_arguments(parser: Parser) -> None:
    """Add METADATA, BOOKIE=DIR..., OUT and the options."""
    parser.intermixed = True  # allows METADATA --live BOOKIE=DIR
    parser.checks = (_check_words, *parser.checks)  # others need to know which word is OUT
    add = parser.add_argument
    add(
        "metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help=f"ledger metadata: {METADATA_HELP}",
    )
    add(
        "bookies",
        metavar="BOOKIE=DIR... OUT",
        nargs="+",
        help="a bookie's id, as in ensembles, and its directory (DIR alone: the id in its cookie), "
        "for each disk that there is; then the new folder, or a running cluster's service URI",
    )
    _add_output_forms(parser)
    add(
        "--without-metadata",
        action="store_true",
        help="without METADATA: infer the ledgers and their ensembles from the disks",
    )
    add(
        "--dry-run",
        action="store_true",
        help="write nothing, without OUT: only state what can be rescued and what is lost",
    )
    add_ledger_options(parser, "only this ledger")
    add_owner_options(parser)
    add_digest_options(parser, "the digest type of ledgers whose metadata have none")
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="processes that read files (default: one per CPU; one for few bytes)",
    )
    add_opening_options(parser)
    add_output(parser, RESCUE)


def _add_output_forms(parser: Parser) -> None:
    """Add the options for the form of OUT."""
    add = parser.add_argument
    add(
        "--as",
        dest="form",
        choices=FORMS,
        default="folders",
        help="folders: a folder for each ledger, with its payloads; parquet: a table of all "
        "payloads; bookies: directories on which a cluster starts (default: %(default)s)",
    )
    add(
        "--bookies",
        metavar="N|ID,ID",
        type=_parse_bookies,
        dest="new_bookies",
        help="with --as bookies: place all ledgers on the first N bookies of the metadata, or on "
        "these (default: on the bookies that they had)",
    )
    add(
        "--storage",
        choices=("sorted", "interleaved", "db"),
        help="with --as bookies: their storage (default: that of the old disks)",
    )
    add(
        "--store",
        metavar="URI",
        type=parse_metadata_location,
        help="with --as bookies: write the ledgers' metadata and the new cookies into this store, "
        "of a cluster that has none of them",
    )


def _check_words(parser: Parser, args: argparse.Namespace) -> None:
    """Take OUT from the bookies; exit with a usage error if there is none, or no bookie."""
    args.bookies, args.out = list(args.bookies), None
    if args.without_metadata:  # then the first word is a bookie, too
        args.bookies.insert(0, str(args.metadata))
        args.metadata = None
        if any(getattr(args, field) for field in ("topic", "namespace", "tenant", "component")):
            parser.error("argument --without-metadata: the owners of ledgers are not on the disks")
    if args.form != "bookies":
        for option in ("new_bookies", "storage", "store"):
            if getattr(args, option) is not None:
                parser.error(f"argument --{option.removeprefix('new_')}: requires --as bookies")
    if not args.dry_run:
        word = args.bookies.pop()
        if "=" in word and not os.path.lexists(word):
            parser.error(f"OUT is missing after {word} (or pass --dry-run)")
        args.out = _parse_out(parser, word)
        if not args.bookies:
            parser.error("the arguments BOOKIE=DIR... are required")


def _parse_out(parser: Parser, word: str) -> str | Path:
    """Return OUT, a path or a service URI; exit with a usage error if it is malformed."""
    try:
        return parse_metadata_location(word)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument OUT: {error}")


def _parse_bookies(text: str) -> int | list[str]:
    """Return a number of bookies or their ids; raises `ArgumentTypeError`."""
    if text.isdecimal() and len(text) < 6 and int(text):
        return int(text)
    bookies = text.split(",")
    if "" in bookies or len(set(bookies)) < len(bookies) or text.isdecimal():
        raise argparse.ArgumentTypeError(f"not a number of bookies, or different ids: {text!r}")
    return bookies


def open_sources(args: argparse.Namespace, stack: ExitStack) -> list[SourceBookie]:
    """Open the directories of all bookies; raises `InvalidArgument` if one is given twice."""
    from bkstore.rescue import open_source

    sources: list[SourceBookie] = []
    for word in args.bookies:
        given_id, separator, path = word.partition("=")
        if not separator or os.path.exists(word):  # a directory's name may contain "="
            given_id, path = "", word
        if not path or (not given_id and path != word):
            raise InvalidArgument(f"not a bookie and its directory: {word!r} (BOOKIE=DIR)")
        options = {"live": args.live, "layout": args.layout, "root": args.root}
        source = stack.enter_context(open_source(path, given_id or None, **options))
        sources.append(source)
    _check_distinct_folders(sources)
    return sources


def _check_distinct_folders(sources: list[SourceBookie]) -> None:
    """Raise `InvalidArgument` if two bookies share a ledger directory."""
    bookie_of_folder: dict[str, str] = {}
    for source, folder in _ledger_folders(sources):
        other = bookie_of_folder.setdefault(folder, source.bookie_id)
        if other != source.bookie_id:
            raise InvalidArgument(f"{folder} is given twice, as {other} and {source.bookie_id}")


def _ledger_folders(sources: list[SourceBookie]) -> Iterator[tuple[SourceBookie, str]]:
    for source in sources:
        if source.directory is not None:
            for folder in source.directory.folders.ledger:
                yield source, os.path.realpath(folder)


def ledger_choice(args: argparse.Namespace) -> Callable[[LedgerMetadata], bool]:
    """Return whether a ledger is to be rescued, by its metadata."""
    from bkstore.ledger_metadata import read_owner

    only_ledger, owners = only_ledger_from_args(args), owner_filter_from_args(args)

    def is_wanted(metadata: LedgerMetadata) -> bool:
        if only_ledger is not None and metadata.ledger != only_ledger:
            return False
        return not owners or owners.matches(read_owner(metadata.custom_metadata))

    return is_wanted


def secret_from_args(args: argparse.Namespace) -> LedgerSecret | None:
    """Return the digest type and password for ledgers whose metadata have none."""
    from bkstore.rescue import LedgerSecret

    password = password_from_args(args)
    digest_type = "HMAC" if args.digest_type == "MAC" else args.digest_type
    if digest_type is None and password is None:
        return None
    return LedgerSecret(digest_type, password)
