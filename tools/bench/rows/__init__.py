"""The rows of the benchmark, in the order of the table in the design."""

from itertools import chain

from tools.bench.cases import BenchmarkRow
from tools.bench.rows import (
    audit,
    availability,
    bloom,
    dump,
    ensembles,
    leaks,
    listing,
    live_audit,
    maintenance,
    memtable,
    records,
    repair,
    rescue,
    rocks,
    serving,
    start,
    streams,
    wide_ids,
    wire,
)
from tools.bench.rows.ledgers import journals, memory, reads, scope_cost, writes

__all__ = ["ROWS"]

_ROWS_BY_MODULE: tuple[tuple[BenchmarkRow, ...], ...] = (
    *(availability.ROWS, rocks.ROWS, memtable.ROWS, bloom.ROWS, streams.ROWS, records.ROWS),
    *(reads.ROWS, writes.ROWS, journals.ROWS, wide_ids.ROWS, scope_cost.ROWS, memory.ROWS),
    *(
        listing.ROWS,
        audit.ROWS,
        live_audit.ROWS,
        repair.ROWS,
        rescue.ROWS,
        dump.ROWS,
        leaks.ROWS,
        maintenance.ROWS,
        start.ROWS,
    ),
    *(wire.ROWS, serving.ROWS, ensembles.ROWS),
)
ROWS: tuple[BenchmarkRow, ...] = tuple(chain.from_iterable(_ROWS_BY_MODULE))
