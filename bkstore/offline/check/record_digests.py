"""Verifying records: the digest that says whether a record is as its writer made it.

A record does not name its digest type (but for those of other scopes), so the type and password
of one ledger's or all ledgers' client have to be given.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.entry_log.scan import LogBatch


class RecordDigests:
    """Verifies batches of one log, and keeps the entries that fail as runs.

    Cost: some 100 ns a record and the digest of its bytes.
    """

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._failed = EntryRuns()

    def verify(self, batch: LogBatch) -> None:
        """Verify the records of a batch."""
        failed = self._coder.decode_batch(batch.records()).failed
        if failed:
            at = np.array(sorted(failed), np.int64)
            columns = (batch.scope_id, batch.ledger_id, batch.entry_id, batch.position)
            self._failed.add(*(column[at] for column in columns))

    def findings(self, file: str) -> Iterator[CheckFinding]:
        """Yield what failed since the last call."""
        failed, self._failed = self._failed, EntryRuns()
        why = f"the {self._coder.digest.name} digest does not fit"
        yield from failed.findings("bad-digest", "damage", why, file)
