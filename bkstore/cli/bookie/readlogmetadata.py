"""bkstore readlogmetadata: the ledgers of entry logs, and their bytes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from bkstore.cli.bookie.log_arguments import add_log_arguments, open_logs
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import (
    check_unchanged_at_end,
    report_findings,
    report_unreadable,
)
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse
from bkstore.formats.entrylog import LogMetadata, log_name
from bkstore.index.api import Finding
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import LOG_METADATA

_ROWS_PER_TABLE = 1 << 12

_FileMetadata = tuple[int, str, str, LogMetadata]
"""(directory index, file name, source, metadata)."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_log_arguments(parser)
    add_output(parser, LOG_METADATA)


def run(args: argparse.Namespace) -> int:
    """Print a row for each ledger of each log; damage is reported on stderr."""
    findings: list[Finding] = []
    with open_logs(args) as (bookie, logs):
        file_metadata = _metadata_of_logs(logs, findings)
        if bookie is not None:  # None: DIR is a log file, of which no cache is known
            file_metadata = chain(file_metadata, _cached_metadata(bookie, logs, args, findings))
        tables = tables_of_rows(LOG_METADATA, _metadata_rows(file_metadata), _ROWS_PER_TABLE)
        write_output(args, LOG_METADATA, check_unchanged_at_end(tables, bookie))
    return report_findings(findings)


def _metadata_of_logs(logs: list[LogFile], findings: list[Finding]) -> Iterator[_FileMetadata]:
    for log in logs:
        try:
            metadata, source = read_log_metadata(log.path, log.log_id, findings)
        except CorruptionError as error:
            report_unreadable(error, findings, is_only_file=len(logs) == 1)
            continue
        yield log.dir_index, Path(log.path).name, source, metadata


def _cached_metadata(
    bookie: BookieDir, logs: list[LogFile], args: argparse.Namespace, findings: list[Finding]
) -> Iterator[_FileMetadata]:
    """Yield the metadata cached by garbage collection; without LOG, includes logs that are gone."""
    chosen_logs = {(log.dir_index, log.log_id) for log in logs}
    for dir_index in range(len(bookie.folders.ledger)):
        if args.dir_index not in (None, dir_index):
            continue
        try:
            cache = bookie.metadata_cache(dir_index)
        except DirectoryInUse:  # the bookie runs: what was read may have changed
            raise
        except BkstoreError as error:  # the logs themselves were read without it
            findings.append(Finding.of(error))
            continue
        for log_id, metadata in sorted(cache.items()):
            if args.log is None or (dir_index, log_id) in chosen_logs:
                yield dir_index, log_name(log_id), "cache", metadata


def _metadata_rows(files: Iterator[_FileMetadata]) -> Iterator[tuple[Any, ...]]:
    """Yield a row per ledger of each log, one with nulls for a log without ledgers."""
    for dir_index, file_name, source, metadata in files:
        totals = (metadata.total_size, metadata.remaining_size, metadata.usage)
        log_cells = (dir_index, metadata.log_id, file_name, source, *totals)
        for ledger_id, size in sorted(metadata.ledgers.items()):
            yield (*log_cells, *ledger_id.signed, size)
        if not metadata.ledgers:
            yield (*log_cells, None, None, None)
