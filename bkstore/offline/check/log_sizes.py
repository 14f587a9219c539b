"""Compare the bytes that each ledger has in a log with the sizes stated elsewhere. A closed log's
ledgers map states them, and garbage collection's cache, without deleted ledgers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entrylog import HEADER_SIZE, LogMetadata, decode_header
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import LedgerId
from bkstore.offline.check.findings import CheckFinding, CheckKind
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.byte_usage import LogByteUsage
from bkstore.storage.entry_log.resynchronization import LogBytes
from bkstore.storage.entry_log.scan import LogBatch

_HEADER_FIELDS_BYTES = 20
_MAP_OFFSET_AT, _LEDGER_COUNT_AT = 8, 16
_MAX_FINDINGS = 64


class LogSizes:
    """Adds up the bytes of each ledger, with 4 more a record. Memory: an entry a ledger."""

    def __init__(self) -> None:
        self.bytes_by_ledger: dict[LedgerId, int] = {}

    def add(self, batch: LogBatch) -> None:
        """Add the records of a batch."""
        if not batch.scope_id.any():  # the usual case: one sum over all ledgers of scope 0
            numbers, inverse = np.unique(batch.ledger_id, return_inverse=True)
            sums = np.bincount(inverse, batch.size + SIZE_FIELD_BYTES).astype(np.int64)
            for number, size in zip(numbers.tolist(), sums.tolist()):
                self._add_size(LedgerId.from_signed(0, number), size)
            return
        for ledger, rows in batch.ledgers():
            self._add_size(ledger, int(batch.size[rows].sum()) + SIZE_FIELD_BYTES * rows.size)

    def _add_size(self, ledger: LedgerId, size: int) -> None:
        self.bytes_by_ledger[ledger] = self.bytes_by_ledger.get(ledger, 0) + size


def size_findings(
    log: LogFile,
    byte_usage: LogByteUsage,
    sizes: LogSizes,
    cached_metadata: LogMetadata | None,
    is_damaged: bool,
) -> list[CheckFinding]:
    """Return findings where a log's header, ledgers map or cached sizes differ from its records.
    Sizes are not compared for a damaged log, where records are missing anyway."""
    findings = list(_check_header(log, byte_usage))
    for offset, why in byte_usage.map_errors:
        findings.append(CheckFinding("ledgers-map", "oddity", why, log.path, offset))
    if not is_damaged and byte_usage.map_offset is not None and not byte_usage.map_errors:
        findings += _compare_sizes(
            "ledgers-map",
            log,
            byte_usage.map_offset,
            byte_usage.map_ledger_bytes,
            sizes.bytes_by_ledger,
        )
    if not is_damaged and cached_metadata is not None:
        # Garbage collection has removed the deleted ledgers from the cache.
        cached = cached_metadata.ledgers
        actual = {n: size for n, size in sizes.bytes_by_ledger.items() if n in cached}
        findings += _compare_sizes("metadata-cache", log, None, cached, actual)
        total_size = sum(sizes.bytes_by_ledger.values())
        if cached_metadata.total_size != total_size:
            cached_size = cached_metadata.total_size
            detail = f"the cache counts {cached_size} bytes of records, there are {total_size}"
            findings.append(CheckFinding("metadata-cache", "oddity", detail, log.path))
    return findings


def _compare_sizes(
    kind: CheckKind,
    log: LogFile,
    offset: int | None,
    stated: Mapping[LedgerId, int],
    actual: Mapping[LedgerId, int],
) -> Iterator[CheckFinding]:
    """Yield a finding for each ledger whose size as `stated`, at `offset` in the log or elsewhere,
    is not that of its records, `actual`; above a limit, one for all further ledgers."""
    all_ledgers = sorted({*stated, *actual})
    different_ledgers = [n for n in all_ledgers if stated.get(n) != actual.get(n)]
    for ledger_id in different_ledgers[:_MAX_FINDINGS]:
        detail = (
            f"ledger {ledger_id} has {actual.get(ledger_id, 0)} bytes of records here, "
            f"{stated.get(ledger_id, 0)} are stated there"
        )
        yield CheckFinding(kind, "oddity", detail, log.path, offset, ledger_id)
    if different_ledgers[_MAX_FINDINGS:]:
        more_ledgers = format_count(len(different_ledgers) - _MAX_FINDINGS, "more ledger")
        yield CheckFinding(kind, "oddity", f"the same for {more_ledgers}", log.path, offset)


def _check_header(log: LogFile, byte_usage: LogByteUsage) -> Iterator[CheckFinding]:
    """Yield findings on a log's header; the scan has reported one that cannot be read."""
    try:
        with LogBytes(log.path) as file:
            block = file.read(0, HEADER_SIZE)
        header = decode_header(block[:_HEADER_FIELDS_BYTES])
    except SystemRefused:
        raise
    except BkstoreError:
        return
    nonzero_bytes = block[_HEADER_FIELDS_BYTES:].lstrip(b"\0")
    if nonzero_bytes:
        offset = len(block) - len(nonzero_bytes)
        detail = "nonzero bytes after the header's fields"
        yield CheckFinding("log-header", "oddity", detail, log.path, offset)
    if byte_usage.map_offset is None:
        return
    if header.map_offset != byte_usage.map_offset:
        detail = f"a ledgers map is at {byte_usage.map_offset}, the header says {header.map_offset}"
        yield CheckFinding("log-header", "oddity", detail, log.path, _MAP_OFFSET_AT)
    elif header.ledger_count != len(byte_usage.map_ledger_bytes) and not byte_usage.map_errors:
        detail = (
            f"the header says {format_count(header.ledger_count, 'ledger')}, "
            f"the ledgers map has {len(byte_usage.map_ledger_bytes)}"
        )
        yield CheckFinding("log-header", "oddity", detail, log.path, _LEDGER_COUNT_AT)
