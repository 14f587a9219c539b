"""The bytes of each ledger in a log: what its records add up to, against what is said of them.

A log's map says it for the closed log, the bookie's cache for garbage collection, which takes
deleted ledgers off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bkstore.counts import counted
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entrylog import HEADER_SIZE, LogMetadata, decode_header
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import LedgerId
from bkstore.offline.check.findings import CheckFinding, Kind
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.log_account import LogAccount
from bkstore.storage.entry_log.resync import LogBytes
from bkstore.storage.entry_log.scan import LogBatch

_HEADER_FIELDS = 20
_MOST = 64


class LogSizes:
    """Adds up the bytes of each ledger, 4 + record, while a log is read.

    Memory: an entry a ledger of the log.
    """

    def __init__(self) -> None:
        self.of: dict[LedgerId, int] = {}

    def add(self, batch: LogBatch) -> None:
        """Count a batch."""
        if not batch.scope_id.any():
            numbers, inverse = np.unique(batch.ledger_id, return_inverse=True)
            sums = np.bincount(inverse, batch.size + PREFIX).astype(np.int64)
            for number, size in zip(numbers.tolist(), sums.tolist()):
                self._add(LedgerId.from_signed(0, number), size)
            return
        for ledger, rows in batch.ledgers():
            self._add(ledger, int(batch.size[rows].sum()) + PREFIX * rows.size)

    def _add(self, ledger: LedgerId, size: int) -> None:
        self.of[ledger] = self.of.get(ledger, 0) + size


def size_findings(
    log: LogFile,
    account: LogAccount,
    sizes: LogSizes,
    cached: LogMetadata | None,
    damaged: bool,
) -> list[CheckFinding]:
    """Return what a log's header, map and cached sizes say otherwise than its records.

    Of a `damaged` log, records of which are missing anyway, sizes are not compared.
    """
    found = list(_header_findings(log, account))
    for at, why in account.map_errors:
        found.append(CheckFinding("ledgers-map", "oddity", why, log.path, at))
    if not damaged and account.map_at is not None and not account.map_errors:
        found += _differences("ledgers-map", log, account.map_at, account.map_sizes, sizes.of)
    if not damaged and cached is not None:
        here = {name: size for name, size in sizes.of.items() if name in cached.ledgers}
        found += _differences("metadata-cache", log, None, cached.ledgers, here)
        total = sum(sizes.of.values())
        if cached.total_size != total:
            detail = f"the cache counts {cached.total_size} bytes of records, {total} are here"
            found.append(CheckFinding("metadata-cache", "oddity", detail, log.path))
    return found


def _differences(
    kind: Kind,
    log: LogFile,
    offset: int | None,
    said: Mapping[LedgerId, int],
    here: Mapping[LedgerId, int],
) -> Iterator[CheckFinding]:
    differ = [name for name in sorted({*said, *here}) if said.get(name) != here.get(name)]
    for name in differ[:_MOST]:
        detail = (
            f"ledger {name} has {here.get(name, 0)} bytes of records here, "
            f"{said.get(name, 0)} are stated"
        )
        yield CheckFinding(kind, "oddity", detail, log.path, offset, name)
    if differ[_MOST:]:
        more = counted(len(differ) - _MOST, "more ledger")
        yield CheckFinding(kind, "oddity", f"so it is with {more}", log.path, offset)


def _header_findings(log: LogFile, account: LogAccount) -> Iterator[CheckFinding]:
    """Yield what of a header does not fit; one that cannot be read the scan has told of."""
    try:
        with LogBytes(log.path) as file:
            block = file.peek(0, HEADER_SIZE)
        header = decode_header(block[:_HEADER_FIELDS])
    except SystemRefused:
        raise
    except BkstoreError:
        return
    rest = block[_HEADER_FIELDS:].lstrip(b"\0")
    if rest:
        at = len(block) - len(rest)
        detail = "bytes that are not zero behind the header's fields"
        yield CheckFinding("log-header", "oddity", detail, log.path, at)
    if account.map_at is None:
        return
    if header.map_offset != account.map_at:
        detail = f"a ledgers map is at {account.map_at}, the header says {header.map_offset}"
        yield CheckFinding("log-header", "oddity", detail, log.path, 8)
    elif header.ledgers != len(account.map_sizes) and not account.map_errors:
        detail = (
            f"the header says {counted(header.ledgers, 'ledger')}, "
            f"the ledgers map has {len(account.map_sizes)}"
        )
        yield CheckFinding("log-header", "oddity", detail, log.path, 16)
