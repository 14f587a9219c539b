"""Entries: the record that travels from wire to journal to entry log: `docs/formats/entry.md`.

`coder` encodes and verifies entries: read it first. `header` has the fields before the digest,
`digest` the digests, `digest_trial` finds their type from records, `explicit_lac` has the body of
an explicit LAC, `batches` many records at once.
"""

from bkstore.formats.entry.batches.coding import DecodedBatch, Payloads
from bkstore.formats.entry.batches.ids import (
    BatchIds,
    BatchLedgers,
    order_by_ledger,
    read_batch_ids,
    rows_of_ledgers,
)
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.coder import CHECKSUMS, Coder, decode, encode, matching_checksum
from bkstore.formats.entry.digest import master_key
from bkstore.formats.entry.digest_trial import DigestTrial, DigestTypes, find_digest_type
from bkstore.formats.entry.explicit_lac import (
    decode_explicit_lac,
    encode_explicit_lac,
    explicit_lac_or_none,
)
from bkstore.formats.entry.header import (
    NO_ENTRY,
    V1_HEADER,
    V2_HEADER,
    Entry,
    RecordHeader,
    is_v2,
    record_header,
    record_ids,
)

__all__ = [
    "CHECKSUMS",
    "NO_ENTRY",
    "V1_HEADER",
    "V2_HEADER",
    "BatchIds",
    "BatchLedgers",
    "Coder",
    "DecodedBatch",
    "DigestTrial",
    "DigestTypes",
    "Entry",
    "Payloads",
    "RecordBatch",
    "RecordHeader",
    "decode",
    "decode_explicit_lac",
    "encode",
    "encode_explicit_lac",
    "explicit_lac_or_none",
    "find_digest_type",
    "is_v2",
    "master_key",
    "matching_checksum",
    "order_by_ledger",
    "read_batch_ids",
    "record_header",
    "record_ids",
    "rows_of_ledgers",
]
