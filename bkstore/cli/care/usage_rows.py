"""What `bkstore usage` answers with, by what it is asked by: tables made of a `Usage`."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bkstore.ids import signed64
from bkstore.offline.usage import IndexPart, LogUsage, Usage
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import (
    USAGE,
    USAGE_BY_LEDGER,
    USAGE_BY_LOG,
    USAGE_BY_LOG_AND_LEDGER,
    USAGE_BY_SCOPE,
    USAGE_OF_CACHES,
    USAGE_OF_INDEX,
    Schema,
    Table,
)

_ROWS = 1 << 12
Rows = Iterator[tuple[Any, ...]]


class Answer(NamedTuple):
    """A table, and what makes its rows, without the bookie's name."""

    schema: Schema
    rows: Callable[[BookieDir, Usage, argparse.Namespace], Rows]

    def tables(self, bookie: BookieDir, usage: Usage, args: argparse.Namespace) -> Iterator[Table]:
        """Yield the answer about one bookie in pieces."""
        rows: list[tuple[Any, ...]] = []
        for row in self.rows(bookie, usage, args):
            rows.append((bookie.bookie_id, *row))
            if len(rows) == _ROWS:
                yield Table.from_rows(self.schema, rows)
                rows = []
        yield Table.from_rows(self.schema, rows)


def _bookie(bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    _read(usage.logs())
    ledgers, totals, parts = usage.ledgers(), usage.totals, usage.index()
    rows = [part.row_bytes for part in parts if part.part != "ledgers"]
    known = [size for size in rows if size is not None]
    yield (
        bookie.layout,
        len(bookie.index.ledgers()),
        sum(each.live for each in ledgers),
        sum(each.entries or 0 for each in ledgers),
        totals.logs,
        totals.file_bytes,
        totals.record_bytes,
        totals.live_bytes,
        totals.garbage_bytes,
        totals.other_bytes,
        totals.pinned_logs,
        totals.pinned_bytes,
        totals.removable_logs,
        totals.compactable_logs,
        totals.damaged_logs,
        totals.moved_bytes,
        totals.given_back,
        sum(part.file_bytes for part in parts),
        sum(part.disk_bytes for part in parts),
        sum(known) if len(known) == len(rows) else None,
        sum(path.stat().st_size for path in bookie.journals),
    )


def _read(logs: Iterable[LogUsage]) -> None:
    deque(logs, maxlen=0)


def _by_log(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    for each in usage.logs():
        log = each.log
        yield (
            log.dir_index,
            log.log_id,
            log.path.rpartition("/")[2],
            log.bytes,
            each.source,
            len(each.ledgers),
            len(each.live),
            each.record_bytes,
            each.live_bytes,
            each.record_bytes - each.live_bytes,
            each.occupancy,
            usage.is_pinned(each),
            each.fate,
            each.given_back,
        )


def _by_ledger(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    _read(usage.logs())
    for each in usage.ledgers():
        ids = (*each.ledger.signed, each.ledger.qualified_name)
        sizes = (each.bytes, each.live_bytes, each.bytes - each.live_bytes)
        yield (*ids, each.live, each.entries, each.logs, *sizes, each.pinned_logs)


def _by_scope(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    _read(usage.logs())
    for each in usage.scopes():
        sizes = (each.bytes, each.live_bytes, each.bytes - each.live_bytes)
        counts = (each.ledgers, each.live_ledgers, each.entries)
        yield (signed64(each.scope), *counts, *sizes)


def _by_log_and_ledger(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    for each in usage.logs():
        place = (each.log.dir_index, each.log.log_id)
        for name, size in sorted(each.ledgers.items()):
            yield (*place, *name.signed, size, name in each.live)


def _of_index(_bookie: BookieDir, usage: Usage, _args: argparse.Namespace) -> Rows:
    for part in usage.index():
        sizes = (part.files, part.file_bytes, part.disk_bytes)
        known = (part.rows, part.row_bytes, part.pages)
        yield (part.dir_index, part.part, part.path, *sizes, *known, *_said(part))


def _said(part: IndexPart) -> tuple[int | None, ...]:
    said = part.sizes
    if said is None:
        return (None,) * 6
    dead = part.dead_rows if part.part.startswith("locations") else None
    deletions = (said.tombstones, said.range_tombstones)
    return (said.table_bytes, said.estimated_rows, dead, *deletions, said.waiting)


def _of_caches(_bookie: BookieDir, usage: Usage, args: argparse.Namespace) -> Rows:
    _read(usage.logs())
    for need in usage.caches(args.readers, args.read_ahead):
        told = (need.setting, need.purpose, need.value, need.unit)
        yield (*told, need.default, need.formula, need.source)


ANSWERS = {
    "bookie": Answer(USAGE, _bookie),
    "log": Answer(USAGE_BY_LOG, _by_log),
    "ledger": Answer(USAGE_BY_LEDGER, _by_ledger),
    "scope": Answer(USAGE_BY_SCOPE, _by_scope),
    "log-and-ledger": Answer(USAGE_BY_LOG_AND_LEDGER, _by_log_and_ledger),
    "index": Answer(USAGE_OF_INDEX, _of_index),
    "cache": Answer(USAGE_OF_CACHES, _of_caches),
}
"""By the word of ``--by``."""
