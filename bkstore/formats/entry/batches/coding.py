"""Encoding and verifying many entries of a ledger at once: `Coder.encode_batch`, `decode_batch`.
The bytes and the rules are the same as in `coder`, which handles entries one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.arguments import bytes_like, describe_value, iterable
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.batches.digests import Bytes2D, digests_of, row_bytes
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.digest import Digest
from bkstore.formats.entry.header import FLAGS_V2, NO_ENTRY, V1_HEADER, V2_BIT, V2_HEADER
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES, Bytes, bytes_at, windows
from bkstore.ids import (
    MAX_ENTRY_ID,
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    check_integer,
)

Payloads = Sequence[bytes] | npt.NDArray[np.uint8] | RecordBatch
"""Payloads of entries: a list, rows of equal length (uint8[n, size]), or a buffer with offsets."""

_V1 = np.dtype([("ledger", ">i8"), ("entry", ">i8"), ("lac", ">i8"), ("length", ">i8")])
_V2 = np.dtype([("flags", "u1"), ("scope", ">i8"), *((name, ">i8") for name in _V1.names or ())])
_BLOCK_RECORDS = 1 << 12
"""Records encoded at a time, so that the intermediate arrays stay in the processor's caches."""


class DecodedBatch(NamedTuple):
    """The fields of a batch's records, int64[n] each, and where their payloads are in the buffer.
    `failed` maps the index of each record that does not verify, ascending, to its
    `CorruptionError`; the columns have its fields as stored, zeros if it is too short."""

    batch: RecordBatch
    entries: Int64Array
    lacs: Int64Array
    lengths: Int64Array
    offsets: Int64Array
    sizes: Int64Array
    failed: dict[int, CorruptionError]

    def payload(self, index: int) -> bytes:
        """Return the payload of a record; raises the record's error if it does not verify."""
        if index in self.failed:
            raise self.failed[index]
        start = int(self.offsets[index])
        return bytes(self.batch.buffer[start : start + int(self.sizes[index])])


def encode_batch(
    digest: Digest,
    ledger: int | LedgerId,
    entries: IntArrayLike,
    payloads: Payloads,
    lac: int | Int64Array,
    length: int,
) -> RecordBatch:
    """Return the records of a writer that sends the ids `entries` in this order, in one buffer of
    frames (a 4-byte size, then the record). `lac` is the last add confirmed before the first entry,
    or that of each entry; `length` the payload bytes of the ledger before the first entry."""
    ledger_id, entry_ids = LedgerId.of(ledger), as_entry_ids(entries)
    bodies = payloads_as_bytes(payloads)
    check_payload_count(entry_ids.size, len(bodies))
    lacs, length = _lac_of_each(lac, entry_ids), check_integer(length, "length")
    if length < 0:
        raise InvalidArgument(f"length {length} before the first entry")
    # Make all headers. The length in a header counts the ledger's payload bytes up to its entry.
    payload_sizes = np.fromiter(map(len, bodies), np.int64, entry_ids.size)
    added = int(payload_sizes.sum())
    if length + added >= 1 << 63:
        raise InvalidArgument(f"length {length} and {added} bytes do not fit 63 bits")
    lengths = np.cumsum(payload_sizes) + length
    headers = _encode_headers(ledger_id, digest.number, entry_ids, lacs, lengths)
    sizes = payload_sizes + headers.shape[1] + digest.size  # of the records
    # The frames follow each other in one buffer.
    frame_sizes = sizes + SIZE_FIELD_BYTES
    ends = np.cumsum(frame_sizes)
    out = np.empty(int(ends[-1]) if entry_ids.size else 0, np.uint8)
    # Each frame is size prefix, header, digest, payload; a block's frames are filled together.
    for start in range(0, entry_ids.size, _BLOCK_RECORDS):
        block = slice(start, min(start + _BLOCK_RECORDS, entry_ids.size))
        digests = digests_of(digest, headers[block], bodies[block])
        prefixes = sizes[block].astype(">i4").view(np.uint8).reshape(-1, SIZE_FIELD_BYTES)
        heads = np.concatenate((prefixes, headers[block], digests), axis=1)
        out_start = int(ends[start] - frame_sizes[start])
        _write_frames(
            out[out_start : int(ends[block.stop - 1])], frame_sizes[block], heads, bodies[block]
        )
    out.flags.writeable = False
    # A record is the end of its frame.
    return RecordBatch.of_frames(entry_ids, out.data, ends - sizes, sizes)


def _lac_of_each(lac: int | Int64Array, entries: Int64Array) -> Int64Array:
    """Return the LAC of each entry, int64[n]: as given, or if `lac` is a single number the highest
    of it and the ids before the entry, as for a writer whose adds are confirmed one by one."""
    lacs = np.asarray(lac)
    if lacs.shape not in ((), entries.shape) or lacs.dtype.kind != "i":
        given = describe_value(lac)
        raise InvalidArgument(f"LACs are an int or int64[{entries.size}], not {given}")
    if lacs.size and not NO_ENTRY <= lacs.min() <= lacs.max() <= MAX_ENTRY_ID:
        raise InvalidArgument(f"LAC {lacs.min()}..{lacs.max()} is outside -1..{MAX_ENTRY_ID}")
    if lacs.ndim:
        return lacs.astype(np.int64)
    return np.maximum.accumulate(np.append(lacs, entries))[:-1]


