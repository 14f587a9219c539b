"""A journal file scanned by a plain loop, by the rules of reading on `docs/formats/journal.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkstore.counts import format_count
from bkstore.errors import CorruptionError
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import JournalRecord, decode_record
from bkstore.storage.journal import JournalScan

LOOKED_AT = 16 << 20
"""Bytes behind the end in which data are found."""


@dataclass
class PlainScan:
    """What a loop over the bytes says of a file: (offset, record) pairs, and how it ends."""

    data: bytes
    version: int
    skip_invalid: bool
    records: list[tuple[int, bytes]] = field(default_factory=list)
    findings: list[tuple[str, int, str]] = field(default_factory=list)
    stop: int = 0
    error: tuple[int, str] | None = None

    def run(self, at: int) -> PlainScan:
        """Follow the lengths from `at` on."""
        size = len(self.data)
        while at + 4 <= size:
            length = self._i32(at)
            if length > 0 and at + 4 + length <= size:
                self.records.append((at, self.data[at + 4 : at + 4 + length]))
                at += 4 + length
            elif length == -0x100 and self.version >= 5:
                zeros = self._i32(at + 4) if at + 8 <= size else None
                if zeros is None or zeros > size - at - 8:
                    said = "padding record is cut off in its length"
                    if zeros is not None:
                        said = f"padding of {_cut_off(zeros, size - at - 8)}"
                    return self._ends(size, "oddity", at, said)
                if zeros < 0:
                    return self._invalid(at, at + 8, f"padding length {zeros} is negative")
                at += 8 + zeros
            else:
                return self._at_no_record(at, length)
        return self._at_the_end(at)

    def _i32(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4], "big", signed=True)

    def _at_no_record(self, at: int, length: int) -> PlainScan:
        size = len(self.data)
        if length > 0:
            return self._ends(size, "damage", at, f"record of {_cut_off(length, size - at - 4)}")
        if length < 0:
            return self._invalid(at, at + 4, f"record length {length} is negative")
        looked_at = self.data[at + 4 : at + 4 + LOOKED_AT]
        rest = looked_at.lstrip(b"\0")
        if rest:
            place = at + 4 + len(looked_at) - len(rest)
            said = f"data at {place}, after the zero length that ends the file's records"
            return self._ends(at + 4, "damage", at, said)
        self.stop = at + 4
        return self

    def _at_the_end(self, at: int) -> PlainScan:
        size = len(self.data)
        unpadded = self.version < 5 and size % 512 == 0 and not any(self.data[at:])
        if at < size and not unpadded:
            said = f"record length is cut off: {format_count(size - at, 'byte')}"
            return self._ends(size, "damage", at, said)
        self.stop = max(at, size)
        if at > size:
            said = f"file ends at {size}, the scan was to begin at {at}"
            self.findings.append(("damage", size, said))
        return self

    def _invalid(self, at: int, stop: int, reason: str) -> PlainScan:
        if self.skip_invalid:
            return self._ends(stop, "damage", at, reason)
        self.error = (at, reason)
        return self

    def _ends(self, stop: int, severity: str, at: int, detail: str) -> PlainScan:
        self.stop = stop
        self.findings.append((severity, at, detail))
        return self


def _cut_off(length: int, left: int) -> str:
    return f"{format_count(length, 'byte')} is cut off: {format_count(left, 'is', 'are')} left"


def assert_as_a_plain_loop(scan: JournalScan) -> None:
    """Assert that each way of reading gives the records, findings, end and error of the loop."""
    data = Path(scan.path).read_bytes()
    plain = PlainScan(data, scan.version, scan.skip_invalid).run(scan.start)

    assert (plain.records, plain.error) == _until_an_error(_raw(scan))
    _assert_end(plain, scan)
    decoded: list[tuple[int, JournalRecord]] = []
    wrong = plain.error
    for offset, record in plain.records:
        try:
            decoded.append((offset, decode_record(record, scan.version)))
        except CorruptionError as error:
            wrong = (offset + 4 + (error.offset or 0), error.reason)
            break
    for found in (scan.records(), _from_batches(scan)):
        assert (decoded, wrong) == _until_an_error(found)
        if wrong == plain.error:
            _assert_end(plain, scan)


def _assert_end(plain: PlainScan, scan: JournalScan) -> None:
    if plain.error is None:
        told = [(found.severity, found.offset, found.detail) for found in scan.findings]

        assert (plain.stop, plain.findings) == (scan.stop, told)


def _raw(scan: JournalScan) -> Iterator[tuple[int, bytes]]:
    return ((offset, data) for offset, data in scan)


def _from_batches(scan: JournalScan) -> Iterator[tuple[int, JournalRecord]]:
    """Yield (offset, decoded record) out of batches; their entry ids are the records'."""
    for offsets, found in scan.batches():
        if not isinstance(found, RecordBatch):
            assert found.kind != "add"
            yield int(offsets[0]), found
            continue

        assert len(offsets) == len(found) > 0
        for offset, entry, record in zip(offsets.tolist(), found.entries.tolist(), found.records()):
            decoded = decode_record(record, scan.version)

            assert ("add", entry) == (decoded.kind, decoded.entry_id)
            yield offset, decoded


def _until_an_error(found: Iterable[Any]) -> tuple[list[Any], tuple[int | None, str] | None]:
    """Return (what came, (offset, reason) of the error that ended it or None)."""
    came = []
    try:
        for one in found:
            came.append(one)  # noqa: PERF402 - what came before an error counts
    except CorruptionError as error:
        return came, (error.offset, error.reason)
    return came, None
