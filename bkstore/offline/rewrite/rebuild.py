"""Rebuilding an index from entry logs, where the old one is lost, damaged or not to be trusted.

Which records count: those of ledgers that the bookie knows, by its old index or by a master key
that its journals bring behind the last mark; of all ledgers, if asked or where no index says which
there are. Which copy of an entry wins: the last in log order, that is of the newest log, and the
last in it. Compaction appends its copies, and so does whoever adds an entry again, so this is the
one that an index names, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from bkstore.arguments import optional, truth
from bkstore.counts import counted
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE
from bkstore.ids import MAX_ENTRY_ID, LedgerId, make_locations
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.hierarchical import DEFAULT_MAX_PAGES
from bkstore.offline.rewrite.frame import (
    AS_IT_LIES,
    Opening,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.offline.rewrite.known_states import KnownLedgers, known_ledgers
from bkstore.offline.rewrite.log_names import LogNames, in_log_order
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout
from bkstore.storage.entry_log.scan import LogBatch, scan_log

_MOST_IN_FILES = DEFAULT_MAX_PAGES * (DEFAULT_PAGE_SIZE // 8) - 1


def rebuild_index(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: Layout,
    progress: Callable[[RewriteProgress], None] | None = None,
    *,
    all_ledgers: bool | None = None,
    link: bool = False,
    opening: Opening = AS_IT_LIES,
    files: Files = OS_FILES,
) -> RewriteResult:
    """Make `target`, new or an empty folder, the bookie of `source` with an index made of its logs.

    With `all_ledgers` every ledger with a record in the logs is made, deleted ones too; with False
    only those that the bookie knows; with None all, where the old index cannot say which there
    are. States are the old index's; of a ledger that it does not have, master key, fence and
    explicit LAC are the journals', and it is fenced where a fence may have been lost. The new
    index is compared with the rows found. Entry logs, journals, marks and cookies are copies
    (`link` makes hard links of the entry logs): what only journals have, a bookie replays.

    Damage in logs is passed over, with findings; the records behind it are found. Raises
    `UnsupportedLayout`, `InvalidArgument`, `DirectoryInUse`, `WriteFailed` as `convert` does.
    Memory: some 300 bytes a ledger and about 300 MiB. Cost: about 2 us a record, and the copy.

    >>> import tempfile
    >>> from bkstore import LedgerStorage, open_index
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(f"{top}/b", storage="sorted") as storage:
    ...         storage.set_master_key(7, b"key")
    ...         storage.add_entry(encode(Entry(7, 0, -1, 5, b"first"), "CRC32C"))
    ...     made = rebuild_index(f"{top}/b", f"{top}/c", "idx")
    ...     with open_index(f"{top}/b") as old, open_index(f"{top}/c") as new:
    ...         made.entries, new.get(7, 0) == old.get(7, 0), new.state(7) == old.state(7)
    0
    (1, True, True)
    """
    optional(truth)("all_ledgers", all_ledgers)
    with Rewrite(
        "rebuild-index",
        source,
        target,
        to,
        needs_index=False,
        opening=opening,
        link=link,
        progress=progress,
        files=files,
    ) as job:
        return _rebuilt(job, all_ledgers)


def _rebuilt(job: Rewrite, all_ledgers: bool | None) -> RewriteResult:
    known = known_ledgers(job.bookie, job.result.findings)
    logs = job.bookie.entry_logs
    choice = Choice(job, known, not known.told if all_ledgers is None else all_ledgers)
    names = LogNames(logs, choice.by_directory, job.to, job.result.directories)
    rows = RowsByKey(job.work, "rows", job.files)
    job.step("reading logs", sum(log.bytes for log in logs))
    for log in in_log_order(logs):
        for found in rows_of(choice, log, job.result.findings):
            rows.add(names.located(found))
            job.did(0, found.entry_id.size)
        job.did(log.bytes)
    states = known.states(choice.taken)
    job.write_index(rows, states, old_flags(job), rows.rows)
    job.result.duplicates = rows.duplicates
    tell_ledgers(job.result, choice)
    job.carry_logs(names, names.kept)
    job.carry_rest_and_compare(names, logs, rows, states)
    return job.finish()


class Choice:
    """Which ledgers' records count, and which were met: `taken`, `unknown`, `astray`.

    In db storage a record counts in the directory of its ledger only: no bookie looks elsewhere.
    `most` is the highest entry id that the new index has a place for.
    """

    def __init__(self, job: Rewrite, known: KnownLedgers, every: bool) -> None:
        self.known = known
        self.every = every
        self.count = job.result.directories
        self.most = MAX_ENTRY_ID if job.to == "rocksdb" else _MOST_IN_FILES
        self.by_directory = job.by_directory and self.count > 1
        self.taken: set[LedgerId] = set()
        self.unknown: set[LedgerId] = set()
        self.astray: set[LedgerId] = set()

    def takes(self, name: LedgerId, dir_index: int) -> bool:
        """Return whether a ledger's records in a directory count, and note it."""
        if self.by_directory and name.ledger % self.count != dir_index:
            self.astray.add(name)
            return False
        if not self.every and name not in self.known:
            self.unknown.add(name)
            return False
        self.taken.add(name)
        return True


