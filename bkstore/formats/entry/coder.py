"""Encoding entries and verifying records, for one ledger password and digest type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from bkstore.arguments import data as as_data, each, instance
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.batches.coding import (
    DecodedBatch,
    Payloads,
    check_as_many,
    decoded,
    encode_batch,
    payload_list,
)
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.digest import DIGEST_SIZES, Digest, digest_name, new_digest
from bkstore.formats.entry.header import NO_ENTRY, Entry, encode_header, record_header
from bkstore.ids import Int64Array, IntArrayLike, LedgerId, check_entry_id, check_integer

CHECKSUMS = ("CRC32C", "CRC32")
"""The digest types that need no password."""

_check_entry = instance(Entry)
_check_batch = instance(RecordBatch)
_FEW = 16  # entries below which one by one is cheaper than arrays


class Coder:
    """Encodes and verifies the entries of one ledger password and digest type.

    Keeps the HMAC key, so that many entries cost no more than their digests. Stateless else.

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
        return b"".join((header, self.digest.of(header, payload), payload))

    def encode_many(
        self,
        ledger: int | LedgerId,
        entries: Iterable[int],
        payloads: Sequence[bytes],
        *,
        lac: int = NO_ENTRY,
        length: int = 0,
    ) -> list[bytes]:
        """Return the records of a writer that sends `entries` in this order.

        `lac` and `length` are the ledger's before the first; each entry carries the highest
        id sent before it as LAC, and the payload bytes up to and including its own. The records
        of `encode_batch`, each by itself.
        """
        bodies, ids = payload_list(payloads), list(each("entries", entries))
        if len(bodies) >= _FEW:
            return self.encode_batch(ledger, ids, bodies, lac=lac, length=length).records()
        check_as_many(len(ids), len(bodies))
        lac, length = check_integer(lac, "LAC"), check_integer(length, "length")
        records = []
        for entry, payload in zip(ids, bodies):
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

        `entries` are n ids; `payloads` a list of n, rows of equal length (uint8[n, size]), or a
        buffer with offsets. `lac` and `length` as in `encode_many`, whose bytes these are; or
        `lac` is what each says, int64[n], as of a writer that sends many before any is confirmed.
        Raises `InvalidArgument` for ids, numbers or payloads that are none, or not equally many.

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
        """Return what the records of a batch say, verified; names each that does not verify.

        Each is held against the entry id that the batch gives it, and against `ledger`, as by
        `decode`; its error is that of `decode`. Nothing is raised for a record that fails.

        >>> coder = Coder("CRC32C", "pw")
        >>> batch = coder.encode_batch(7, range(3), [b"a", b"bc", b"def"])
        >>> found = coder.decode_batch(batch, 7)
        >>> found.failed, found.payload(2), found.lacs.tolist()
        ({}, b'def', [-1, 0, 1])
        """
        name = None if ledger is None else LedgerId.of(ledger)
        _check_batch("batch", batch)
        found, doubtful = decoded(self.digest, batch, name)
        for at in doubtful.tolist():
            try:
                self.decode(batch[at], name, int(batch.entries[at]))
            except CorruptionError as error:
                found.failed[at] = error
        return found

    def decode(
        self,
        record: bytes | memoryview,
        ledger: int | LedgerId | None = None,
        entry_id: int | None = None,
    ) -> Entry:
        """Return the verified entry. Raises `CorruptionError` otherwise.

        Checked in the order of `DigestManager.verifyDigest`: length, digest, ledger, entry id.
        """
        data = as_data("record", record)
        header = record_header(data)
        start = header.size + self.digest.size
        if header.digest not in (None, self.digest.number):
            said = digest_name(header.digest or 0)
            raise CorruptionError(None, 0, f"entry has digest {said}, not {self.digest.name}")
        if len(data) < start:
            detail = f"header and {self.digest.name} digest take {start}"
            raise CorruptionError(None, 0, f"entry of {len(data)} bytes: {detail}")
        payload = data[start:]
        if self.digest.of(data[: header.size], payload) != data[header.size : start]:
            reason = f"{self.digest.name} digest of entry {header.entry_id} does not match"
            raise CorruptionError(None, header.size, reason)
        if ledger is not None and header.ledger != LedgerId.of(ledger):
            raise CorruptionError(None, 0, f"entry of ledger {header.ledger}, not {ledger}")
        if entry_id is not None and header.entry_id != check_integer(entry_id, "entry id"):
            raise CorruptionError(None, 0, f"entry {header.entry_id}, not {entry_id}")
        return Entry(*header[:4], payload)


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
    """Return the entry that a record holds; a digest that does not match is `CorruptionError`.

    Without a digest type nothing is verified, and what stands behind the header of a version 1
    record comes as the payload, digest included: the record does not say how long that is.
    """
    if digest_type is not None:
        return Coder(digest_type, password).decode(record)
    record = as_data("record", record)
    header = record_header(record)
    skip = 0 if header.digest is None else DIGEST_SIZES[digest_name(header.digest)]
    return Entry(*header[:4], record[header.size + skip :])


def fitting_checksum(record: bytes) -> str | None:
    """Return the type of `CHECKSUMS` that verifies a record, None if none does.

    >>> fitting_checksum(encode(Entry(7, 0, -1, 5, b"hello"), "CRC32"))
    'CRC32'
    """
    for digest_type in CHECKSUMS:
        with suppress(CorruptionError, InvalidArgument):
            Coder(digest_type).decode(record)
            return digest_type
    return None
