"""The rows of `bkstore readledger --as pulsar`: the headers of a topic's entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.entry import V1_HEADER, V2_HEADER, RecordBatch
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.pulsar.entries import (
    COMPRESSIONS,
    EntryProblem,
    MessageHeaders,
    decode_headers,
    find_digest_size,
    read_names,
    verify_checksum,
)
from bkstore.tables import PULSAR_ENTRIES

_MESSAGE_COLUMNS = PULSAR_ENTRIES.names[PULSAR_ENTRIES.names.index("published") :]
_NO_MESSAGE = (None,) * len(_MESSAGE_COLUMNS)
_CHECKSUM_COLUMN = _MESSAGE_COLUMNS.index("checksum_ok")


class PulsarEntryRows:
    """Makes the columns from `published` on of a ledger's records; entries that are no topic's are
    added to `findings`, in runs. `with_payload`: payloads are shown, else they are null."""

    def __init__(self, ledger: LedgerId, findings: list[Finding], *, with_payload: bool) -> None:
        self._ledger = ledger
        self._runs = DamageRuns(findings)
        self._with_payload = with_payload
        self._header_size = V2_HEADER if ledger.scope else V1_HEADER

    def columns(
        self,
        batch: RecordBatch,
        digest_size: int | None,
        record_places: list[tuple[str, int]],
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of each record; `digest_size` None = not known. `record_places` are the
        entry log of each record and its position there."""
        ends = batch.offsets + batch.sizes
        starts = np.minimum(batch.offsets + self._header_size, ends)
        if digest_size is None:
            digest_size = find_digest_size(batch.octets, starts, ends) or 0
        headers = decode_headers(batch.octets, np.minimum(starts + digest_size, ends), ends)
        for row, record_place in enumerate(record_places):
            try:
                if headers.problem[row]:
                    problem = EntryProblem(int(headers.problem[row]))
                    offset = int(headers.problem_offset[row] - batch.offsets[row])
                    raise CorruptionError(None, offset, problem.reason)
                columns = self._message_columns(batch, headers, row, int(ends[row]))
            except CorruptionError as error:
                reason = f"no entry of a topic: {error.reason}"
                self._add_finding(int(batch.entries[row]), record_place, error.offset or 0, reason)
                yield _NO_MESSAGE
                continue
            if columns[_CHECKSUM_COLUMN] is False:
                offset = int(headers.metadata_offset[row] - batch.offsets[row])
                reason = "the producer's checksum of the message does not match"
                self._add_finding(int(batch.entries[row]), record_place, offset, reason)
            else:
                self._runs.end_runs()
            yield columns

    def _message_columns(
        self, batch: RecordBatch, headers: MessageHeaders, row: int, end: int
    ) -> tuple[Any, ...]:
        """Return the columns of a message; raises `CorruptionError` if its names cannot be read."""
        metadata_offset, payload_offset = (
            int(headers.metadata_offset[row]),
            int(headers.payload_offset[row]),
        )
        buffer = memoryview(batch.buffer)
        names = read_names(bytes(buffer[metadata_offset:payload_offset]))
        publish_time = int(headers.publish_time[row])
        compression = int(headers.compression[row])
        checksum, is_intact = int(headers.checksum[row]), None
        if checksum >= 0:  # -1 = the producer wrote none
            is_intact = verify_checksum(buffer, metadata_offset, end, checksum)
        return (
            format_milliseconds(publish_time),
            publish_time,
            names.producer,
            int(headers.sequence_id[row]),
            int(headers.messages[row]),
            ", ".join(names.properties) or None,
            _compression_name(compression),
            int(headers.uncompressed_size[row]) if compression else None,
            ", ".join(names.encryption_keys) or None,
            payload_offset - metadata_offset,
            end - payload_offset,
            is_intact,
            int(headers.event_time[row]) or None,
            *(
                int(column[row]) if column[row] >= 0 else None
                for column in (
                    headers.broker_time,
                    headers.broker_index,
                    headers.compacted_ledger,
                    headers.compacted_entry,
                    headers.marker_type,
                )
            ),
            bytes(buffer[payload_offset:end]) if self._with_payload else None,
        )  # the columns of `PULSAR_ENTRIES` from `published` on, in its order

    def _add_finding(
        self, entry_id: int, record_place: tuple[str, int], offset: int, reason: str
    ) -> None:
        """Report damage at an offset in the record at this entry log and position."""
        log_name, position = record_place
        finding = Finding("damage", reason, log_name, position + offset, self._ledger)
        self._runs.add(finding, np.array([entry_id], np.int64))


def _compression_name(number: int) -> str:
    return COMPRESSIONS[number] if 0 <= number < len(COMPRESSIONS) else str(number)


def format_milliseconds(milliseconds: int) -> str | None:
    """Return a time since 1970 as text in UTC; None for one that cannot be written so.

    >>> format_milliseconds(1_790_000_000_123)
    '2026-09-21T14:13:20.123Z'
    """
    time = np.datetime64(milliseconds, "ms")
    return None if np.isnat(time) else f"{time}Z"