def rows_of(choice: Choice, log: LogFile, findings: list[Finding]) -> Iterator[IndexBatch]:
    """Yield the rows of a log's records that count, in the order of the log.

    Damage is a finding; a log that cannot be read at all is one, too.
    """
    try:
        for batch in scan_log(log.path, findings, lambda name: choice.takes(name, log.dir_index)):
            yield _rows(_possible(batch, log, choice.most, findings), log)
    except BkstoreError as error:
        findings.append(Finding.of(error))


def _possible(batch: LogBatch, log: LogFile, most: int, findings: list[Finding]) -> LogBatch:
    """Return the records without those that the index has no place for: damage, mostly."""
    beyond = np.flatnonzero(batch.entry_id > most)
    if not beyond.size:
        return batch
    some = counted(beyond.size, "record of an entry", "records of entries")
    detail = f"{some} beyond id {most}, the highest that the index has a place for: left out"
    findings.append(Finding("damage", detail, log.path, int(batch.position[beyond[0]])))
    return batch.where(np.flatnonzero(batch.entry_id <= most))


def _rows(batch: LogBatch, log: LogFile) -> IndexBatch:
    shape = batch.entry_id.shape
    return IndexBatch(
        np.broadcast_to(np.int64(log.dir_index), shape),
        batch.scope_id,
        batch.ledger_id,
        batch.entry_id,
        make_locations(log.log_id, batch.position),
    )


def old_flags(job: Rewrite) -> int | None:
    """Return the storage flags of the old index, None where there are none or it is lost."""
    try:
        return job.bookie.index.storage_flags
    except SystemRefused:
        raise
    except BkstoreError:  # told of by known_ledgers
        return None


def tell_ledgers(result: RewriteResult, choice: Choice) -> None:
    """Add what is to be known of the ledgers that were made, and of those that were not."""
    result.left_out = len(choice.unknown)
    known, source = choice.known, str(result.source)
    lost = sorted(name for name in choice.taken if name not in known.indexed)
    if choice.every and not known.told and lost:
        detail = "no index says which ledgers there are: all that the entry logs hold are made"
        result.findings.append(Finding("oddity", detail, source))
    keyless = [name for name in lost if not known.state(name).master_key]
    if lost:
        of = f"{counted(len(lost), 'ledger has', 'ledgers have')} no state in the old index"
        detail = f"{of}: fenced, or as the journals say; {len(keyless)} without a master key"
        result.findings.append(Finding("oddity", detail, source, ledger=lost[0]))
    if choice.astray:
        some = counted(len(choice.astray), "ledger has", "ledgers have")
        detail = f"{some} records in a directory where no bookie looks for them: passed over there"
        result.findings.append(Finding("oddity", detail, source, ledger=min(choice.astray)))
