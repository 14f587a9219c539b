"""bkstore inspect: layout, directories, counts, bytes and oddities of a bookie directory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from bkstore.cli.terminal.output_options import add_output, output_format_from_args, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_directory, open_bookie, report_findings
from bkstore.cli.terminal.table_output import write_text
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.formats.syntax.json_text import format_json
from bkstore.index.api import Finding
from bkstore.index.damage_runs import add_unreported
from bkstore.index.scope_marker import check_marker
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.storage.read_only.ledgers_table import finding_table
from bkstore.storage.read_only.locations_past_end import check_log_ends
from bkstore.tables import FINDINGS, INSPECT, Table


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="skip the pass over the index that finds truncated entry logs",
    )
    add_output(parser, INSPECT)


def run(args: argparse.Namespace) -> int:
    """Print the properties, with --format json as one object; findings go to stderr."""
    as_object = output_format_from_args(args) == "json"
    if as_object and args.columns is not None:
        raise InvalidArgument("--columns: the JSON of inspect is one object without columns")
    with open_bookie(args) as bookie:
        findings = [*bookie.findings(), *bookie.unknown_files()]
        values = _read_properties(bookie, findings)
        values["index_entries"] = None  # not read
        if bookie.entry_logs and not args.quick:  # a copy of the index alone has no logs to check
            values["index_entries"] = check_log_ends(bookie, findings)
        rows = finding_table(findings).rows()
        values["findings"] = [dict(zip(FINDINGS.names, row)) for row in rows]
        bookie.check_unchanged()
        if as_object:
            write_text(format_json(values, indent=2) + "\n", args.output)
        else:
            write_output(args, INSPECT, [Table.from_rows(INSPECT, list(property_rows(values)))])
    return report_findings(findings)


def _read_properties(bookie: BookieDir, findings: list[Finding]) -> dict[str, Any]:
    """Return the bookie's properties as a JSON object. Reads file names, file sizes and every
    ledger's state, but no entries. Appends to `findings` the states that cannot be read."""
    folders, ledgers = bookie.folders, bookie.index.list_readable_ledgers().ledgers
    cookie = folders.cookie
    return {
        "bookie": bookie.bookie_id,
        "layout": bookie.layout,
        "cookie": cookie and {"version": cookie.version, "instance_id": cookie.instance_id or None},
        "directories": {
            "ledger": list(map(str, folders.ledger)),
            "index": list(map(str, folders.index)),
            "journal": list(map(str, folders.journal)),
        },
        "configured": {  # paths in the bk_server.conf, if they were copied elsewhere
            str(current): str(folder)
            for current, folder in folders.configured.items()
            if folder != current.parent
        },
        "directory_order_from": folders.order_source if len(folders.ledger) > 1 else None,
        "ledgers": len(ledgers),
        "fenced_ledgers": _count_fenced(bookie, findings),
        "other_scopes": len({ledger_id.scope for ledger_id in ledgers} - {0}),
        "ledger_ids_of_128_bits": any(check_marker(current) for current in folders.index),
        "storage_flags": _read_storage_flags(bookie, findings),
        "entry_logs": [
            {"dir_index": log.dir_index, "log_id": log.log_id, "file": log.path, "bytes": log.bytes}
            for log in bookie.entry_logs
        ],
        "entry_log_bytes": sum(log.bytes for log in bookie.entry_logs),
        "journal_files": list(map(str, bookie.journals)),
        "dirty": any(os.path.lexists(current / "DIRTY") for current in folders.ledger),
    }


def property_rows(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (property, value) texts for a table from the JSON object."""
    yield "bookie", values["bookie"]
    yield "layout", values["layout"]
    if values["cookie"] is not None:
        yield "cookie version", str(values["cookie"]["version"])
        yield "instance id", values["cookie"]["instance_id"] or "-"
    for role, paths in values["directories"].items():
        for number, path in enumerate(paths):
            yield f"{role} directory {number}", path
            if path in values["configured"]:
                yield f"{role} directory {number} in the conf", values["configured"][path]
    if values["directory_order_from"] is not None:
        yield "directory order from", values["directory_order_from"]
    yield "ledgers", str(values["ledgers"])
    yield "fenced ledgers", str(values["fenced_ledgers"])
    if values["other_scopes"]:
        yield "scopes other than 0", str(values["other_scopes"])
    if values["ledger_ids_of_128_bits"]:
        yield "128-bit ledger ids", "yes (bkstore's own layout)"
    if values["storage_flags"] is not None:
        yield "storage flags", f"{values['storage_flags']:#x}"
    yield "entry logs", str(len(values["entry_logs"]))
    yield "entry log bytes", str(values["entry_log_bytes"])
    yield "journal files", str(len(values["journal_files"]))
    if values["dirty"]:
        yield "shut down cleanly", "no (DIRTY exists)"
    if values["entry_logs"]:
        entries = values["index_entries"]
        checked = f"{entries}, compared with the ends of the logs"
        yield "index entries", "not read (--quick)" if entries is None else checked
    yield "findings", str(len(values["findings"]))


def _read_storage_flags(bookie: BookieDir, findings: list[Finding]) -> int | None:
    """Return the storage flags; None, with a finding, if damage hides them."""
    try:
        return bookie.index.storage_flags
    except CorruptionError as error:
        add_unreported(findings, [Finding.of(error)])
        return None


def _count_fenced(bookie: BookieDir, findings: list[Finding]) -> int:
    """Return the number of fenced ledgers; append to `findings` odd and unreadable states. A ledger
    of which damage was found already gets no further finding of damage."""
    fenced = 0
    for ledger_id in bookie.index.list_readable_ledgers().ledgers:
        try:
            state, state_findings = bookie.index.checked_state(ledger_id)
            fenced += state.fenced
            findings += state_findings
        except BkstoreError as error:
            damaged_ledgers = {each.ledger for each in findings if each.severity == "damage"}
            if ledger_id not in damaged_ledgers:
                add_unreported(findings, [Finding.of(error, ledger_id)])
    return fenced
