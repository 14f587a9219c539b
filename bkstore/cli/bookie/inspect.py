"""bkstore inspect: layout, directories, counts, bytes and oddities of a bookie directory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from bkstore.cli.terminal.shared_options import (
    add_directory,
    add_output,
    open_bookie,
    report_findings,
)
from bkstore.cli.terminal.table_output import write_tables
from bkstore.errors import BkstoreError
from bkstore.index.api import Finding
from bkstore.index.scope_marker import check_marker
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.storage.read_only.locations_past_end import check_log_ends
from bkstore.tables import INSPECT, Table

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out the pass over the index that finds entry logs which lost their end",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the properties; findings go to stderr."""
    with open_bookie(args) as bookie:
        findings = bookie.findings()
        rows = list(properties(bookie, findings))
        if bookie.entry_logs:  # without any, as in a copy of the index alone, none can be short
            rows.append(("index entries", _check_logs(bookie, args.quick, findings)))
        rows.append(("findings", str(len(findings))))
        bookie.check_unchanged()
        write_tables(INSPECT, [Table.from_rows(INSPECT, rows)], args.format, args.output)
    return report_findings(findings)


def _check_logs(bookie: BookieDir, quick: bool, findings: list[Finding]) -> str:
    """Say how many entries the index has; logs that end before one are findings."""
    return (
        "not read (--quick)"
        if quick
        else f"{check_log_ends(bookie, findings)}, held against the ends of the logs"
    )


def properties(bookie: BookieDir, findings: list[Finding]) -> Iterator[tuple[str, str]]:
    """Yield (property, value) pairs; reads names, sizes and every ledger's state.

    States that cannot be read are added to `findings`. Entries are not looked at.
    """
    yield "bookie", bookie.bookie_id
    yield "layout", bookie.layout
    cookie = bookie.folders.cookie
    if cookie is not None:
        yield "cookie version", str(cookie.version)
        yield "instance id", cookie.instance_id or "-"
    roles = (
        ("ledger directory", bookie.folders.ledger),
        ("index directory", bookie.folders.index),
        ("journal directory", bookie.folders.journal),
    )
    for role, currents in roles:
        for number, current in enumerate(currents):
            yield f"{role} {number}", str(current)
            configured = bookie.folders.configured.get(current)
            if configured is not None and configured != current.parent:
                yield f"{role} {number} in the conf", str(configured)
    if len(bookie.folders.ledger) > 1:
        yield "directory order from", bookie.folders.ordered
    ledgers = bookie.index.ledgers()
    yield "ledgers", str(len(ledgers))
    yield "fenced ledgers", str(_count_fenced(bookie, findings))
    scopes = {name.scope for name in ledgers} - {0}
    if scopes:
        yield "scopes other than 0", str(len(scopes))
    if any(check_marker(current) for current in bookie.folders.index):
        yield "128-bit ledger ids", "yes (bkstore's own layout)"
    flags = bookie.index.storage_flags
    if flags is not None:
        yield "storage flags", f"{flags:#x}"
    yield "entry logs", str(len(bookie.entry_logs))
    yield "entry log bytes", str(sum(log.bytes for log in bookie.entry_logs))
    yield "journal files", str(len(bookie.journals))
    if any(os.path.lexists(current / "DIRTY") for current in bookie.folders.ledger):
        yield "shut down cleanly", "no (DIRTY is there)"


def _count_fenced(bookie: BookieDir, findings: list[Finding]) -> int:
    fenced = 0
    for ledger in bookie.index.ledgers():
        try:
            state, odd = bookie.index.checked_state(ledger)
            fenced += state.fenced
            findings += odd
        except BkstoreError as error:
            found = Finding.of(error, ledger)
            if not any(old.ledger == ledger and old.severity == "damage" for old in findings):
                findings.append(found)
    return fenced
