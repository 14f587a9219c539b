"""The client for asyncio: appends sent together, reads, and tails that follow a writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bkstore import Bookie
from bkstore.cluster import MemoryStore
from bkstore.cluster.client import ledger_handle
from bkstore.cluster.client.last_add_confirmed import LacRead, read_lac
from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NoSuchLedger,
)
from bkstore.network.aio import AsyncClient, AsyncLedger
from bkstore.network.client import Client
from bkstore.wire.server import BookieServer

_T = TypeVar("_T")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    """The store of a cluster of three bookies on sockets."""
    store = MemoryStore()
    with ExitStack() as stack:
        for number in range(3):
            bookie = stack.enter_context(Bookie.open(tmp_path / str(number)))
            server = stack.enter_context(BookieServer(bookie))
            store.register_bookie(str(server.address))
        yield store


def run(store: MemoryStore, test: Callable[[AsyncClient], Awaitable[_T]]) -> _T:
    """Run a test with a client in a new event loop, for at most a minute."""

    async def with_client() -> _T:
        async with AsyncClient(store) as client, asyncio.timeout(60):
            return await test(client)

    return asyncio.run(with_client())


def test_ids_follow_the_calls(store: MemoryStore) -> None:
    """Appends of many tasks get ids in the order of their calls, and read back as written."""
    payloads = [b"%d" % number for number in range(2000)]

    async def test(client: AsyncClient) -> None:
        async with await client.create_ledger(3, 2, 2, password=b"p") as ledger:
            assert list(range(2000)) == await asyncio.gather(*map(ledger.append, payloads))
            assert 1999 == ledger.last_add_confirmed
        assert ledger.closed
        reader = await client.open_ledger(ledger.id, password=b"p")

        assert payloads == [entry.payload async for entry in reader.scan(0, 1999)]
        assert payloads[3:6] == [entry.payload for entry in await reader.read(3, 5)]
        assert b"7" == (await reader.read_entry(7)).payload

    run(store, test)


def test_appends_in_flight_are_sent_together(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one entry is in flight, the others wait for it, and are then sent by one call."""
    together: list[int] = []
    append = AsyncLedger._append_together

    def counted(self: AsyncLedger, payloads: list[bytes]) -> Any:
        together.append(len(payloads))
        return append(self, payloads)

    monkeypatch.setattr(AsyncLedger, "_append_together", counted)

    async def test(client: AsyncClient) -> None:
        ledger = await client.create_ledger(3, 3, 2)
        first = asyncio.ensure_future(ledger.append(b"first"))
        while not together:
            await asyncio.sleep(0)
        assert list(range(1, 101)) == await ledger.append_many([b"x"] * 100)
        assert 0 == await first

    run(store, test)

    assert [1, 100] == together


def test_a_bad_entry_fails_alone(store: MemoryStore) -> None:
    """What cannot be an entry raises for its own call; ids have no gap for it."""

    async def test(client: AsyncClient) -> list[Any]:
        ledger = await client.create_ledger(3, 2, 2)
        payloads: list[Any] = [b"a", "text", bytes(6 << 20), b"b"]
        return await asyncio.gather(*map(ledger.append, payloads), return_exceptions=True)

    first, text, too_large, last = run(store, test)

    assert (0, 1) == (first, last)
    assert isinstance(text, InvalidArgument)
    assert isinstance(too_large, InvalidArgument)


def test_a_fenced_writer(store: MemoryStore) -> None:
    """All appends after another client's recovery raise, each for itself, and so does a close."""

    async def test(client: AsyncClient) -> None:
        ledger = await client.create_ledger(3, 3, 2)
        assert [0, 1] == await ledger.append_many([b"a", b"b"])
        await client.open_ledger(ledger.id)
        failed = await asyncio.gather(*map(ledger.append, [b"c", b"d"]), return_exceptions=True)

        assert [LedgerFenced] * 2 == [type(error) for error in failed]
        with pytest.raises(LedgerFenced):
            await ledger.append_many([b"e"])

    run(store, test)


def test_a_tail_follows_a_writer(store: MemoryStore) -> None:
    """Entries arrive while the writer goes on, each once and in order, and the tail ends when the
    ledger is closed."""

    async def test(client: AsyncClient) -> list[bytes]:
        ledger = await client.create_ledger(3, 2, 2)
        reader = await client.open_ledger_no_recovery(ledger.id)
        seen: list[bytes] = []
        arrived = asyncio.Event()

        async def follow() -> None:
            async for entry in reader.tail():
                seen.append(entry.payload)
                arrived.set()

        task = asyncio.create_task(follow())
        for number in range(5):
            await ledger.append(b"%d" % number)
            await ledger.append(b".")  # states that the number is confirmed
            while len(seen) < 2 * number + 1:
                arrived.clear()
                await arrived.wait()
        assert b"0.1.2.3.4" == b"".join(seen)
        await ledger.close()
        await task
        return seen

    assert b"0.1.2.3.4." == b"".join(run(store, test))


