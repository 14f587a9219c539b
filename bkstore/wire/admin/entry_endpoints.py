"""Endpoints `ledger/read` and `ledger/availability`: entries that the bookie has.

BookKeeper's `ReadLedgerEntryService` is a client of the whole cluster; here one bookie answers.
`ledger/availability` is BP-34's listing, which BookKeeper's admin lacks. A scope is the upper 64
bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError, NoSuchLedger
from bkstore.formats.entry import Coder, matching_checksum, record_header
from bkstore.formats.entry.digest import DIGEST_SIZES, digest_name
from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin import query_parameters
from bkstore.wire.admin.ledger_endpoints import SOURCE_HEADER
from bkstore.wire.admin.messages import HttpError, HttpRequest, HttpResponse, stream_json_object

PAGE_ENTRIES = 1000
"""The number of entries of a page."""

MAX_RANGES = 100_000
"""The most ranges of entries to write out. The groups, each of equally long and distant sequences
of entries, have the same information and are shorter."""

_READ_BYTES = 1 << 20
_DIGESTS = ("CRC32", "CRC32C", "MAC", "HMAC", "DUMMY")
_HEADERS = {SOURCE_HEADER: "bookie"}


class EntryEndpoints:
    """Reads and lists a bookie's entries. Memory: 1 MiB or one entry for each request."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore | None) -> None:
        self._bookie = bookie
        self._metadata = metadata

    def read_entries(self, request: HttpRequest) -> HttpResponse:
        """Answer with entry id -> payload as ASCII text, for the entries that the bookie has."""
        ledger_id = query_parameters.parse_ledger_id(request)
        digest = query_parameters.parse_choice(request, "digest_type", _DIGESTS)
        page = query_parameters.parse_page(request)
        first, last = _requested_range(request, page)
        if not self._bookie.ledger_exists(ledger_id):
            raise NoSuchLedger(f"ledger {ledger_id} is not on this bookie")
        entries = Availability.from_ranges([(first, last)]) & self._bookie.availability(ledger_id)
        payloads = _PayloadReader(*self._digest_of_ledger(ledger_id, digest))
        members = self._read_payloads(ledger_id, entries, payloads, page)
        return HttpResponse(200, stream_json_object(members), headers=_HEADERS)

    def _read_payloads(
        self, ledger_id: LedgerId, entries: Availability, payloads: _PayloadReader, page: int | None
    ) -> Iterator[tuple[str, Any]]:
        """Yield entry id and payload of each entry, as texts; before them the number of the page,
        if one is given, as in BookKeeper. One batch of `_READ_BYTES` is held at a time."""
        if page is not None:
            yield "Entries for page: ", str(page)
        entry_ids = iter(entries)
        while chunk := list(islice(entry_ids, PAGE_ENTRIES)):
            for start, stop in _consecutive_runs(chunk):
                while start < stop:
                    batch = self._bookie.read_entries(ledger_id, start, stop - start, _READ_BYTES)
                    for entry, record in zip(batch.entries.tolist(), batch):
                        text = payloads.payload_of(ledger_id, entry, bytes(record))
                        yield str(entry), text.decode("ascii", "replace")
                    start += len(batch)

    def _digest_of_ledger(
        self, ledger_id: LedgerId, wanted: str | None
    ) -> tuple[str | None, bytes | None]:
        """Return (digest type, password) of a ledger by its metadata, each None if unknown; a
        `wanted` type is returned instead of the ledger's."""
        metadata = None
        if self._metadata is not None:
            with suppress(NoSuchLedger):  # the bookie may still have its entries
                metadata = self._metadata.read(ledger_id).metadata
        if metadata is None or metadata.digest_type is None:
            return wanted, None
        return wanted or metadata.digest_type, metadata.password

    def show_availability(self, request: HttpRequest) -> HttpResponse:
        """Answer with the bookie's entries of a ledger three times: in BP-34's encoding as hex, as
        sequence groups (first, last, size, period), and as ranges. ``encoding=bookkeeper`` gives
        the bytes as BookKeeper encodes the same set."""
        ledger_id = query_parameters.parse_ledger_id(request)
        encodings = ("grouped", "bookkeeper")
        encoding = query_parameters.parse_choice(request, "encoding", encodings) or "grouped"
        if not self._bookie.ledger_exists(ledger_id):
            raise NoSuchLedger(f"ledger {ledger_id} is not on this bookie")
        entries = self._bookie.availability(ledger_id)
        encoded = entries.to_bytes("bookkeeper" if encoding == "bookkeeper" else "grouped")
        has_few_ranges = entries.range_count <= MAX_RANGES
        row = {
            "ledger_scope_id": ledger_id.scope,
            "ledger_id": ledger_id.ledger,
            "entries": len(entries),
            "encoding": encoding,
            "bytes": encoded.hex(),
            "groups": entries.groups.tolist(),
            "ranges": entries.ranges().tolist() if has_few_ranges else None,
        }
        return HttpResponse(200, stream_json_object(row.items()), headers=_HEADERS)


