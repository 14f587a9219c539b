"""Atomic output of a compaction: `.log.compacting`, then `.log.<old>.compacted`.

Steps of `TransactionalEntryLogCompactor`, each durable before the next:

1. live records are written to ``<new>.log.compacting``, which gets a ledgers map and is synced;
2. it is linked to ``<new>.log.<old>.compacted`` and to ``<new>.log``; its first name is removed;
3. the index is pointed at the new log;
4. ``.compacted`` is removed, then the old log.

`drop_unfinished_outputs` and `finish_compactions` clean up after a crash. (BookKeeper's recovery
names the final log by its id in decimal, not hex, so that no location finds logs from id 10 on.)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import log_name
from bkstore.ids import Int64Array
from bkstore.storage.entry_log.writer import EntryLogger

COMPACTING_SUFFIX = ".compacting"
COMPACTED_NAME = re.compile(r"(0|[1-9a-f][0-9a-f]{0,7})\.log\.(0|[1-9a-f][0-9a-f]{0,7})\.compacted")
_UNFINISHED_PATTERN = re.compile(r"(0|[1-9a-f][0-9a-f]{0,7})\.log\.compacting")


class CompactionOutput:
    """The new log for the live records of a log being compacted. Used by one thread."""

    def __init__(self, logger: EntryLogger, old_id: int) -> None:
        self._logger = logger
        self._files: Files = logger.files
        self._old_id = old_id
        self._log = logger.create_temporary(COMPACTING_SUFFIX)
        self._recovery_marker: Path | None = None

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[Int64Array]:
        """Append the records of a framed batch; yield once their future locations, int64[n]. (An
        iterator, as `EntryLogger.add_batch` returns, which takes several logs.)"""
        if any(ledger_id.scope for ledger_id in ledgers.ledger_ids):  # 128-bit ids
            self._log.set_version_2()
        yield self._log.add_batch(batch, ledgers)

    def publish(self) -> None:
        """Finish and sync the log; link it to its final name and to the recovery marker."""
        self._log.write_ledgers_map()
        self._log.sync()
        self._log.close()
        directory = self._log.path.parent
        final_path = directory / log_name(self._log.log_id)
        self._recovery_marker = directory / f"{final_path.name}.{self._old_id:x}.compacted"
        with convert_write_errors(self._recovery_marker):
            # The marker first: after a crash from here on, the next start finishes the compaction.
            self._files.link(self._log.path, self._recovery_marker)
            self._files.link(self._log.path, final_path)
        with convert_sync_errors(directory):
            self._files.sync_dir(directory)
        self._logger.publish(self._log.log_id, final_path)

    def discard(self) -> None:
        """Remove the temporary name; needed after success and failure."""
        self._log.close()
        with convert_write_errors(self._log.path):
            if self._log.path.exists():
                self._files.unlink(self._log.path)

    def remove_recovery_marker(self) -> None:
        """Remove the recovery marker; call it once the index points at the new log."""
        if self._recovery_marker is not None:
            with convert_write_errors(self._recovery_marker):
                self._files.unlink(self._recovery_marker)


def drop_unfinished_outputs(currents: Sequence[Path], files: Files) -> None:
    """Remove compaction output that was not finished before a crash."""
    for current in currents:
        for name in sorted(os.listdir(current)):
            if _UNFINISHED_PATTERN.fullmatch(name):  # other names are not a writer's
                with convert_write_errors(current / name):
                    files.unlink(current / name)


def list_compacted_logs(currents: Sequence[Path]) -> list[tuple[Path, int, int]]:
    """Return (path, new log id, old log id) of output that the index may not point at yet."""
    outputs = []
    for current in currents:
        for name in sorted(os.listdir(current)):
            match = COMPACTED_NAME.fullmatch(name)
            if match:
                outputs.append((current / name, int(match[1], 16), int(match[2], 16)))
    return outputs


def finish_compactions(
    logger: EntryLogger, currents: Sequence[Path], relocate: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Finish compactions interrupted by a crash; return the (new, old) log ids finished.

    `relocate(new, old)` durably points the index at the new log, and returns whether it did. Then
    the recovery marker and the old log are removed; otherwise both stay.
    """
    finished = []
    for path, new_id, old_id in list_compacted_logs(currents):
        final_path = path.parent / log_name(new_id)
        if not final_path.exists():  # the crash was between the two links of `publish`
            with convert_write_errors(final_path):
                logger.files.link(path, final_path)
            with convert_sync_errors(path.parent):
                logger.files.sync_dir(path.parent)
        logger.publish(new_id, final_path)
        if not relocate(new_id, old_id):
            continue
        with convert_write_errors(path):
            logger.files.unlink(path)
        if old_id in logger.log_ids:
            logger.remove(old_id)
        finished.append((new_id, old_id))
    return finished
