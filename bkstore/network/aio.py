"""AsyncClient: the client of a cluster for asyncio.

It runs the calls of `Client` and `LedgerHandle` in threads of its own. Appends that are made while
others are in flight are sent together, so a service needs no batching of its own. A scope is the
upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, Self, TypeVar

from bkstore import forks
from bkstore.cluster.client.appends.pending_append import PendingAppend
from bkstore.cluster.client.ledger_handle import LedgerHandle
from bkstore.errors import BkstoreError, IllegalOperation
from bkstore.formats.entry import Entry
from bkstore.ids import LedgerId, check_entry_id
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.network.client import Client

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SCANNED_TOGETHER = 256
"""Entries that a scan hands from its thread to the event loop at a time."""

_LAC_WAIT_SECONDS = 1.0


class AsyncClient:
    """A client of a cluster for one event loop; its calls are those of `Client`, awaited.

    `store` and `options` are as for `Client`. Use it in ``async with``, which connects, and closes
    at the end. Up to `threads` calls run at once, and as many waits of `AsyncLedger.tail`. A call
    that is cancelled still runs to its end in its thread. Everything raises as in `Client`.

    >>> import asyncio, tempfile
    >>> from bkstore import Bookie
    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.wire.server import BookieServer
    >>> async def write_and_read(store):
    ...     async with AsyncClient(store) as client:
    ...         async with await client.create_ledger(1, 1, 1) as ledger:
    ...             ids = await asyncio.gather(ledger.append(b"one"), ledger.append(b"two"))
    ...         reader = await client.open_ledger(ledger.id)
    ...         return ids, [entry.payload async for entry in reader.tail()]
    >>> store = MemoryStore()
    >>> with tempfile.TemporaryDirectory() as top, Bookie.open(top) as bookie:
    ...     with BookieServer(bookie) as server:
    ...         store.register_bookie(str(server.address))
    ...         asyncio.run(write_and_read(store))
    ([0, 1], [b'one', b'two'])
    """

    def __init__(self, store: Any, *, threads: int = 64, **options: Any) -> None:
        self._connect = partial(Client, store, threads=threads, **options)
        self._client: Client | None = None
        self._call_threads = ThreadPoolExecutor(threads, "bkstore-aio")
        self._wait_threads = ThreadPoolExecutor(threads, "bkstore-aio-wait")

    async def __aenter__(self) -> Self:
        self._client = await _run_in_thread(self._call_threads, self._connect)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Client.close`; waits for calls that still run in threads. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await _run_in_thread(self._call_threads, client.close)
        for threads in (self._call_threads, self._wait_threads):
            await asyncio.to_thread(threads.shutdown)

    @property
    def blocking(self) -> Client:
        """The client whose calls run in threads; `IllegalOperation` outside ``async with``."""
        if self._client is None:
            raise IllegalOperation("this client is not open: use it in 'async with'")
        return self._client

    async def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest_type: str = "CRC32C",
        password: bytes = b"",
        scope: int = 0,
        ledger: int | LedgerId | None = None,
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> AsyncLedger:
        """Create a ledger; see `Client.create_ledger`."""
        return await self._open_ledger(
            self.blocking.create_ledger,
            ensemble_size,
            write_quorum,
            ack_quorum,
            digest_type=digest_type,
            password=password,
            scope=scope,
            ledger=ledger,
            custom_metadata=custom_metadata,
        )

    async def open_ledger(
        self,
        ledger: int | LedgerId,
        digest_type: str | None = None,
        password: bytes = b"",
        *,
        scope: int = 0,
    ) -> AsyncLedger:
        """Close the ledger, whoever writes it, and open it; see `Client.open_ledger`."""
        open_ledger = self.blocking.open_ledger
        return await self._open_ledger(open_ledger, ledger, digest_type, password, scope=scope)

    async def open_ledger_no_recovery(
        self,
        ledger: int | LedgerId,
        digest_type: str | None = None,
        password: bytes = b"",
        *,
        scope: int = 0,
    ) -> AsyncLedger:
        """Open a ledger without an effect on its writer; see `Client.open_ledger_no_recovery`."""
        open_ledger = self.blocking.open_ledger_no_recovery
        return await self._open_ledger(open_ledger, ledger, digest_type, password, scope=scope)

    async def delete_ledger(self, ledger: int | LedgerId, *, scope: int = 0) -> None:
        """Delete the ledger from the metadata store; see `Client.delete_ledger`."""
        await _run_in_thread(self._call_threads, self.blocking.delete_ledger, ledger, scope=scope)

    async def _open_ledger(
        self, call: Callable[_P, LedgerHandle], *arguments: _P.args, **options: _P.kwargs
    ) -> AsyncLedger:
        """Open or create a ledger in a thread, and wrap its handle."""
        handle = await _run_in_thread(self._call_threads, call, *arguments, **options)
        return AsyncLedger(handle, self._call_threads, self._wait_threads)


class AsyncLedger:
    """An open ledger of an `AsyncClient`; its calls are those of `LedgerHandle`, awaited.

    ``async with`` closes a ledger that was created, unless the block ends by an exception.
    """

    def __init__(
        self,
        handle: LedgerHandle,
        call_threads: ThreadPoolExecutor,
        wait_threads: ThreadPoolExecutor,
    ) -> None:
        self.blocking = handle
        """The handle whose calls run in threads."""
        self._call_threads = call_threads
        self._wait_threads = wait_threads
        self._unsent: list[tuple[bytes, asyncio.Future[int]]] = []
        self._sender: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncLedger of {self.blocking!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()

    @property
    def ledger(self) -> LedgerId:
        """The ledger's 128-bit id."""
        return self.blocking.ledger

    @property
    def id(self) -> int:
        """The ledger's number in its scope, unsigned."""
        return self.blocking.id

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this handle last saw it."""
        return self.blocking.metadata

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, as far as this handle knows."""
        return self.blocking.closed

    @property
    def last_add_confirmed(self) -> int:
        """The LAC as this handle knows it, -1 if nothing is confirmed; sends no request."""
        return self.blocking.last_add_confirmed

    # -- writing

    async def append(self, data: bytes) -> int:
        """Add an entry; return its id once A of the W bookies of its write set have it.

        Entries get their ids in the order of the calls. Calls that are made while an entry is in
        flight are sent together once it is confirmed. A cancelled call's entry may be appended.
        Raises as `LedgerHandle.append`. Cost: about 25 us an entry beside a request's.
        """
        appended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unsent.append((data, appended))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return await appended

    async def append_many(self, payloads: Iterable[bytes]) -> list[int]:
        """Add entries in order and return their ids, as if by concurrent `append` calls. Raises the
        first error, once all are decided."""
        tasks = [asyncio.ensure_future(self.append(data)) for data in payloads]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, int)]

    async def _send_all(self) -> None:
        """Send what `append` queued, until nothing is left: each time all that is queued."""
        unsent: list[tuple[bytes, asyncio.Future[int]]] = []
        try:
            while self._unsent:
                unsent, self._unsent = self._unsent, []
                payloads = [data for data, _ in unsent]
                outcomes: list[int | BkstoreError]
                try:
                    outcomes = await _run_in_thread(
                        self._call_threads, self._append_together, payloads
                    )
                except IllegalOperation as error:  # the client was closed
                    outcomes = [error] * len(unsent)
                for (_, appended), outcome in zip(unsent, outcomes):
                    _settle_append(appended, outcome)
        finally:
            self._sender = None
            for _, appended in unsent + self._unsent:  # none is left unless the task is cancelled
                appended.cancel()

    def _append_together(self, payloads: list[bytes]) -> list[int | BkstoreError]:
        """Append entries in order; return the id or the error of each. Runs in a thread."""
        pending = [_value_or_error(partial(self.blocking.append_later, data)) for data in payloads]
        return [
            _value_or_error(append.result) if isinstance(append, PendingAppend) else append
            for append in pending
        ]

    async def force(self) -> int:
        """Make entries durable that were added without sync; see `LedgerHandle.force`."""
        return await self._call_in_thread(self.blocking.force)

    async def write_explicit_lac(self) -> int:
        """Send the LAC to bookies, for tailing readers; see `LedgerHandle.write_explicit_lac`."""
        return await self._call_in_thread(self.blocking.write_explicit_lac)

    async def close(self) -> None:
        """Wait for appends that were begun, then close the ledger as `LedgerHandle.close` does."""
        while self._sender is not None:
            await asyncio.wait([self._sender])
        await self._call_in_thread(self.blocking.close)

    # -- reading

    async def read_entry(self, entry_id: int) -> Entry:
        """Return one entry; see `LedgerHandle.read`."""
        return await self._call_in_thread(self.blocking.read_entry, entry_id)

    async def read(self, first: int, last: int) -> list[Entry]:
        """Return the entries first..last (inclusive); see `LedgerHandle.read`."""
        return await self._call_in_thread(self.blocking.read, first, last)

    async def read_batch(self, start: int, max_count: int = 0, max_size: int = 0) -> list[Entry]:
        """Return entries from `start` on by one request; see `LedgerHandle.read_batch`."""
        return await self._call_in_thread(self.blocking.read_batch, start, max_count, max_size)

    async def read_last_confirmed(self) -> int:
        """Ask the bookies for the LAC; see `LedgerHandle.read_last_confirmed`."""
        return await self._call_in_thread(self.blocking.read_last_confirmed)

    async def scan(self, first: int, last: int) -> AsyncIterator[Entry]:
        """Yield the entries first..last (inclusive) in order; see `LedgerHandle.scan`."""
        entries = await self._call_in_thread(self.blocking.scan, first, last)
        while batch := await self._call_in_thread(_next_entries, entries):
            for entry in batch:
                yield entry

    async def tail(self, first: int = 0) -> AsyncIterator[Entry]:
        """Yield the entries from `first` on, each as soon as it is confirmed, until the ledger is
        closed; see `LedgerHandle.tail`."""
        entry_id = check_entry_id(first)
        while True:
            lac = self.last_add_confirmed
            if entry_id <= lac:
                async for entry in self.scan(entry_id, lac):
                    yield entry
                entry_id = lac + 1
            elif self.closed:
                return
            else:
                wait = self.blocking.wait_for_last_confirmed
                await _run_in_thread(self._wait_threads, wait, _LAC_WAIT_SECONDS)

    async def _call_in_thread(
        self, call: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs
    ) -> _T:
        return await _run_in_thread(self._call_threads, call, *arguments, **options)


async def _run_in_thread(
    threads: ThreadPoolExecutor,
    call: Callable[_P, _T],
    *arguments: _P.args,
    **options: _P.kwargs,
) -> _T:
    """Return the result of a call that runs in one of the threads. Raises `IllegalOperation` if
    they were shut down."""
    work = partial(call, *arguments, **options)
    try:
        result = asyncio.get_running_loop().run_in_executor(threads, work)
    except RuntimeError:
        raise forks.closed_error("this client") from None
    return await result


def _next_entries(entries: Iterator[Entry]) -> list[Entry]:
    return list(islice(entries, _SCANNED_TOGETHER))


def _value_or_error(call: Callable[[], _T]) -> _T | BkstoreError:
    try:
        return call()
    except BkstoreError as error:
        return error


def _settle_append(appended: asyncio.Future[int], outcome: int | BkstoreError) -> None:
    """Give a waiting `append` its id or error, unless it was cancelled."""
    if appended.done():
        return
    if isinstance(outcome, BkstoreError):
        appended.set_exception(outcome)
    else:
        appended.set_result(outcome)