class _PayloadReader:
    """Extracts payloads from the records of one ledger. Its digest type must be known, because only
    records with a scope have the type, and so the length of the digest, in their headers."""

    def __init__(self, digest: str | None, password: bytes | None) -> None:
        self._password = password
        self._digest_of_ledger = digest
        self._coder: Coder | None = None

    def payload_of(self, ledger_id: LedgerId, entry_id: int, record: bytes) -> bytes:
        """Return the payload of a record. Its digest is verified, except a MAC if the password is
        unknown. A digest type that is not known either is taken from the first record."""
        if self._digest_of_ledger is None:
            self._digest_of_ledger = _detect_digest_type(record)
            if self._digest_of_ledger is None:
                reason = "its record does not show the digest type; give digest_type"
                raise HttpError(400, f"entry {entry_id} of ledger {ledger_id}: {reason}")
        digest = digest_name(self._digest_of_ledger)
        if digest == "HMAC" and self._password is None:
            return record[record_header(record).size + DIGEST_SIZES[digest] :]
        if self._coder is None:
            self._coder = Coder(digest, self._password)
        try:
            return self._coder.decode(record, ledger_id, entry_id).payload
        except CorruptionError as error:
            located_reason = f"entry {entry_id} of ledger {ledger_id}: {error.reason}"
            raise CorruptionError(error.file, error.offset, located_reason) from None


def _detect_digest_type(record: bytes) -> str | None:
    """Return the digest type in a record's header, or whose checksum matches its bytes."""
    digest = record_header(record).digest
    return matching_checksum(record) if digest is None else digest_name(digest)


def _requested_range(request: HttpRequest, page: int | None) -> tuple[int, int]:
    """Return the first and last requested entry, limited to the `page` if one is given. An
    ``end_entry_id`` of -1, the default, means the end of the page or ledger. Raises `HttpError`,
    with status 500 for an empty range, as in BookKeeper."""
    first = query_parameters.parse_integer(request, "start_entry_id", 0)
    last = query_parameters.parse_integer(request, "end_entry_id", -1)
    if first < 0 or first > MAX_ENTRY_ID:
        raise HttpError(400, f"start_entry_id={first} is not an entry id")
    if page is not None:
        page_first = (page - 1) * PAGE_ENTRIES
        page_last = page_first + PAGE_ENTRIES - 1
        first = max(first, page_first)
        last = page_last if last == -1 else min(last, page_last)
    if last != -1 and first > last:
        page_text = "" if page is None else f" on page {page}"
        raise HttpError(500, f"no entry is between start_entry_id and end_entry_id{page_text}")
    return first, MAX_ENTRY_ID if last == -1 else min(last, MAX_ENTRY_ID)


def _consecutive_runs(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of each run of consecutive ids."""
    start = previous = ids[0]
    for entry in ids[1:]:
        if entry != previous + 1:
            yield start, previous + 1
            start = entry
        previous = entry
    yield start, previous + 1
