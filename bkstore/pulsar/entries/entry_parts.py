"""Where the parts of a topic's entries are: broker metadata, checksum, message metadata, payload.

    0e 02, u32 size, BrokerEntryMetadata                  if the broker adds them
    u32 size, MessageIdData, u32 size of all that follows in ledgers of the compaction
    0e 01, u32 CRC-32C of all that follows                if the producer sent it
    u32 size, MessageMetadata
    payload

Source: Pulsar's `Commands` and `RawMessageImpl`. All integers are big-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from bkstore.formats.syntax.field_columns import FieldColumn, WireType, scan_fields
from bkstore.formats.syntax.framing import Bytes, integers_at_every_offset
from bkstore.ids import Int64Array

BROKER_MAGIC, CHECKSUM_MAGIC = 0x0E02, 0x0E01
_MAGIC_BYTES, _SIZE_BYTES = 2, 4
_FIRST_ID_TAG = 0x08  # of MessageIdData; message metadata begin with 0a, the producer
_BROKER_FIELDS: Mapping[int, WireType] = {1: "varint", 2: "varint"}  # time, index
_ID_FIELDS: Mapping[int, WireType] = {1: "varint", 2: "varint"}  # ledger, entry
_REQUIRED_FIELDS = (1, 2, 3)  # producer, sequence id, publish time


class EntryProblem(IntEnum):
    """Why an entry is not one of a topic."""

    NONE = 0
    SHORT = 1
    BROKER_METADATA = 2
    COMPACTED_ID = 3
    COMPACTED_SIZE = 4
    METADATA_SIZE = 5
    METADATA = 6
    REQUIRED_FIELDS = 7

    @property
    def reason(self) -> str:
        """The problem as part of a message."""
        return _REASONS[self]


_REASONS = {
    EntryProblem.NONE: "",
    EntryProblem.SHORT: "it ends in the header of the message",
    EntryProblem.BROKER_METADATA: "the broker's metadata are damaged",
    EntryProblem.COMPACTED_ID: "the id of the compacted message is damaged",
    EntryProblem.COMPACTED_SIZE: "the size of the compacted message is not that of the entry",
    EntryProblem.METADATA_SIZE: "the size of the message metadata exceeds the entry",
    EntryProblem.METADATA: "the message metadata are damaged",
    EntryProblem.REQUIRED_FIELDS: "the message metadata lack producer, sequence id or publish time",
}


class EntryWalk:
    """Finds the parts of the entries ``data[starts[i]:ends[i]]``, part by part, for all entries at
    once. The buffer may have only the bytes of entry i before ``available[i]``.

    `position` is where the next part of each entry begins. An entry is not read further if it has a
    `problem` (an `EntryProblem`, which lies at `problem_offset`), or if it needs more bytes than
    are available: `needed` is then how many it needs from its start on, else 0. Methods take and
    return `rows`: the indexes of entries that are still read.
    """

    def __init__(
        self, data: Bytes, starts: Int64Array, ends: Int64Array, available: Int64Array
    ) -> None:
        self.starts, self.ends = starts.astype(np.int64), ends.astype(np.int64)
        self.position = self.starts.copy()
        self.problem = np.zeros(starts.size, np.int64)
        self.problem_offset = np.full(starts.size, -1, np.int64)
        self.needed = np.zeros(starts.size, np.int64)
        self._data, self._available = data, available
        self._u16 = integers_at_every_offset(data, ">u2")
        self._u32 = integers_at_every_offset(data, ">u4")

    def rows(self) -> Int64Array:
        """Return the indexes of the entries that are read further."""
        return np.flatnonzero((self.problem == EntryProblem.NONE) & (self.needed == 0))

    def broker_metadata(self) -> tuple[Int64Array, Int64Array]:
        """Skip the broker's metadata; return its time and the index of the last message, -1 if an
        entry has none."""
        # Only entries that begin with the magic number have this part.
        rows = self._with_bytes(self.rows(), _SIZE_BYTES, EntryProblem.SHORT)
        rows = rows[self._u16[self.position[rows]] == BROKER_MAGIC]
        self._skip(rows, _MAGIC_BYTES)
        rows, part_ends = self._sized_part(rows, EntryProblem.BROKER_METADATA)
        _, fields = self._scan(rows, part_ends, _BROKER_FIELDS, EntryProblem.BROKER_METADATA)
        times, indexes = (np.full(self.starts.size, -1, np.int64) for _ in range(2))
        for column, field in ((times, fields[1]), (indexes, fields[2])):
            column[rows] = np.where(field.occurrences > 0, field.value, -1)
        self.position[rows] = part_ends
        return times, indexes

    def compacted_id(self) -> tuple[Int64Array, Int64Array]:
        """Skip the id of a compacted message; return its ledger and entry, -1 if an entry has
        none, as in the ledgers of topics."""
        # The part has no magic number. It is there if none of the other parts' magic numbers is,
        # and if behind its size stands the tag of an id's first field.
        rows = self._with_bytes(self.rows(), _SIZE_BYTES + 1, EntryProblem.SHORT)
        magic = self._u16[self.position[rows]]  # by byte offset
        first_tag = self._data[self.position[rows] + _SIZE_BYTES]
        is_id = (magic != BROKER_MAGIC) & (magic != CHECKSUM_MAGIC) & (first_tag == _FIRST_ID_TAG)
        rows, id_ends = self._sized_part(rows[is_id], EntryProblem.COMPACTED_ID)
        _, fields = self._scan(rows, id_ends, _ID_FIELDS, EntryProblem.COMPACTED_ID)
        has_id = (fields[1].occurrences > 0) & (fields[2].occurrences > 0)
        self._fail(rows[~has_id], self.position[rows[~has_id]], EntryProblem.COMPACTED_ID)
        ledgers, entries = (np.full(self.starts.size, -1, np.int64) for _ in range(2))
        ledgers[rows], entries[rows] = fields[1].value, fields[2].value
        self.position[rows] = id_ends
        # After the id stands the size of the rest, which must be that of the entry.
        rows = rows[self.problem[rows] == EntryProblem.NONE]
        rows = self._with_bytes(rows, _SIZE_BYTES, EntryProblem.SHORT)
        sizes = self._u32[self.position[rows]].astype(np.int64)
        is_wrong = sizes != self.ends[rows] - self.position[rows] - _SIZE_BYTES
        self._fail(rows[is_wrong], self.position[rows[is_wrong]], EntryProblem.COMPACTED_SIZE)
        self._skip(rows, _SIZE_BYTES)
        return ledgers, entries

    def checksum(self) -> Int64Array:
        """Skip the checksum; return it, -1 if an entry has none."""
        rows = self._with_bytes(self.rows(), _SIZE_BYTES, EntryProblem.SHORT)
        rows = rows[self._u16[self.position[rows]] == CHECKSUM_MAGIC]
        self._skip(rows, _MAGIC_BYTES)
        rows = self._with_bytes(rows, _SIZE_BYTES, EntryProblem.SHORT)
        checksums = np.full(self.starts.size, -1, np.int64)
        checksums[rows] = self._u32[self.position[rows]]
        self._skip(rows, _SIZE_BYTES)
        return checksums

    def message_metadata(
        self, wanted: Mapping[int, WireType]
    ) -> tuple[Int64Array, Int64Array, dict[int, FieldColumn]]:
        """Return where the message metadata begin and end, -1 if they cannot be read, and their
        `wanted` fields, which include the required ones, of all entries."""
        rows, part_ends = self._sized_part(self.rows(), EntryProblem.METADATA_SIZE)
        starts, ends = (np.full(self.starts.size, -1, np.int64) for _ in range(2))
        starts[rows], ends[rows] = self.position[rows], part_ends
        rows, fields = self._scan(rows, part_ends, wanted, EntryProblem.METADATA)
        has_required = np.ones(rows.size, np.bool_)
        for number in _REQUIRED_FIELDS:
            has_required &= fields[number].occurrences > 0
        lacking = rows[~has_required & (self.problem[rows] == EntryProblem.NONE)]
        self._fail(lacking, starts[lacking], EntryProblem.REQUIRED_FIELDS)
        # Spread the fields of the rows over columns for all entries; other entries have zeros.
        columns = {}
        for number, field in fields.items():
            columns[number] = FieldColumn(*(np.zeros(self.starts.size, np.int64) for _ in field))
            for column, values in zip(columns[number], field):
                column[rows] = values
        return starts, ends, columns

    def _sized_part(self, rows: Int64Array, problem: EntryProblem) -> tuple[Int64Array, Int64Array]:
        """Skip the size (u32) of a part; return the rows that have all of it, and its ends."""
        rows = self._with_bytes(rows, _SIZE_BYTES, EntryProblem.SHORT)
        sizes = self._u32[self.position[rows]].astype(np.int64)
        is_inside = sizes <= self.ends[rows] - self.position[rows] - _SIZE_BYTES
        self._fail(rows[~is_inside], self.position[rows[~is_inside]], problem)
        rows, sizes = rows[is_inside], sizes[is_inside]
        has_bytes = self._has_available(rows, _SIZE_BYTES + sizes)
        rows, sizes = rows[has_bytes], sizes[has_bytes]
        self._skip(rows, _SIZE_BYTES)
        return rows, self.position[rows] + sizes

    def _scan(
        self,
        rows: Int64Array,
        part_ends: Int64Array,
        wanted: Mapping[int, WireType],
        problem: EntryProblem,
    ) -> tuple[Int64Array, dict[int, FieldColumn]]:
        """Return the rows, and the `wanted` fields of the message between their positions and
        `part_ends`; a damaged message is a `problem`."""
        scanned = scan_fields(self._data, self.position[rows], part_ends, wanted)
        is_damaged = scanned.problem_offset >= 0
        self._fail(rows[is_damaged], scanned.problem_offset[is_damaged], problem)
        return rows, scanned.fields

    def _with_bytes(self, rows: Int64Array, size: int, problem: EntryProblem) -> Int64Array:
        """Return the rows that have so many bytes from their positions on."""
        is_inside = self.position[rows] + size <= self.ends[rows]
        self._fail(rows[~is_inside], self.position[rows[~is_inside]], problem)
        rows = rows[is_inside]
        sizes = np.full(rows.size, size, np.int64)
        return rows[self._has_available(rows, sizes)]

    def _has_available(self, rows: Int64Array, sizes: Int64Array) -> npt.NDArray[np.bool_]:
        """Return whether the buffer has the bytes; note how many are needed where it has not."""
        part_ends = self.position[rows] + sizes
        is_available: npt.NDArray[np.bool_] = part_ends <= self._available[rows]
        missing = rows[~is_available]
        self.needed[missing] = part_ends[~is_available] - self.starts[missing]
        return is_available

    def _skip(self, rows: Int64Array, size: int) -> None:
        self.position[rows] += size

    def _fail(self, rows: Int64Array, offsets: Int64Array, problem: EntryProblem) -> None:
        self.problem[rows], self.problem_offset[rows] = problem, offsets
