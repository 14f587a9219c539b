"""bkstore readlogmetadata: the ledgers of entry logs, and their bytes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from bkstore.cli.bookie.log_choice import add_logs, open_logs
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import report_findings, until_unchanged
from bkstore.errors import BkstoreError, DirectoryInUse
from bkstore.formats.entrylog import LogMetadata, log_name
from bkstore.index.api import Finding
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import LOG_METADATA, Table

ROWS_PER_TABLE = 1 << 12

_Found = tuple[int, str, str, LogMetadata]
"""(directory number, file name, source, metadata)."""

_NO_LEDGER = (None, None, None)


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_logs(parser)
    add_output(parser, LOG_METADATA)


def run(args: argparse.Namespace) -> int:
    """Print a row for each ledger of each log; what is damaged goes to stderr."""
    findings: list[Finding] = []
    with open_logs(args) as (bookie, logs):
        found = _by_log(logs, findings)
        if bookie is not None:
            found = chain(found, _kept(bookie, logs, args, findings))
        write_output(args, LOG_METADATA, until_unchanged(_tables(found), bookie))
    return report_findings(findings)


def _by_log(logs: list[LogFile], findings: list[Finding]) -> Iterator[_Found]:
    for log in logs:
        metadata, source = read_log_metadata(log.path, log.log_id, findings)
        yield log.dir_index, Path(log.path).name, source, metadata


def _kept(
    bookie: BookieDir, logs: list[LogFile], args: argparse.Namespace, findings: list[Finding]
) -> Iterator[_Found]:
    """Yield what garbage collection keeps of these logs, and of lost ones unless LOG is given."""
    wanted = {(log.dir_index, log.log_id) for log in logs}
    for number in range(len(bookie.folders.ledger)):
        if args.dir_index not in (None, number):
            continue
        try:
            kept = bookie.metadata_cache(number)
        except DirectoryInUse:
            raise
        except BkstoreError as error:  # the logs say what they have without it
            findings.append(Finding.of(error))
            continue
        for log_id, metadata in sorted(kept.items()):
            if args.log is None or (number, log_id) in wanted:
                yield number, log_name(log_id), "cache", metadata


def _tables(found: Iterator[_Found]) -> Iterator[Table]:
    rows: list[tuple[Any, ...]] = []
    for directory, name, source, metadata in found:
        totals = (metadata.total_size, metadata.remaining_size, metadata.usage)
        log = (directory, metadata.log_id, name, source, *totals)
        ledgers = [(*log, *key.signed, size) for key, size in sorted(metadata.ledgers.items())]
        rows += ledgers or [(*log, *_NO_LEDGER)]
        if len(rows) >= ROWS_PER_TABLE:
            yield Table.from_rows(LOG_METADATA, rows)
            rows = []
    yield Table.from_rows(LOG_METADATA, rows)
