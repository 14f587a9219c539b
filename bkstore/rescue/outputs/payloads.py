"""The payloads of rescued records, without header and digest."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.formats.entry import DigestTypes, RecordBatch
from bkstore.formats.entry.batches.coding import decode_records
from bkstore.formats.entry.digest import new_digest
from bkstore.ids import Int64Array, LedgerId
from bkstore.rescue.disks.wanted_ledgers import LedgerSecrets


class PayloadBatch(NamedTuple):
    """Entries: fields of their headers, int64[n] each, and their payloads."""

    entry_id: Int64Array
    lac: Int64Array
    length: Int64Array
    payloads: list[bytes]


class PayloadReader:
    """Reads payloads by the digest types of their ledgers. Where the metadata have none, the type
    is found by trial; if that fails, the digest stays before the payload."""

    def __init__(self, secrets: LedgerSecrets) -> None:
        self._secrets = secrets
        self._trials = DigestTypes()

    def read(self, ledger_id: LedgerId, records: RecordBatch) -> PayloadBatch:
        """Return the payloads of records of one ledger. About 0.5 us a record."""
        secret = self._secrets.secret_of(ledger_id)
        # Digests were compared when the records were read: here they are only skipped.
        decoded, _ = decode_records(new_digest("DUMMY"), records, None)
        ids = (decoded.entries, decoded.lacs, decoded.lengths)
        if secret.digest_type is None:
            return PayloadBatch(*ids, self._trials.payloads(ledger_id, records.records()))
        starts = (decoded.offsets + new_digest(secret.digest_type, b"").size).tolist()
        ends = (records.offsets + records.sizes).tolist()
        view = memoryview(records.buffer)
        payloads = [bytes(view[start:end]) for start, end in zip(starts, ends)]
        return PayloadBatch(*ids, payloads)
