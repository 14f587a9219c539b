"""WireClient: a `BookieClient` for the bookie at an address.

A scope is the upper 64 bits of a ledger id, 0 in BookKeeper; `extended` v3 has scopes and batch
reads. Page: `docs/wire-client.md`. Source: `proto/BookieClientImpl`,
`proto/PerChannelBookieClient`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

import numpy.typing as npt

from bkstore import forks
from bkstore.arguments import boolean, bytes_like, choice, instance, integer, number, optional, text
from bkstore.availability import Availability
from bkstore.cluster.client.bookie_client import LacResponse
from bkstore.errors import BkstoreError, IllegalOperation, InvalidArgument
from bkstore.formats.entry import RecordBatch, read_batch_ids, record_header
from bkstore.ids import LedgerId, as_entry_ids, check_integer
from bkstore.index.api import Closeable, LedgerLike
from bkstore.index.bulk_listing import LedgerErrors, normalize_ledger_ids
from bkstore.storage.batch_limits import check_fencing_key, check_limits
from bkstore.wire.client.addresses import parse_address
from bkstore.wire.client.dialect import LAST_ENTRY, PendingRequest
from bkstore.wire.client.reconnection import ConnectionSettings, ReconnectingLink
from bkstore.wire.client.v2_dialect import V2Dialect
from bkstore.wire.client.v3_dialect import DiskSpace, LacUpdate, V3Dialect
from bkstore.wire.frames import MAX_FRAME_BYTES
from bkstore.wire.sasl import SaslUser

_T = TypeVar("_T")

_check_batch = instance(RecordBatch)
_check_protocol = choice("v2", "v3")
_check_timeout = number(above=True)
_check_tls = optional(instance(ssl.SSLContext))
_check_user = optional(instance(SaslUser))
_check_window = integer(1, 1 << 16)
_check_previous = integer(-1)
_MAX_BATCH_COUNT = 2**31 - 1
_ADDS_MADE_AHEAD = 64  # requests of a batch made at a time, to bound memory


class WireClient(Closeable):
    """One bookie, over protocol v2 or v3. Connects at the first call, and again as needed.

    Requests that v2 has no message for (LAC, force, adds without sync, bookie info, lists of
    entries) go over a second connection, by v3. A ledger in a scope needs v3 with `extended`, which
    adds bkstore's scopes and batch reads. Otherwise scopes, and batch reads by plain v3, raise
    `IllegalOperation` before anything is sent.

    `timeout` is the seconds for connecting and for each answer, `window` the most requests in
    flight on a connection. `tls` is a client's context for START_TLS, `sasl` the user to
    authenticate as (DIGEST-MD5), if the bookie does that. `bookie_id` is by default the address.

    Every call raises the error of the bookie's status (`bkstore.wire.status_codes`), with the
    address; `BookieUnavailable` without an answer, and then the bookie may still have done the
    request; `CorruptionError` for an invalid answer. No request is retried, but the next call after
    a lost connection connects again. Threads: safe, on one connection; `close` ends the calls of
    others with `BookieUnavailable`. Fork: the child connects on its own, the parent's connection
    goes on.

    >>> client = WireClient("127.0.0.1:3181", extended=False)
    >>> client.bookie_id, client.batch_reads
    ('127.0.0.1:3181', True)
    >>> client.close()
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        protocol: Literal["v2", "v3"] = "v2",
        extended: bool = False,
        *,
        timeout: float = 5.0,
        window: int = 256,
        tls: ssl.SSLContext | None = None,
        sasl: SaslUser | None = None,
        bookie_id: str | None = None,
    ) -> None:
        """Check the settings; the first call connects."""
        self._settings = ConnectionSettings(
            parse_address(address),
            _check_timeout("timeout", timeout),
            _check_window("window", window),
            _check_tls("tls", tls),
            _check_user("sasl", sasl),
        )
        self.protocol = _check_protocol("protocol", protocol)
        self._id = optional(text)("bookie_id", bookie_id) or self._settings.bookie_name
        v3_dialect = V3Dialect(boolean("extended", extended))
        describe = self.__repr__  # for errors
        self._v3_link = ReconnectingLink(v3_dialect, self._settings, describe)
        self._main_link: ReconnectingLink[V2Dialect] | ReconnectingLink[V3Dialect] = self._v3_link
        if protocol == "v2":
            self._main_link = ReconnectingLink(V2Dialect(), self._settings, describe)
        forks.register(self)

    def __repr__(self) -> str:
        return f"<WireClient {self._settings.bookie_name} {self.protocol}>"

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as in ensembles."""
        return self._id

    @property
    def batch_reads(self) -> bool:
        """Whether the protocol has batch reads: v2, and v3 if it is extended."""
        return self._main_link.dialect.batch_reads

    @property
    def connected(self) -> bool:
        """Whether a connection is open. Sends nothing. Closes connections that the bookie has
        ended, as the next call would."""
        return self._main_link.is_connected() | self._v3_link.is_connected()

    def close(self) -> None:
        """End the connections. Idempotent; every later call raises `IllegalOperation`."""
        self._main_link.close()
        self._v3_link.close()

    def _forked(self) -> None:
        self._main_link.after_fork()
        if self._v3_link is not self._main_link:
            self._v3_link.after_fork()

    def _check_ledger(self, ledger: LedgerLike) -> LedgerId:
        """Return the ledger's id. Raises `IllegalOperation` if the protocol cannot express it."""
        ledger_id = LedgerId.of(ledger)
        self._main_link.dialect.check_ledger(ledger_id)
        return ledger_id

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record, durably with `sync`; return its entry id."""
        if type(record) is not bytes or type(master_key) is not bytes:
            record, master_key = bytes_like("record", record), bytes_like("master key", master_key)
        ids = record_header(record)[:2]  # ledger and entry
        self._main_link.dialect.check_ledger(ids[0])
        if sync:
            (request,) = self._main_link.dialect.adds((record,), (ids,), master_key, recovery)
            return self._main_link.get_connection().call(request)
        # v2 has no adds without sync
        (request,) = self._v3_link.dialect.adds((record,), (ids,), master_key, recovery, sync=False)
        return self._v3_link.get_connection().call(request)

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """Store a batch's records durably, in any order, with up to `window` requests in flight.

        Raises the error of the first refused record, once all requests sent are answered. Its
        `stored` is the number of records before that one, all stored; later ones may be stored too.
        If the connection is lost, only answered records count as stored. About 10 us a record.
        """
        _check_batch("batch", batch)
        master_key = bytes_like("master key", master_key)
        ids = read_batch_ids(batch)
        if ids.entries.size < len(batch):
            raise InvalidArgument(f"record {ids.entries.size} of the batch is not an entry")
        pairs = list(zip(ids.scopes.tolist(), ids.ledgers.tolist()))
        ledger_ids = {pair: self._check_ledger(LedgerId.from_signed(*pair)) for pair in set(pairs)}
        record_ids = list(zip(map(ledger_ids.__getitem__, pairs), ids.entries.tolist()))
        dialect, connection = self._main_link.dialect, self._main_link.get_connection()

        def make_requests() -> Iterator[PendingRequest[int]]:
            """Yield the requests of the batch; each `_ADDS_MADE_AHEAD` of them are made at once."""
            for start in range(0, len(batch), _ADDS_MADE_AHEAD):
                rows = slice(start, start + _ADDS_MADE_AHEAD)
                records = batch.between(rows.start, rows.stop).records()
                yield from dialect.adds(records, record_ids[rows], master_key, recovery)

        for stored_count, request in enumerate(connection.call_all(make_requests())):
            try:
                connection.result(request)
            except BkstoreError as error:
                error.stored = stored_count
                raise

    def read_entry(
        self,
        ledger: LedgerLike,
        entry: int,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> bytes:
        """Return one record; entry -1 means the last one. With `fence`, which needs the
        `master_key`, the ledger is fenced first, even if there is no such entry."""
        ledger_id, key = self._check_ledger(ledger), check_fencing_key(fence, master_key)
        request = self._main_link.dialect.read(ledger_id, check_integer(entry, "entry id"), key)
        return self._main_link.get_connection().call(request)

    def read_entries(
        self,
        ledger: LedgerLike,
        start: int,
        max_count: int = 0,
        max_size: int = 0,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return records of consecutive entries from `start` on, by one request (BP-62).

        `max_count` 0 is no limit, `max_size` 0 the largest frame. The batch is a view of the
        answer; ids are checked, digests are not. Cost: a round trip and about 0.2 us a record.
        """
        ledger_id, key = self._check_ledger(ledger), check_fencing_key(fence, master_key)
        max_count, max_size = check_limits(max_count, max_size)
        size_limit = min(max_size, MAX_FRAME_BYTES) if max_size else MAX_FRAME_BYTES
        # a bookie increments the requested id: after the last entry (-1) come entries 0, 1, ...
        count_limit = 1 if start == LAST_ENTRY else min(max_count, _MAX_BATCH_COUNT)
        first_id, dialect = check_integer(start, "entry id"), self._main_link.dialect
        request = dialect.read_batch(ledger_id, first_id, count_limit, size_limit, key)
        return self._main_link.get_connection().call(request)

    def read_many(
        self,
        ledger: LedgerLike,
        entries: npt.ArrayLike | Iterable[int],
        errors: dict[int, BkstoreError] | None = None,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return the records of these entries, in their order, by single reads in flight together.

        Raises the error of the first read that fails. With `errors`, which gets them by entry id,
        failed entries are left out; only a failure to connect is raised. About 10 us an entry.
        """
        ledger_id, key = self._check_ledger(ledger), check_fencing_key(fence, master_key)
        entry_ids = as_entry_ids(entries).tolist()
        dialect, connection = self._main_link.dialect, self._main_link.get_connection()
        records: list[bytes] = []
        read_ids: list[int] = []
        answered = connection.call_all(dialect.read(ledger_id, entry, key) for entry in entry_ids)
        for request, entry in zip(answered, entry_ids, strict=True):
            try:
                records.append(connection.result(request))
            except BkstoreError as error:
                if errors is None:
                    raise
                errors[entry] = error
            else:
                read_ids.append(entry)
        return RecordBatch.of(records, read_ids)

    def read_lac(self, ledger: LedgerLike) -> LacResponse:
        """Return the explicit LAC and the last entry. Raises `NoSuchEntry` if there is neither."""
        return self._ask_over_v3(self._v3_link.dialect.read_lac(self._check_ledger(ledger)))

    def wait_for_lac(self, ledger: LedgerLike, previous: int, seconds: float = 1.0) -> LacUpdate:
        """Return the LAC once it is above `previous`, with the record of entry `previous` + 1, or
        the current one after `seconds`."""
        ledger_id = self._check_ledger(ledger)
        wait = number()("seconds", seconds)
        previous_lac = _check_previous("previous", previous)
        return self._ask_over_v3(self._v3_link.dialect.wait_for_lac(ledger_id, previous_lac, wait))

    def write_lac(self, ledger: LedgerLike, body: bytes, master_key: bytes) -> None:
        """Store the body of an explicit LAC."""
        body, key = bytes_like("explicit LAC", body), bytes_like("master key", master_key)
        ledger_id = self._check_ledger(ledger)
        return self._ask_over_v3(self._v3_link.dialect.write_lac(ledger_id, body, key))

    def force(self, ledger: LedgerLike) -> None:
        """Make adds without `sync` durable."""
        return self._ask_over_v3(self._v3_link.dialect.force(self._check_ledger(ledger)))

    def disk_space(self) -> DiskSpace:
        """Return total and free bytes of the bookie's disks."""
        return self._ask_over_v3(self._v3_link.dialect.disk_space())

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger the bookie has. Raises `NoSuchLedger` if unknown, and
        `BookieUnavailable` for BookKeeper's db storage, which gives no answer."""
        return self._ask_over_v3(self._v3_link.dialect.availability(self._check_ledger(ledger)))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Yield each ledger with the bookie's entries, with requests in flight together. With
        `errors`, which gets them by ledger, failed ledgers are left out. Raises `NoSuchLedger` for
        an unknown ledger, and `IllegalOperation` without `ledgers`."""
        if ledgers is None:
            raise IllegalOperation(f"{self!r}: the protocol cannot list ledgers")
        ledger_ids = [self._check_ledger(ledger_id) for ledger_id in normalize_ledger_ids(ledgers)]
        connection = self._v3_link.get_connection()
        requests = map(self._v3_link.dialect.availability, ledger_ids)
        for request, ledger_id in zip(connection.call_all(requests), ledger_ids):
            try:
                entries = connection.result(request)
            except BkstoreError as error:
                if errors is None:
                    raise
                errors[ledger_id] = error
            else:
                yield ledger_id, entries

    def _ask_over_v3(self, request: PendingRequest[_T]) -> _T:
        return self._v3_link.get_connection().call(request)
