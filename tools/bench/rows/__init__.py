"""The rows of the benchmark, in the order of the design's table."""

from tools.bench.measure import Row
from tools.bench.rows import (
    audit,
    availability,
    bloom,
    dump,
    ledger_memory,
    ledger_reads,
    ledger_scope,
    ledger_writes,
    memtable,
    rocks,
    scope,
    streams,
)

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    *availability.ROWS,
    *rocks.ROWS,
    *memtable.ROWS,
    *bloom.ROWS,
    *streams.ROWS,
    *ledger_reads.ROWS,
    *ledger_writes.ROWS,
    *scope.ROWS,
    *ledger_scope.ROWS,
    *ledger_memory.ROWS,
    *audit.ROWS,
    *dump.ROWS,
)
