"""The `metadata-cache` database: entry log metadata kept by a bookie's garbage collection.

A RocksDB database in ``current/`` (with `gcEntryLogMetadataCacheEnabled`): key i64 log id, value
the metadata of a closed log without deleted ledgers. Empty after a compaction; the next pass of
garbage collection fills it again. Source: `bookie/PersistentEntryLogMetadataMap`.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.formats.entrylog import LogMetadata
from bkstore.storage.directories.unknown_files import METADATA_CACHE


def read_metadata_cache(current: Path, live: bool = False) -> dict[int, LogMetadata]:
    """Return the metadata by log id (the ledgers in a log, with their bytes) that a bookie cached
    in a database; empty if `current` has none. Never writes there. Raises `CorruptionError` for a
    malformed row, and the errors of opening a RocksDB database."""
    path = current / METADATA_CACHE
    if not os.path.lexists(path):
        return {}
    from bkstore.index.rocks.table_database import open_ledgers

    with closing(open_ledgers(path, live)) as database:
        return dict(_decode_row(path, key, value) for key, value in database.read_all())


def _decode_row(path: Path, key: bytes, value: bytes) -> tuple[int, LogMetadata]:
    """Return (log id, metadata) of a row; raises `CorruptionError` if its key is another log's."""
    try:
        metadata = LogMetadata.from_bytes(value)
    except CorruptionError as error:
        detail = f"row of key {key[:40].hex()}: {error.reason}"
        raise CorruptionError(path, None, detail) from None
    if key != metadata.log_id.to_bytes(8, "big"):
        detail = f"row of key {key[:40].hex()} is of log {metadata.log_id}"
        raise CorruptionError(path, None, detail)
    return metadata.log_id, metadata