def test_a_tail_from_an_entry(store: MemoryStore) -> None:
    """A tail of a closed ledger yields what is left, from the entry that was asked for."""

    async def test(client: AsyncClient) -> list[int]:
        async with await client.create_ledger(3, 3, 2) as ledger:
            await ledger.append_many([b"x"] * 600)
        reader = await client.open_ledger(ledger.id)
        assert [] == [entry async for entry in reader.tail(600)]
        return [entry.entry_id async for entry in reader.tail(300)]

    assert list(range(300, 600)) == run(store, test)


def test_blocking_tail(store: MemoryStore) -> None:
    """`LedgerHandle.tail` follows a writer of another client in the same way."""
    with Client(store) as writing, Client(store) as reading:
        ledger = writing.create_ledger(3, 3, 2)
        entries = reading.open_ledger_no_recovery(ledger.id).tail()
        ledger.append(b"a")
        ledger.append(b"b")

        assert b"a" == next(entries).payload

        ledger.write_explicit_lac()

        assert b"b" == next(entries).payload

        closing = threading.Timer(0.05, ledger.close)
        closing.start()

        assert [] == list(entries)


def test_a_long_poll_ends_the_wait(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookie answers when the LAC has advanced: it need not be asked again and again."""
    monkeypatch.setattr(ledger_handle, "_LONG_POLL_SECONDS", 30.0)
    reads: list[LacRead] = []
    monkeypatch.setattr(
        ledger_handle, "read_lac", lambda access: reads.append(read_lac(access)) or reads[-1]
    )
    with Client(store) as writing, Client(store, timeout=60) as reading:
        ledger = writing.create_ledger(3, 3, 2)
        ledger.append(b"a")
        reader = reading.open_ledger_no_recovery(ledger.id)
        reads.clear()
        appending = threading.Timer(0.1, ledger.append, [b"b"])
        appending.start()

        assert 0 == reader.wait_for_last_confirmed(20)

        appending.join()
    assert [0] == [read.lac for read in reads]


def test_waiting_for_the_lac(store: MemoryStore) -> None:
    """The wait ends with the LAC, after its time, or at once: for a writer and a closed ledger."""
    with Client(store) as client:
        ledger = client.create_ledger(3, 3, 2)
        reader = client.open_ledger_no_recovery(ledger.id)

        assert -1 == ledger.wait_for_last_confirmed(60)
        assert -1 == reader.wait_for_last_confirmed(0.2)

        ledger.append(b"a")
        ledger.append(b"b")

        assert 0 == reader.wait_for_last_confirmed(60)

        ledger.close()

        assert 1 == reader.wait_for_last_confirmed(60)
        assert 1 == reader.wait_for_last_confirmed(60)
        for seconds in (-1, float("nan"), "1"):
            with pytest.raises(InvalidArgument, match="seconds"):
                reader.wait_for_last_confirmed(seconds)  # type: ignore[arg-type]


def test_a_cancelled_append(store: MemoryStore) -> None:
    """It may be appended; calls after it are not affected, and a close waits for it."""

    async def test(client: AsyncClient) -> None:
        ledger = await client.create_ledger(3, 3, 2)
        cancelled = asyncio.ensure_future(ledger.append(b"cancelled"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert 1 == await ledger.append(b"next")
        late = asyncio.ensure_future(ledger.append(b"late"))
        await asyncio.sleep(0)
        await ledger.close()
        assert (2, 2) == (await late, ledger.metadata.last_entry_id)

    run(store, test)


def test_after_the_end(store: MemoryStore) -> None:
    """A client that is not open, or no longer, refuses every call; a close twice is once."""

    async def test() -> None:
        client = AsyncClient(store)
        with pytest.raises(IllegalOperation, match="async with"):
            await client.create_ledger(3, 3, 2)
        async with client:
            ledger = await client.create_ledger(3, 3, 2)
        await client.close()
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: client.open_ledger(ledger.id),
            lambda: ledger.append(b"x"),
            lambda: ledger.append_many([b"x", b"y"]),
            lambda: ledger.read(0, 0),
        ]
        for call in calls:
            with pytest.raises(BkstoreError):
                await call()

    asyncio.run(test())


def test_deleted_while_it_is_followed(store: MemoryStore) -> None:
    """A tail ends with the error of a ledger that is gone."""

    async def test(client: AsyncClient) -> None:
        ledger = await client.create_ledger(3, 3, 2)
        reader = await client.open_ledger_no_recovery(ledger.id)
        await client.delete_ledger(ledger.id)
        with pytest.raises(NoSuchLedger):
            await anext(reader.tail())

    run(store, test)