def _write_frames(out: Bytes, sizes: Int64Array, heads: Bytes2D, payloads: Sequence[bytes]) -> None:
    """Write frames of `sizes` bytes into `out`: each its head (size prefix, header, digest; a row
    of `heads`) and its payload."""
    width = heads.shape[1]
    if (sizes == sizes[0]).all():  # frames are rows of a table
        table = out.reshape(sizes.size, int(sizes[0]))
        table[:, :width] = heads
        payload_bytes = np.frombuffer(b"".join(payloads), np.uint8)
        table[:, width:] = payload_bytes.reshape(sizes.size, int(sizes[0]) - width)
        return
    # Join the payloads with zeros in place of the heads; one assignment then writes all heads.
    blanks_and_payloads = [bytes(width)] * (2 * sizes.size)
    blanks_and_payloads[1::2] = payloads
    out[:] = np.frombuffer(b"".join(blanks_and_payloads), np.uint8)
    frame_starts = np.cumsum(sizes) - sizes
    windows(out, width)[frame_starts] = heads.view(f"V{width}").ravel()


def check_payload_count(entries: int, payloads: int) -> None:
    """Raise `InvalidArgument` unless there is a payload for each entry."""
    if entries != payloads:
        raise InvalidArgument(f"{entries} entries, but {payloads} payloads")


def payloads_as_bytes(payloads: Payloads) -> Sequence[bytes]:
    """Return payloads as a list of bytes; raises `InvalidArgument` for any other type."""
    if isinstance(payloads, RecordBatch):
        return payloads.records()
    if isinstance(payloads, np.ndarray):
        if payloads.ndim != 2 or payloads.dtype != np.uint8:
            given = f"{payloads.dtype}{payloads.shape}"
            raise InvalidArgument(f"payloads as an array are uint8[n, size], not {given}")
        return row_bytes(payloads)
    if not isinstance(payloads, (list, tuple)):
        payloads = list(iterable("payloads", payloads))
    if {bytes}.issuperset(map(type, payloads)):
        return payloads
    return [bytes_like(f"payloads[{i}]", payload) for i, payload in enumerate(payloads)]


def _encode_headers(
    ledger_id: LedgerId, digest: int, entries: Int64Array, lacs: Int64Array, lengths: Int64Array
) -> Bytes2D:
    """Return the entries' headers, a row each: of version 2, which has a scope, if the ledger's
    scope is not 0, otherwise of version 1. `digest` is the number of the digest type."""
    table = np.empty(entries.size, _V2 if ledger_id.scope else _V1)
    if ledger_id.scope:
        table["flags"] = FLAGS_V2 | digest
        table["scope"] = ledger_id.signed[0]
    table["ledger"] = ledger_id.signed[1]
    table["entry"], table["lac"], table["length"] = entries, lacs, lengths
    return table.view(np.uint8).reshape(entries.size, table.dtype.itemsize)


def _verify_rows(
    digest: Digest, batch: RecordBatch, headers: Bytes2D, rows: Int64Array
) -> Int64Array:
    """Return those of the records number `rows`, all of one version, whose digest matches.
    `headers` has the header of each of them."""
    header_size = headers.shape[1]
    payload_start = header_size + digest.size
    starts = batch.offsets[rows] + payload_start
    ends = (batch.offsets[rows] + batch.sizes[rows]).tolist()
    payloads = [bytes(batch.buffer[start:end]) for start, end in zip(starts.tolist(), ends)]
    stored = bytes_at(batch.octets, batch.offsets[rows] + header_size, digest.size)
    verified: Int64Array = rows[(stored == digests_of(digest, headers, payloads)).all(axis=1)]
    return verified


def decode_records(
    digest: Digest, batch: RecordBatch, ledger: LedgerId | None
) -> tuple[DecodedBatch, Int64Array]:
    """Return the decoded batch with an empty `failed`, and the numbers of the records that did not
    verify: those that are too short, of another ledger or entry, or with a wrong digest."""
    data, count = batch.octets, len(batch)
    is_v2 = np.zeros(count, np.bool_)
    non_empty = batch.sizes > 0
    is_v2[non_empty] = data[batch.offsets[non_empty]] >= V2_BIT  # the version is in the first byte
    # `start` is where the payload begins in its record.
    columns = {column: np.zeros(count, np.int64) for column in ("entry", "lac", "length", "start")}
    is_verified = np.zeros(count, np.bool_)
    # For each version: read the headers, select those with the expected ids, verify their digests.
    for layout, header_size in ((_V1, V1_HEADER), (_V2, V2_HEADER)):
        is_version = is_v2 if layout is _V2 else ~is_v2
        rows = np.flatnonzero(is_version & (batch.sizes >= header_size + digest.size))
        if not rows.size:
            continue
        headers = bytes_at(data, batch.offsets[rows], header_size)
        table = headers.view(layout).ravel()
        for column in ("entry", "lac", "length"):
            columns[column][rows] = table[column]
        columns["start"][rows] = header_size + digest.size
        matches = table["entry"] == batch.entries[rows]
        if layout is _V2:
            matches &= (table["flags"] == FLAGS_V2 | digest.number) & (table["scope"] != 0)
        if ledger is not None:
            scope, number = ledger.signed
            scopes = table["scope"] if layout is _V2 else 0  # version 1 is of scope 0
            matches &= (table["ledger"] == number) & (scopes == scope)
        candidates = np.flatnonzero(matches)
        is_verified[_verify_rows(digest, batch, headers[candidates], rows[candidates])] = True
    # The payload is what is left of a record after header and digest.
    entries, lacs, lengths, starts = columns.values()
    offsets, sizes = batch.offsets + starts, batch.sizes - starts
    decoded = DecodedBatch(batch, entries, lacs, lengths, offsets, sizes, {})
    return decoded, np.flatnonzero(~is_verified)
