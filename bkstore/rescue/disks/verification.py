"""Verification of many records of many ledgers at once, with a checksum of each one's content."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry import RecordBatch, rows_of_ledgers
from bkstore.formats.entry.batches.coding import DecodedBatch, decode_records
from bkstore.formats.entry.batches.digests import digests_of
from bkstore.formats.entry.coder import CHECKSUMS
from bkstore.formats.entry.digest import Digest, new_digest
from bkstore.ids import Int64Array, LedgerId
from bkstore.rescue.disks.copies import DAMAGED, UNVERIFIED, VERIFIED
from bkstore.rescue.disks.wanted_ledgers import LedgerSecret, LedgerSecrets

_UNKNOWN = "DUMMY"
"""The digest type that is used if the type is unknown: all bytes after the header are payload."""


class VerifiedRecords(NamedTuple):
    """For n records of a batch, int64[n] each: their row numbers in it, ranks (`VERIFIED`,
    `UNVERIFIED` or `DAMAGED`), LACs, and checksums of their contents."""

    row: Int64Array
    rank: Int64Array
    lac: Int64Array
    content: Int64Array


class RecordVerifier:
    """Verifies records by the secrets of their ledgers; others' records are left out.

    Cost: 0.5 us a record, 3 us for each ledger in a batch. Threads: one at a time.
    """

    def __init__(self, secrets: LedgerSecrets) -> None:
        self._secrets = secrets
        self._digests: dict[tuple[str, bytes | None], Digest] = {}
        self._content_digest = new_digest("CRC32C", b"")

    def verify(
        self, records: RecordBatch, scopes: Int64Array, ledgers: Int64Array
    ) -> tuple[VerifiedRecords, list[tuple[LedgerId, Int64Array]]]:
        """Return the records of wanted ledgers in the batch's order, and (ledger, their row numbers
        in the result) of each ledger. `scopes` and `ledgers` are those of the batch's records."""
        # Number each record's secret; -1 for records of other ledgers.
        number_of_row = np.full(len(records), -1, np.int64)
        wanted: list[tuple[LedgerId, Int64Array]] = []
        for ledger_id, rows in rows_of_ledgers(scopes, ledgers):
            number = self._secrets.numbers.get(ledger_id)
            if number is not None:
                number_of_row[rows] = number
                wanted.append((ledger_id, rows))
        # Verify all records of one secret at once.
        kept = np.flatnonzero(number_of_row >= 0)
        columns = np.zeros((3, len(records)), np.int64)  # rank, LAC, checksum of the content
        for number in sorted({*number_of_row[kept].tolist()}):
            rows = np.flatnonzero(number_of_row == number)
            batch = records.take(rows)
            columns[:, rows] = self._verify_batch(batch, self._secrets.secrets[number])
        rank, lac, content = columns[:, kept]
        result = VerifiedRecords(kept, rank, lac, content)
        # `kept` ascends and has all of `rows`: the search gives their row numbers in the result.
        return result, [(ledger_id, np.searchsorted(kept, rows)) for ledger_id, rows in wanted]

    def _verify_batch(self, batch: RecordBatch, secret: LedgerSecret) -> Int64Array:
        """Return rank, LAC and content checksum of records of one secret, int64[3, n]."""
        if secret.digest_type is None:
            return self._verify_by_trial(batch, secret.password)
        decoded, failed = decode_records(self._digest(*secret), batch, None)
        rank = np.full(len(batch), VERIFIED, np.int64)
        if not secret.is_verifiable:
            # A record too short for header and digest was not decoded: no payload offset.
            is_short = decoded.offsets == batch.offsets
            failed = np.flatnonzero((decoded.entries != batch.entries) | is_short)
            rank[:] = UNVERIFIED
        rank[failed] = DAMAGED
        content = self._contents(batch, decoded, rank > DAMAGED)
        return np.array((rank, decoded.lacs, content), np.int64)

    def _verify_by_trial(self, batch: RecordBatch, password: bytes | None) -> Int64Array:
        """Return what `_verify_batch` does, for records whose digest type is unknown. A record that
        no type verifies stays unverified: it may have a digest of another type, or none."""
        best = self._verify_batch(batch, LedgerSecret(_UNKNOWN, None))
        trials = [*CHECKSUMS, *(["HMAC"] if password is not None else [])]
        for digest_type in trials:
            result = self._verify_batch(batch, LedgerSecret(digest_type, password))
            is_better = result[0] > best[0]  # row 0 has the ranks
            best[:, is_better] = result[:, is_better]
        return best

    def _digest(self, digest_type: str | None, password: bytes | None) -> Digest:
        key = (digest_type or _UNKNOWN, password)
        if key not in self._digests:
            self._digests[key] = new_digest(key[0], b"" if password is None else password)
        return self._digests[key]

    def _contents(
        self, batch: RecordBatch, decoded: DecodedBatch, is_readable: npt.NDArray[np.bool_]
    ) -> Int64Array:
        """Return a checksum of each record's length field and payload, 0 for unreadable ones."""
        rows = np.flatnonzero(is_readable)
        lengths = decoded.lengths[rows].astype(">i8").view(np.uint8).reshape(-1, 8)
        view = memoryview(batch.buffer)
        starts = decoded.offsets[rows]
        ends = (starts + decoded.sizes[rows]).tolist()
        payloads = [bytes(view[start:end]) for start, end in zip(starts.tolist(), ends)]
        checksums = digests_of(self._content_digest, lengths, payloads)
        contents = np.zeros(len(batch), np.int64)
        contents[rows] = checksums.view(">u4").ravel()
        return contents
