"""Many entries of one ledger encoded or verified at once: `Coder.encode_batch`, `decode_batch`.

The bytes and the rules are those of `coder`, which does it one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.arguments import data, each, shown
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.batches.digests import Bytes2D, digests_of
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.digest import Digest
from bkstore.formats.entry.header import FLAGS_V2, NO_ENTRY, V1_HEADER, V2_HEADER
from bkstore.formats.syntax.framing import PREFIX, bytes_at, windows
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
_BLOCK = 1 << 12
"""Records worked on at a time: what is made of them stays in the processor's caches."""


class DecodedBatch(NamedTuple):
    """What the records of a batch say, int64[n] each; the payloads stay where they are.

    `failed` has a `CorruptionError` for each record that does not verify, by its place in the
    batch, ascending; of such a record the other columns say what its bytes do, zeros where it
    has no header.
    """

    batch: RecordBatch
    entries: Int64Array
    lacs: Int64Array
    lengths: Int64Array
    offsets: Int64Array
    sizes: Int64Array
    failed: dict[int, CorruptionError]

    def payload(self, at: int) -> bytes:
        """Return one payload; raises the record's error if it does not verify."""
        if at in self.failed:
            raise self.failed[at]
        start = int(self.offsets[at])
        return bytes(self.batch.buffer[start : start + int(self.sizes[at])])


# -- encoding


def encode_batch(
    digest: Digest,
    ledger: int | LedgerId,
    entries: IntArrayLike,
    payloads: Payloads,
    lac: int | Int64Array,
    length: int,
) -> RecordBatch:
    """Return the records of a writer that sends `entries` in this order, as one framed buffer."""
    name, ids = LedgerId.of(ledger), as_entry_ids(entries)
    bodies = payload_list(payloads)
    check_as_many(ids.size, len(bodies))
    lacs, length = _lacs(lac, ids), check_integer(length, "length")
    if length < 0:
        raise InvalidArgument(f"length {length} before the first entry")
    sizes = np.fromiter(map(len, bodies), np.int64, ids.size)
    if length + int(sizes.sum()) >= 1 << 63:
        raise InvalidArgument(f"length {length} and {int(sizes.sum())} bytes do not fit 63 bits")
    headers = _headers(name, digest.number, ids, lacs, np.cumsum(sizes) + length)
    sizes += headers.shape[1] + digest.size
    frames = sizes + PREFIX
    ends = np.cumsum(frames)
    out = np.empty(int(ends[-1]) if ids.size else 0, np.uint8)
    for at in range(0, ids.size, _BLOCK):
        part = slice(at, min(at + _BLOCK, ids.size))
        stored = digests_of(digest, headers[part], bodies[part])
        prefixes = sizes[part].astype(">i4").view(np.uint8).reshape(-1, PREFIX)
        heads = np.concatenate((prefixes, headers[part], stored), axis=1)
        start = int(ends[at] - frames[at])
        _fill(out[start : int(ends[part.stop - 1])], frames[part], heads, bodies[part])
    out.flags.writeable = False
    return RecordBatch.of_frames(ids, out.data, ends - sizes, sizes)


def _lacs(lac: int | Int64Array, entries: Int64Array) -> Int64Array:
    """Return the LAC of each entry: as given, or counted on from the one before the first."""
    given = np.asarray(lac)
    if given.shape not in ((), entries.shape) or given.dtype.kind != "i":
        raise InvalidArgument(f"LACs are an int or int64[{entries.size}], not {shown(lac)}")
    if given.size and not NO_ENTRY <= given.min() <= given.max() <= MAX_ENTRY_ID:
        raise InvalidArgument(f"LAC {given.min()}..{given.max()} is outside -1..{MAX_ENTRY_ID}")
    if given.ndim:
        return given.astype(np.int64)
    return np.maximum.accumulate(np.append(given, entries))[:-1]


def _fill(
    out: npt.NDArray[np.uint8], frames: Int64Array, heads: Bytes2D, bodies: Sequence[bytes]
) -> None:
    """Lay frames one behind the other; those of one size as columns of a table.

    `heads` are what stands before the payloads: size, header, digest.
    """
    width = heads.shape[1]
    if (frames == frames[0]).all():
        table = out.reshape(frames.size, int(frames[0]))
        table[:, :width] = heads
        rest = np.frombuffer(b"".join(bodies), np.uint8)
        table[:, width:] = rest.reshape(frames.size, int(frames[0]) - width)
        return
    parts = [bytes(width)] * (2 * frames.size)
    parts[1::2] = bodies
    out[:] = np.frombuffer(b"".join(parts), np.uint8)
    windows(out, width)[np.cumsum(frames) - frames] = heads.view(f"V{width}").ravel()


