"""Verify the digests of records. A record does not contain its digest type (unless it has a scope),
so the client's type and password must be given, for one ledger or for all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.entry_log.scan import LogBatch


class RecordDigests:
    """Verifies a log's batches, collects failing entries as runs; 100 ns a record and a digest."""

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._failed = EntryRuns()

    def verify(self, batch: LogBatch) -> None:
        """Verify the records of a batch."""
        failed = self._coder.decode_batch(batch.records()).failed
        if failed:
            failed_records = np.array(sorted(failed), np.int64)
            columns = (batch.scope_id, batch.ledger_id, batch.entry_id, batch.position)
            self._failed.add(*(column[failed_records] for column in columns))

    def findings(self, file: str) -> Iterator[CheckFinding]:
        """Yield findings on the entries that have failed since the last call."""
        failed, self._failed = self._failed, EntryRuns()
        detail = f"the {self._coder.digest.name} digest does not match"
        yield from failed.findings("bad-digest", "damage", detail, file)
