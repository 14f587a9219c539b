"""WireClient: a bookie at an address as clients and the auditor see it, a `BookieClient`.

Page: `docs/wire-client.md`. Source: `proto/BookieClientImpl`, `proto/PerChannelBookieClient`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import numpy.typing as npt

from bkstore import forks
from bkstore.arguments import choice, data, instance, number, optional, text, truth, whole
from bkstore.availability import Availability
from bkstore.cluster.client.bookie_client import LastConfirmed
from bkstore.errors import BkstoreError, IllegalOperation, InvalidArgument
from bkstore.formats.entry import RecordBatch, ids_of, record_header
from bkstore.ids import LedgerId, as_entry_ids, check_integer
from bkstore.index.api import Closing, LedgerLike
from bkstore.index.many_ledgers import Errors, asked_for
from bkstore.storage.batch_limits import check_limits, fencing_key
from bkstore.wire.client.link import Link, Settings
from bkstore.wire.client.requests import LAST_ENTRY, Request
from bkstore.wire.client.stream import parse_address
from bkstore.wire.client.v2_dialect import V2Dialect
from bkstore.wire.client.v3_dialect import DiskSpace, LacUpdate, V3Dialect
from bkstore.wire.frames import MAX_FRAME
from bkstore.wire.sasl import SaslUser

_T = TypeVar("_T")

_check_batch = instance(RecordBatch)
_check_protocol = choice("v2", "v3")
_check_timeout = number(above=True)
_check_tls = optional(instance(ssl.SSLContext))
_check_user = optional(instance(SaslUser))
_check_window = whole(1, 1 << 16)
_check_previous = whole(-1)
_MOST_RECORDS = 2**31 - 1


class WireClient(Closing):
    """One bookie, over its protocol v2 or v3; connects at the first call, and again as needed.

    With v2, what it has no message for (LAC, force, adds without sync, bookie info, lists of
    entries) goes over a second connection, which speaks v3. A ledger of another scope needs
    `extended`, with which v3 has scopes and batch reads as bkstore has them, and v3; else
    `IllegalOperation` before anything is sent, as for batch reads by plain v3.

    `timeout` is how many seconds connecting and each answer may take, `window` how many requests
    are under way on a connection at most. `tls` is the context of a client: the connection is
    encrypted by START_TLS. `sasl` is the user that it authenticates as (SASL, DIGEST-MD5) before
    anything is asked; a bookie that asks for no authentication is served by without.
    `bookie_id` is the address unless it is given.

    Every call raises what the bookie's status stands for (`bkstore.wire.status`), with the
    address; `BookieUnavailable` where no answer came, and then what was asked for may have been
    done; `CorruptionError` for bytes that are no answer. Where the connection is lost or given up
    the next call connects anew. Nothing is sent twice by itself.

    Threads: safe, they share the connection; `close` ends the calls of others with
    `BookieUnavailable`. Fork: the child makes a connection of its own, the parent's goes on.

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
        self._settings = Settings(
            parse_address(address),
            _check_timeout("timeout", timeout),
            _check_window("window", window),
            _check_tls("tls", tls),
            _check_user("sasl", sasl),
        )
        self.protocol = _check_protocol("protocol", protocol)
        self._id = optional(text)("bookie_id", bookie_id) or self._settings.name
        v3 = V3Dialect(truth("extended", extended))
        self._v3 = Link(v3, self._settings, self.__repr__)
        self._main: Link[V2Dialect] | Link[V3Dialect] = self._v3
        if protocol == "v2":
            self._main = Link(V2Dialect(), self._settings, self.__repr__)
        forks.register(self)

    def __repr__(self) -> str:
        """Return address and protocol."""
        return f"<WireClient {self._settings.name} {self.protocol}>"

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as ensembles name it."""
        return self._id

    @property
    def batch_reads(self) -> bool:
        """Whether the protocol has batch reads: v2 has, v3 if it is extended."""
        return self._main.dialect.batch_reads

    @property
    def connected(self) -> bool:
        """Whether a connection is open. Asks nobody; one that the bookie ended is let go, which
        otherwise happens at the next call."""
        return self._main.connected() | self._v3.connected()

    def close(self) -> None:
        """End the connections. Idempotent; every later call raises `IllegalOperation`."""
        self._main.close()
        self._v3.close()

    def _forked(self) -> None:
        self._main.forked()
        if self._v3 is not self._main:
            self._v3.forked()

    def _named(self, ledger: LedgerLike) -> LedgerId:
        """Return the ledger; `IllegalOperation` if the protocol cannot say it."""
        name = LedgerId.of(ledger)
        self._main.dialect.check(name)
        return name

    # -- adding

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record and return its entry id; durable with `sync`."""
        if type(record) is not bytes or type(master_key) is not bytes:
            record, master_key = data("record", record), data("master key", master_key)
        ids = record_header(record)[:2]
        self._main.dialect.check(ids[0])
        if sync:
            (request,) = self._main.dialect.adds((record,), (ids,), master_key, recovery)
            return self._main.connection().ask(request)
        (request,) = self._v3.dialect.adds((record,), (ids,), master_key, recovery, False)
        return self._v3.connection().ask(request)

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """Store the records of a batch, all durable at return; up to `window` under way.

        The bookie may take them in any order. Raises the error of the first that was refused,
        once all that were sent are answered; its `stored` says how many before that one are
        stored for certain, and others behind it may be. Where the connection is lost none is
        reported that was not answered. Some 10 us a record.
        """
        _check_batch("batch", batch)
        master_key = data("master key", master_key)
        ids = ids_of(batch)
        if ids.entries.size < len(batch):
            raise InvalidArgument(f"record {ids.entries.size} of the batch is no entry")
        ledgers = list(zip(ids.scopes.tolist(), ids.ledgers.tolist()))
        names = {pair: self._named(LedgerId.from_signed(*pair)) for pair in set(ledgers)}
        pairs = list(zip(map(names.__getitem__, ledgers), ids.entries.tolist()))
        requests = self._adds(batch, pairs, master_key, recovery)
        connection = self._main.connection()
        for at, request in enumerate(connection.ask_all(requests)):
            try:
                connection.result(request)
            except BkstoreError as error:
                error.stored = at
                raise

    def _adds(
        self, batch: RecordBatch, ids: Sequence[tuple[LedgerId, int]], key: bytes, recovery: bool
    ) -> Iterator[Request[int]]:
        """Yield requests for the records of a batch, made a few at a time."""
        few = 64
        for start in range(0, len(batch), few):
            records = batch.between(start, start + few)
            some = ids[start : start + few]
            yield from self._main.dialect.adds(records.records(), some, key, recovery)

    # -- reading

    def read_entry(
        self,
        ledger: LedgerLike,
        entry: int,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> bytes:
        """Return one record; entry -1 means the last one. With `fence` the ledger is fenced
        first, which needs its `master_key`; also where there is no such entry."""
        name, key = self._named(ledger), fencing_key(fence, master_key)
        request = self._main.dialect.read(name, check_integer(entry, "entry id"), key)
        return self._main.connection().ask(request)

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

        `max_count` 0 is no limit, `max_size` 0 the most that a frame takes. A view of the
        answer's bytes; ids are checked, digests are not. Cost: a round trip and some 0.2 us a
        record.
        """
        name, key = self._named(ledger), fencing_key(fence, master_key)
        max_count, max_size = check_limits(max_count, max_size)
        size = min(max_size, MAX_FRAME) if max_size else MAX_FRAME
        most = 1 if start == LAST_ENTRY else min(max_count, _MOST_RECORDS)
        request = self._main.dialect.read_batch(
            name, check_integer(start, "entry id"), most, size, key
        )
        return self._main.connection().ask(request)

    def read_many(
        self,
        ledger: LedgerLike,
        entries: npt.ArrayLike | Iterable[int],
        errors: dict[int, BkstoreError] | None = None,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return the records of these entries, in their order, by single reads under way together.

        Raises the error of the first that fails; with `errors` those that fail are noted there by
        entry id, and left out, and only a connection that cannot be made is raised. `fence` as in
        `read_entry`. Some 10 us an entry.
        """
        name, key = self._named(ledger), fencing_key(fence, master_key)
        wanted = as_entry_ids(entries).tolist()
        dialect = self._main.dialect
        connection = self._main.connection()
        records: list[bytes] = []
        found: list[int] = []
        answered = connection.ask_all(dialect.read(name, entry, key) for entry in wanted)
        for request, entry in zip(answered, wanted):  # in this order `answered` comes to its end
            try:
                records.append(connection.result(request))
            except BkstoreError as error:
                if errors is None:
                    raise
                errors[entry] = error
            else:
                found.append(entry)
        return RecordBatch.of(records, found)

    # -- LAC, durable, what is there

    def read_lac(self, ledger: LedgerLike) -> LastConfirmed:
        """Return what the bookie knows of the LAC; `NoSuchEntry` if it knows neither."""
        return self._ask_v3(self._v3.dialect.read_lac(self._named(ledger)))

    def wait_for_lac(self, ledger: LedgerLike, previous: int, seconds: float = 1.0) -> LacUpdate:
        """Return the LAC once it is above `previous`, or as it is after so many seconds.

        With the record of entry `previous` + 1 if the LAC is above `previous`.
        """
        name = self._named(ledger)
        wait = number()("seconds", seconds)
        before = _check_previous("previous", previous)
        return self._ask_v3(self._v3.dialect.wait_for_lac(name, before, wait))

    def write_lac(self, ledger: LedgerLike, body: bytes, master_key: bytes) -> None:
        """Keep the body of an explicit LAC."""
        body, key = data("explicit LAC", body), data("master key", master_key)
        return self._ask_v3(self._v3.dialect.write_lac(self._named(ledger), body, key))

    def force(self, ledger: LedgerLike) -> None:
        """Make durable what was added without `sync`."""
        return self._ask_v3(self._v3.dialect.force(self._named(ledger)))

    def disk_space(self) -> DiskSpace:
        """Return total and free bytes of the bookie's disks."""
        return self._ask_v3(self._v3.dialect.disk_space())

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger are here; `NoSuchLedger` if it is unknown.

        A real bookie with db storage gives no answer: `BookieUnavailable`.
        """
        return self._ask_v3(self._v3.dialect.availability(self._named(ledger)))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """As `EntrySource.availability_many`, requests under way together; `NoSuchLedger` for
        an unknown ledger, `IllegalOperation` without `ledgers`, which no message asks for."""
        if ledgers is None:
            raise IllegalOperation(f"{self!r}: the protocol has no list of ledgers")
        names = [self._named(name) for name in asked_for(ledgers)]
        connection = self._v3.connection()
        requests = map(self._v3.dialect.availability, names)
        for request, name in zip(connection.ask_all(requests), names):
            try:
                found = connection.result(request)
            except BkstoreError as error:
                if errors is None:
                    raise
                errors[name] = error
            else:
                yield name, found

    def _ask_v3(self, request: Request[_T]) -> _T:
        return self._v3.connection().ask(request)
