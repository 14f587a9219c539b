"""Indexes for the dump rows, and the baseline that dumps row by row.

`python -m tools.bench.inputs.dump_indexes KIND ENTRIES JOBS` makes an index, dumps it in a
process of its own and prints seconds and peak memory as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bkstore import open_index
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId, split_location
from bkstore.index.api import IndexBatch
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.tables import ENTRIES
from tools.bench.inputs.own_memory import measure_peak

LookupIndex = Literal["idx", "rocksdb"]
LOOKUP_INDEXES: tuple[LookupIndex, ...] = ("idx", "rocksdb")
_ENTRIES_PER_LEDGER = 100_000
_ROWS_PER_WRITE = 100_000


def make_index(layout: LookupIndex, directory: Path, entries: int, seed: int = 1) -> Path:
    """Write an index of complete ledgers; each has a log with records of 200 to 2,000 bytes."""
    batches = _ledger_batches(entries, np.random.default_rng(seed))
    if layout == "idx":
        with HierarchicalIndex(directory, writable=True) as files:
            for rows in batches:
                files.put_many(int(rows.ledger_id[0]), rows.entry_id, rows.location)
    else:
        with RocksIndex(directory, writable=True) as database:
            database.bulk_load(batches)
    return directory


def _ledger_batches(entries: int, rng: np.random.Generator) -> Iterator[IndexBatch]:
    for number, first_entry in enumerate(range(0, entries, _ENTRIES_PER_LEDGER)):
        ids = np.arange(min(_ENTRIES_PER_LEDGER, entries - first_entry), dtype=np.int64)
        positions = 1028 + np.cumsum(rng.integers(200, 2000, ids.size))
        yield IndexBatch.of_ledger(LedgerId.of(number), ids, positions + (number << 32))


def dump_by_row(path: Path, target: Path) -> int:
    """Write the `entries` table with a plain dict per row; return the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = ENTRIES.to_arrow(), 0
    rows: list[dict[str, Any]] = []
    with open_index(path) as index, pq.ParquetWriter(target, schema, compression="zstd") as file:
        for ledger in index.ledgers():
            scope, number = ledger.signed
            for entry in index.entries(ledger).tolist():
                log, position = split_location(index.get(ledger, entry) or 0)
                values = ("bookie", 0, scope, number, entry, log, position, None)
                rows.append(dict(zip(ENTRIES.names, values)))
                count += 1
                if len(rows) == _ROWS_PER_WRITE:
                    file.write_table(pa.Table.from_pylist(rows, schema=schema))
                    rows = []
        file.write_table(pa.Table.from_pylist(rows, schema=schema))
    return count


def main(arguments: list[str]) -> dict[str, Any]:
    """Write an index and dump it; return rows, seconds and bytes of memory."""
    if len(arguments) != 3 or arguments[0] not in LOOKUP_INDEXES:
        raise InvalidArgument("python -m tools.bench.inputs.dump_indexes idx|rocksdb ENTRIES JOBS")
    kind: LookupIndex = "idx" if arguments[0] == "idx" else "rocksdb"
    with tempfile.TemporaryDirectory() as directory:
        path = make_index(kind, Path(directory) / "bookie", int(arguments[1]))
        import pyarrow.parquet  # noqa: F401  (loaded before the clock runs)

        with measure_peak() as figures:
            result = dump([path], Path(directory) / "out", jobs=int(arguments[2]))
    return {**figures, "rows": result.rows["entries"]}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
