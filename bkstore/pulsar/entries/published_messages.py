"""Publish times and numbers of messages of the records that index rows point at: for topics of
Apache Pulsar. The digest type of a ledger is found by its entries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bkstore.formats.entry import V1_HEADER, V2_HEADER
from bkstore.formats.syntax.framing import Bytes
from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch
from bkstore.pulsar.entries.entry_parts import EntryProblem
from bkstore.pulsar.entries.message_headers import (
    MessageHeaders,
    decode_headers,
    find_digest_sizes,
)

HEAD_BYTES = 512
"""Bytes of each record that are read at first: most headers are shorter."""

_MAX_TRIED_ENTRIES = 1000  # of a ledger, before it counts as another application's

_LedgerKey = tuple[int, int]


class RecordHeads(NamedTuple):
    """The first bytes of records: `data` has record i from ``offsets[i]`` to before
    ``available[i]``; it ends at ``ends[i]``. `row_numbers` are its rows in a batch."""

    row_numbers: Int64Array
    data: Bytes
    offsets: Int64Array
    available: Int64Array
    ends: Int64Array


class MessageColumns(NamedTuple):
    """Of each record the publish time (milliseconds since 1970), and the number of messages, 0 if
    it is not an entry of a topic. `problem` is an `EntryProblem`; 0 if the ledger is not of a
    topic. `needed` is as in `MessageHeaders`, from the beginning of the record on."""

    publish_time: Int64Array
    messages: Int64Array
    problem: Int64Array
    needed: Int64Array


class PublishedMessages:
    """Decodes the headers of messages; remembers the digest size that it has found for each ledger.
    Memory: some 200 bytes a ledger."""

    def __init__(self) -> None:
        self._digest_sizes: dict[_LedgerKey, int] = {}
        self._tried_entries: dict[_LedgerKey, int] = {}  # of ledgers without a size

    def decode(self, rows: IndexBatch, heads: RecordHeads) -> MessageColumns:
        """Return the columns of some records, whose index rows are `rows`."""
        header_sizes = np.where(rows.scope_id == 0, V1_HEADER, V2_HEADER)
        starts = np.minimum(heads.offsets + header_sizes, heads.ends)
        digest_sizes = self._find_sizes(rows, heads, starts)
        is_topic = digest_sizes >= 0
        starts = np.minimum(starts + np.where(is_topic, digest_sizes, 0), heads.ends)
        headers = decode_headers(heads.data, starts, heads.ends, heads.available)
        return _columns_of(headers, is_topic, starts - heads.offsets)

    def _find_sizes(self, rows: IndexBatch, heads: RecordHeads, starts: Int64Array) -> Int64Array:
        """Return the digest size of each record's ledger, -1 for ledgers that are no topic's."""
        # Ledgers whose size is not known yet are tried, up to `_MAX_TRIED_ENTRIES` of each.
        ledgers, numbers = _number_ledgers(rows)
        sizes = np.array([self._digest_sizes.get(each, -1) for each in ledgers], np.int64)
        is_untried = sizes < 0
        for number in np.flatnonzero(is_untried).tolist():
            is_untried[number] = self._tried_entries.get(ledgers[number], 0) < _MAX_TRIED_ENTRIES
        if is_untried.any():
            tried = np.flatnonzero(is_untried[numbers])
            parts = (starts[tried], heads.ends[tried], heads.available[tried], numbers[tried])
            found_sizes = find_digest_sizes(heads.data, *parts, len(ledgers))
            counts = np.bincount(numbers[tried], minlength=len(ledgers))
            for number in np.flatnonzero(is_untried).tolist():
                ledger, size = ledgers[number], int(found_sizes[number])
                if size >= 0:
                    sizes[number] = self._digest_sizes[ledger] = size
                else:
                    entries = self._tried_entries.get(ledger, 0) + int(counts[number])
                    self._tried_entries[ledger] = entries
        return sizes[numbers]


def _number_ledgers(rows: IndexBatch) -> tuple[list[_LedgerKey], Int64Array]:
    """Return the distinct ledgers of some rows, and the number of each row's ledger among them."""
    scopes, ledgers = rows.scope_id, rows.ledger_id
    if (ledgers == ledgers[0]).all() and (scopes == scopes[0]).all():
        return [(int(scopes[0]), int(ledgers[0]))], np.zeros(ledgers.size, np.int64)
    if (scopes == scopes[0]).all():
        distinct, numbers = np.unique(ledgers, return_inverse=True)
        return [(int(scopes[0]), each) for each in distinct.tolist()], numbers
    pairs, numbers = np.unique(np.stack((scopes, ledgers), 1), axis=0, return_inverse=True)
    return [(scope, ledger) for scope, ledger in pairs.tolist()], numbers.reshape(-1)


def _columns_of(headers: MessageHeaders, is_topic: Any, header_bytes: Int64Array) -> MessageColumns:
    is_decoded = headers.is_decoded & is_topic
    return MessageColumns(
        publish_time=np.where(is_decoded, headers.publish_time, 0),
        messages=np.where(is_decoded, headers.messages, 0),
        problem=np.where(is_topic, headers.problem, EntryProblem.NONE),
        needed=np.where(is_topic & (headers.needed > 0), headers.needed + header_bytes, 0),
    )