def check_as_many(entries: int, payloads: int) -> None:
    """Raise `InvalidArgument` unless there is a payload for each entry."""
    if entries != payloads:
        raise InvalidArgument(f"{entries} entries, but {payloads} payloads")


def payload_list(payloads: Payloads) -> Sequence[bytes]:
    """Return payloads as a list of bytes; `InvalidArgument` for what is none."""
    if isinstance(payloads, RecordBatch):
        return payloads.records()
    if isinstance(payloads, np.ndarray):
        if payloads.ndim != 2 or payloads.dtype != np.uint8:
            raise InvalidArgument(
                f"payloads as an array are uint8[n, size], not {payloads.dtype}{payloads.shape}"
            )
        return _rows(payloads)
    if not isinstance(payloads, (list, tuple)):
        payloads = list(each("payloads", payloads))
    if {bytes}.issuperset(map(type, payloads)):
        return payloads
    return [data(f"payloads[{at}]", body) for at, body in enumerate(payloads)]


def _rows(table: Bytes2D) -> list[bytes]:
    """Return the rows of a table as bytes."""
    count, width = table.shape
    if not width:
        return [b""] * count
    rows: list[bytes] = np.ascontiguousarray(table).view(f"V{width}").ravel().tolist()
    return rows


def _headers(
    name: LedgerId, number: int, entries: Int64Array, lacs: Int64Array, lengths: Int64Array
) -> Bytes2D:
    table = np.empty(entries.size, _V2 if name.scope else _V1)
    if name.scope:
        table["flags"] = FLAGS_V2 | number
        table["scope"] = name.signed[0]
    table["ledger"] = name.signed[1]
    table["entry"], table["lac"], table["length"] = entries, lacs, lengths
    return table.view(np.uint8).reshape(entries.size, table.dtype.itemsize)


# -- verifying


def matching(digest: Digest, batch: RecordBatch, headers: Bytes2D, at: Int64Array) -> Int64Array:
    """Return those of the records `at`, of one version, whose digest is that of their bytes."""
    width = headers.shape[1]
    start = width + digest.size
    bodies = batch.offsets[at] + start
    ends = (batch.offsets[at] + batch.sizes[at]).tolist()
    payloads = [bytes(batch.buffer[a:b]) for a, b in zip(bodies.tolist(), ends)]
    there = bytes_at(_bytes_of(batch), batch.offsets[at] + width, digest.size)
    same: Int64Array = at[(there == digests_of(digest, headers, payloads)).all(axis=1)]
    return same


def decoded(
    digest: Digest, batch: RecordBatch, ledger: LedgerId | None
) -> tuple[DecodedBatch, Int64Array]:
    """Return what a batch says with no `failed` yet, and which records need a second look."""
    data, count = _bytes_of(batch), len(batch)
    wide = np.zeros(count, np.bool_)
    some = batch.sizes > 0
    wide[some] = data[batch.offsets[some]] >= 0x80
    columns = {name: np.zeros(count, np.int64) for name in ("entry", "lac", "length", "start")}
    good = np.zeros(count, np.bool_)
    for layout, width in ((_V1, V1_HEADER), (_V2, V2_HEADER)):
        long_enough = batch.sizes >= width + digest.size
        at = np.flatnonzero((wide == (layout is _V2)) & long_enough)
        if not at.size:
            continue
        headers = bytes_at(data, batch.offsets[at], width)
        table = headers.view(layout).ravel()
        for name in ("entry", "lac", "length"):
            columns[name][at] = table[name]
        columns["start"][at] = width + digest.size
        fits = table["entry"] == batch.entries[at]
        if layout is _V2:
            fits &= (table["flags"] == FLAGS_V2 | digest.number) & (table["scope"] != 0)
        if ledger is not None:
            fits &= table["ledger"] == ledger.signed[1]
            fits &= table["scope"] == ledger.signed[0] if layout is _V2 else ledger.scope == 0
        chosen = np.flatnonzero(fits)
        good[matching(digest, batch, headers[chosen], at[chosen])] = True
    start = columns["start"]
    found = DecodedBatch(
        batch,
        columns["entry"],
        columns["lac"],
        columns["length"],
        batch.offsets + start,
        batch.sizes - start,
        {},
    )
    return found, np.flatnonzero(~good)


def _bytes_of(batch: RecordBatch) -> npt.NDArray[np.uint8]:
    return np.frombuffer(batch.buffer, np.uint8)
