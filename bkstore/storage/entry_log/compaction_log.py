"""Compaction output that appears at once: `.log.compacting`, then `.log.<old>.compacted`.

Steps of `TransactionalEntryLogCompactor`, each durable before the next:

1. wanted records go to ``<new>.log.compacting``, which gets a ledgers map and is synced;
2. it is linked to ``<new>.log.<old>.compacted`` and to ``<new>.log``, the first name goes;
3. the index is pointed at the new log;
4. ``.compacted`` goes, then the old log.

`drop_unfinished` and `finish_compacted` clean up what a crash left. (As built upstream, recovery
names the final log by its id in decimal, so that from id 10 on no location finds it; here it is
hex as everywhere.)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import syncing, writing
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import log_name
from bkstore.ids import Int64Array
from bkstore.storage.entry_log.writer import EntryLogger

COMPACTING = ".compacting"
COMPACTED = re.compile(r"(0|[1-9a-f][0-9a-f]{0,7})\.log\.(0|[1-9a-f][0-9a-f]{0,7})\.compacted")
_UNFINISHED = re.compile(r"(0|[1-9a-f][0-9a-f]{0,7})\.log\.compacting")


class CompactionOutput:
    """The log that takes the wanted records of one that is compacted; one thread's."""

    def __init__(self, logger: EntryLogger, old_id: int) -> None:
        self._logger = logger
        self._files: Files = logger.files
        self._old_id = old_id
        self._log = logger.create_temporary(COMPACTING)
        self._linked: Path | None = None

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[Int64Array]:
        """Append the records of a framed batch; yield the locations they will have, int64[n]."""
        if any(name.scope for name in ledgers.names):
            self._log.mark_wide()
        yield self._log.add_batch(batch, ledgers)

    def publish(self) -> None:
        """Finish the log; give it its name, and the one that says what it replaces."""
        self._log.finish()
        self._log.sync()
        self._log.close()
        folder = self._log.path.parent
        final = folder / log_name(self._log.log_id)
        self._linked = folder / f"{final.name}.{self._old_id:x}.compacted"
        with writing(self._linked):
            self._files.link(self._log.path, self._linked)
            self._files.link(self._log.path, final)
        with syncing(folder):
            self._files.sync_dir(folder)
        self._logger.adopt(self._log.log_id, final)

    def discard(self) -> None:
        """Remove the first name, which nothing needs any more."""
        self._log.close()
        with writing(self._log.path):
            if self._log.path.exists():
                self._files.unlink(self._log.path)

    def settle(self) -> None:
        """Remove the name that asks for recovery: the index says the new log now."""
        if self._linked is not None:
            with writing(self._linked):
                self._files.unlink(self._linked)


def drop_unfinished(currents: Sequence[Path], files: Files) -> None:
    """Remove compaction output that was not finished when its writer went away."""
    for current in currents:
        for name in sorted(os.listdir(current)):
            if _UNFINISHED.fullmatch(name):  # a file of another name was not made by a writer
                with writing(current / name):
                    files.unlink(current / name)


def compacted_logs(currents: Sequence[Path]) -> list[tuple[Path, int, int]]:
    """Return (path, new log id, old log id) of finished output whose index switch is not sure."""
    found = []
    for current in currents:
        for name in sorted(os.listdir(current)):
            match = COMPACTED.fullmatch(name)
            if match:
                found.append((current / name, int(match[1], 16), int(match[2], 16)))
    return found


def finish_compacted(
    logger: EntryLogger, currents: Sequence[Path], switch: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Finish what a crash left: `switch(new, old)` points the index at the new log, durably.

    The old log and the name that asked for recovery go afterwards; both stay where `switch`
    could not do it. Returns the (new, old) pairs that are done.
    """
    done = []
    for path, new_id, old_id in compacted_logs(currents):
        final = path.parent / log_name(new_id)
        if not final.exists():
            with writing(final):
                logger.files.link(path, final)
            with syncing(path.parent):
                logger.files.sync_dir(path.parent)
        logger.adopt(new_id, final)
        if not switch(new_id, old_id):
            continue
        with writing(path):
            logger.files.unlink(path)
        if old_id in logger.log_ids:
            logger.remove(old_id)
        done.append((new_id, old_id))
    return done
