"""The rows of the benchmark, in the order of the design's table."""

from tools.bench.measure import Row
from tools.bench.rows import availability, memtable, rocks, scope

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (*availability.ROWS, *rocks.ROWS, *memtable.ROWS, *scope.ROWS)
