"""`ledger/read`, `ledger/delete`, `ledger/availability`: the entries that this bookie holds.

Upstream's `ReadLedgerEntryService` and `DeleteLedgerService` are clients of the whole cluster;
here one bookie answers. Which entries it has is BP-34's listing, which upstream's admin lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError, NoSuchLedger
from bkstore.formats.entry import Coder, fitting_checksum, record_header
from bkstore.formats.entry.digest import DIGEST_SIZES, digest_name
from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin import parameters
from bkstore.wire.admin.ledgers import SOURCE
from bkstore.wire.admin.messages import Answer, Refused, Request, json_answer, members

PAGE = 1000
"""Entries of a page."""

MOST_RANGES = 100_000
"""Ranges that are written out; groups say the same in less."""

_READ_AT_ONCE = 1 << 20
_DIGESTS = ("CRC32", "CRC32C", "MAC", "HMAC", "DUMMY")
_HERE = {SOURCE: "bookie"}


class EntryEndpoints:
    """Reads and deletes what the bookie holds. Memory: about a MiB, or an entry, a request."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore | None) -> None:
        self._bookie = bookie
        self._metadata = metadata

    # -- read

    def read(self, request: Request) -> Answer:
        """Answer with entry id -> payload as ASCII text, of the entries that are here."""
        name = parameters.ledger(request)
        digest = parameters.choice(request, "digest_type", _DIGESTS)
        page = parameters.page(request)
        first, last = _span(request, page)
        if not self._bookie.ledger_exists(name):
            raise NoSuchLedger(f"ledger {name} is not known here")
        wanted = Availability.from_ranges([(first, last)]) & self._bookie.availability(name)
        payloads = _Payloads(*self._digest(name, digest))
        return Answer(200, members(self._read(name, wanted, payloads, page)), headers=_HERE)

    def _read(
        self, name: LedgerId, wanted: Availability, payloads: _Payloads, page: int | None
    ) -> Iterator[tuple[str, Any]]:
        if page is not None:
            yield "Entries for page: ", str(page)
        ids = iter(wanted)
        while some := list(islice(ids, PAGE)):
            for start, stop in _runs(some):
                while start < stop:
                    batch = self._bookie.read_entries(name, start, stop - start, _READ_AT_ONCE)
                    for entry, record in zip(batch.entries.tolist(), batch):
                        text = payloads.of(name, entry, bytes(record))
                        yield str(entry), text.decode("ascii", "replace")
                    start += len(batch)

    def _digest(self, name: LedgerId, asked: str | None) -> tuple[str | None, bytes | None]:
        """Return (digest type, password) as far as they are known."""
        found = None
        if self._metadata is not None:
            with suppress(NoSuchLedger):  # the bookie holds it still
                found = self._metadata.read(name).metadata
        if found is None or found.digest_type is None:
            return asked, None
        return asked or found.digest_type, found.password

    # -- delete

    def delete(self, request: Request) -> Answer:
        """Delete a ledger's metadata, or without a store its entries here; durably.

        A ledger that is gone already is no error, as upstream.
        """
        name = parameters.ledger(request)
        if self._metadata is not None:
            with suppress(NoSuchLedger):
                self._metadata.delete(name)
        elif self._bookie.ledger_exists(name):
            self._bookie.delete_ledger(name)
            self._bookie.checkpoint()  # no journal says that a ledger was deleted
        return json_answer(f"Deleted ledger: {name.ledger}")

    # -- availability

    def availability(self, request: Request) -> Answer:
        """Answer with BP-34's condensed form: bytes in hex, groups, ranges."""
        name = parameters.ledger(request)
        words = ("grouped", "bookkeeper")
        encoding = parameters.choice(request, "encoding", words) or "grouped"
        if not self._bookie.ledger_exists(name):
            raise NoSuchLedger(f"ledger {name} is not known here")
        here = self._bookie.availability(name)
        few = here.range_count <= MOST_RANGES
        row = {
            "ledger_scope_id": name.scope,
            "ledger_id": name.ledger,
            "entries": len(here),
            "encoding": encoding,
            "bytes": here.to_bytes("bookkeeper" if encoding == "bookkeeper" else "grouped").hex(),
            "groups": here.groups.tolist(),
            "ranges": here.ranges().tolist() if few else None,
        }
        return Answer(200, members(row.items()), headers=_HERE)


class _Payloads:
    """Takes the payloads out of records; a version 1 record does not say how long its digest is."""

    def __init__(self, digest: str | None, password: bytes | None) -> None:
        self._password = password
        self._digest = digest
        self._coder: Coder | None = None

    def of(self, name: LedgerId, entry: int, record: bytes) -> bytes:
        """Return the payload, verified where that needs no password or there is one."""
        if self._digest is None:
            self._digest = _told_by(record)
            if self._digest is None:
                reason = "its record does not tell its digest type: give digest_type"
                raise Refused(400, f"entry {entry} of ledger {name}: {reason}")
        kind = digest_name(self._digest)
        if kind == "HMAC" and self._password is None:
            return record[record_header(record).size + DIGEST_SIZES[kind] :]
        if self._coder is None:
            self._coder = Coder(kind, self._password)
        try:
            return self._coder.decode(record, name, entry).payload
        except CorruptionError as error:
            where = f"entry {entry} of ledger {name}: {error.reason}"
            raise CorruptionError(error.file, error.offset, where) from None


def _told_by(record: bytes) -> str | None:
    """Return the digest type that a record names, or whose checksum fits its bytes."""
    said = record_header(record).digest
    if said is not None:
        return digest_name(said)
    return fitting_checksum(record)


def _span(request: Request, page: int | None) -> tuple[int, int]:
    """Return the first and the last entry asked for, by upstream's rules for pages."""
    first = parameters.integer(request, "start_entry_id", 0)
    last = parameters.integer(request, "end_entry_id", -1)
    if first < 0 or first > MAX_ENTRY_ID:
        raise Refused(400, f"start_entry_id={first} is no entry id")
    if page is not None:
        begin = (page - 1) * PAGE
        end = begin + PAGE - 1
        first = max(first, begin)
        last = end if last == -1 else min(last, end)
    if last != -1 and first > last:
        beside = "" if page is None else f" on page {page}"
        raise Refused(500, f"no entry lies between start_entry_id and end_entry_id{beside}")
    return first, MAX_ENTRY_ID if last == -1 else min(last, MAX_ENTRY_ID)


def _runs(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, behind the last) of runs of consecutive ids."""
    start = before = ids[0]
    for entry in ids[1:]:
        if entry != before + 1:
            yield start, before + 1
            start = entry
        before = entry
    yield start, before + 1
