"""Encoding entries and verifying records, for one ledger password and digest type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from bkstore.arguments import bytes_like as as_data, instance, iterable
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.batches.coding import (
    DecodedBatch,
    Payloads,
    check_payload_count,
    decode_records,
    encode_batch,
    payloads_as_bytes,
)
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.digest import DIGEST_SIZES, Digest, digest_name, new_digest
from bkstore.formats.entry.header import NO_ENTRY, Entry, encode_header, record_header
from bkstore.ids import Int64Array, IntArrayLike, LedgerId, check_entry_id, check_integer

CHECKSUMS = ("CRC32C", "CRC32")
"""The digest types that need no password."""

_check_entry = instance(Entry)
_check_batch = instance(RecordBatch)
_MIN_BATCH_SIZE = 16  # below this, encoding one by one is cheaper than arrays


class Coder:
    """Encodes and verifies the entries of one ledger password and digest type. Keeps the HMAC key,
    so that each entry costs only its digest. Otherwise stateless.

    >>> coder = Coder("CRC32C", "pw")
    >>> coder.decode(coder.encode(Entry(7, 0, -1, 5, b"hello"))).payload
    b'hello'
    """

    def __init__(self, digest_type: str | int, password: bytes | str | None = None) -> None:
        self.digest: Digest = new_digest(digest_type, password)

    def encode(self, entry: Entry) -> bytes:
        """Return the record. Raises `InvalidArgument` for ids or numbers out of range."""
        if type(entry) is not Entry:
            _check_entry("entry", entry)
        header, payload = encode_header(entry, self.digest.number), entry.payload
        if type(payload) is not bytes:
            payload = as_data("payload", payload)
        return b"".join((header, self.digest.compute(header, payload), payload))

    def encode_many(
        self,
        ledger: int | LedgerId,
        entries: Iterable[int],
        payloads: Sequence[bytes],
        *,
        lac: int = NO_ENTRY,
        length: int = 0,
    ) -> list[bytes]:
        """Return the same records as `encode_batch`, as single bytes objects. `lac` and `length`
        are the ledger's before the first entry. Each entry carries as LAC the highest id sent
        before it, and as length the payload bytes up to and including its own."""
        bodies, entry_ids = payloads_as_bytes(payloads), list(iterable("entries", entries))
        if len(bodies) >= _MIN_BATCH_SIZE:
            return self.encode_batch(ledger, entry_ids, bodies, lac=lac, length=length).records()
        check_payload_count(len(entry_ids), len(bodies))
        lac, length = check_integer(lac, "LAC"), check_integer(length, "length")
        records = []
        for entry, payload in zip(entry_ids, bodies):
            entry = check_entry_id(entry)
            length += len(payload)
            records.append(self.encode(Entry(ledger, entry, lac, length, payload)))
            lac = max(lac, entry)
        return records

    def encode_batch(
        self,
        ledger: int | LedgerId,
        entries: IntArrayLike,
        payloads: Payloads,
        *,
        lac: int | Int64Array = NO_ENTRY,
        length: int = 0,
    ) -> RecordBatch:
        """Return the records of a writer that sends `entries` in this order, as one buffer.
        `entries` are n ids; `payloads` is a list of n, rows of equal length (uint8[n, size]), or a
        buffer with offsets. `lac` and `length` are as in `encode_many`; or `lac` has the LAC of
        each entry, int64[n]. Raises `InvalidArgument` for invalid values or unequal counts.

        >>> batch = Coder("CRC32C", "pw").encode_batch(7, range(3), [b"a", b"bc", b"def"])
        >>> batch.sizes.tolist(), bytes(batch[1]) == Coder("CRC32C", "pw").encode(
        ...     Entry(7, 1, 0, 3, b"bc")
        ... )
        ([37, 38, 39], True)
        """
        return encode_batch(self.digest, ledger, entries, payloads, lac, length)

    def decode_batch(
        self, batch: RecordBatch, ledger: int | LedgerId | None = None
    ) -> DecodedBatch:
        """Return the verified entries of a batch, and the error of each record that fails. Each is
        checked as by `decode`, against `ledger` and its entry id; nothing is raised.

        >>> coder = Coder("CRC32C", "pw")
        >>> batch = coder.encode_batch(7, range(3), [b"a", b"bc", b"def"])
        >>> decoded = coder.decode_batch(batch, 7)
        >>> decoded.failed, decoded.payload(2), decoded.lacs.tolist()
        ({}, b'def', [-1, 0, 1])
        """
        ledger_id = None if ledger is None else LedgerId.of(ledger)
        _check_batch("batch", batch)
        decoded, unverified = decode_records(self.digest, batch, ledger_id)
        for index in unverified.tolist():
            try:  # decoding the record by itself raises its error
                self.decode(batch[index], ledger_id, int(batch.entries[index]))
            except CorruptionError as error:
                decoded.failed[index] = error
        return decoded

    def decode(
        self,
        record: bytes | memoryview,
        ledger: int | LedgerId | None = None,
        entry_id: int | None = None,
    ) -> Entry:
        """Return the verified entry; `CorruptionError` if the record does not verify. Checked in
        the order of `DigestManager.verifyDigest`: length, digest, ledger, entry id."""
        data = as_data("record", record)
        header = record_header(data)
        payload_start = header.size + self.digest.size
        if header.digest is not None and header.digest != self.digest.number:
            stored = digest_name(header.digest)
            raise CorruptionError(None, 0, f"entry has digest {stored}, not {self.digest.name}")
        if len(data) < payload_start:
            detail = f"header and {self.digest.name} digest need {payload_start}"
            raise CorruptionError(None, 0, f"entry of {len(data)} bytes: {detail}")
        payload = data[payload_start:]
        if self.digest.compute(data[: header.size], payload) != data[header.size : payload_start]:
            reason = f"{self.digest.name} digest of entry {header.entry_id} does not match"
            raise CorruptionError(None, header.size, reason)
        if ledger is not None and header.ledger != LedgerId.of(ledger):
            raise CorruptionError(None, 0, f"entry of ledger {header.ledger}, not {ledger}")
        if entry_id is not None and header.entry_id != check_integer(entry_id, "entry id"):
            raise CorruptionError(None, 0, f"entry {header.entry_id}, not {entry_id}")
        return Entry(*header[:4], payload)  # ledger, entry id, LAC, length


def encode(entry: Entry, digest_type: str | int, password: bytes | str | None = None) -> bytes:
    """Return the record of an entry: version 1 for scope 0, else version 2.

    >>> encode(Entry(1, 0, -1, 5, b"hello"), "CRC32C", "testPasswd").hex()[64:]
    'e3a5f74d68656c6c6f'
    """
    return Coder(digest_type, password).encode(entry)


def decode(
    record: bytes | memoryview,
    digest_type: str | int | None = None,
    password: bytes | str | None = None,
) -> Entry:
    """Return the entry in a record; raise `CorruptionError` if its digest does not match. Without a
    `digest_type` nothing is verified. A record of version 1 does not tell its digest type, so the
    payload then includes the digest."""
    if digest_type is not None:
        return Coder(digest_type, password).decode(record)
    record = as_data("record", record)
    header = record_header(record)
    digest_size = 0 if header.digest is None else DIGEST_SIZES[digest_name(header.digest)]
    ids_lac_and_length = header[:4]
    return Entry(*ids_lac_and_length, record[header.size + digest_size :])


def matching_checksum(record: bytes) -> str | None:
    """Return the type of `CHECKSUMS` that verifies a record, None if none does.

    >>> matching_checksum(encode(Entry(7, 0, -1, 5, b"hello"), "CRC32"))
    'CRC32'
    """
    for digest_type in CHECKSUMS:
        with suppress(CorruptionError, InvalidArgument):
            Coder(digest_type).decode(record)
            return digest_type
    return None
