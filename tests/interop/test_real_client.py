"""The real client against our server: the paths of a client, both protocols, all storages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie
from bkstore.formats.entry import Coder, decode, encode_explicit_lac, master_key
from bkstore.wire.server import BookieServer
from tests.interop.clients import (
    FENCE,
    FENCED,
    HIGH_PRIORITY,
    NO_ENTRY,
    NO_LEDGER,
    NOT_AVAILABLE,
    OK,
    PASSWORD,
    READ_ONLY,
    RECOVERY_ADD,
    UNAUTHORIZED,
    RealClient,
    add,
    ask,
    payload,
    payload_hex,
    read,
    real_client,
)
from tests.interop.driver import RealBookKeeper

KEY = master_key(PASSWORD)
L = 4711
PROTOCOLS = ["v2", "v3"]


@pytest.fixture(params=["sorted", "interleaved", "db"])
def bookie(
    request: pytest.FixtureRequest, real: RealBookKeeper, tmp_path: Path
) -> Iterator[Bookie]:
    """Yield a bookie of bkstore with each storage."""
    with Bookie.open(tmp_path / "b", request.param) as found:
        yield found


@pytest.fixture
def server(bookie: Bookie) -> Iterator[BookieServer]:
    """Yield its server."""
    with BookieServer(bookie) as found:
        yield found


@pytest.fixture(params=PROTOCOLS)
def client(
    request: pytest.FixtureRequest, real: RealBookKeeper, server: BookieServer
) -> Iterator[RealClient]:
    """Yield a real client of the server, for each protocol."""
    with real_client(real, server.address, request.param) as found:
        yield found


@pytest.fixture
def v3(real: RealBookKeeper, server: BookieServer) -> Iterator[RealClient]:
    """Yield a real client of protocol v3."""
    with real_client(real, server.address, "v3") as found:
        yield found


def _fill(client: RealClient, count: int = 100) -> None:
    assert [OK] * count == client.codes(*(add(L, entry) for entry in range(count)))


def test_adds(client: RealClient, bookie: Bookie) -> None:
    """The first add makes the ledger with its key; adds under way together all arrive."""
    _fill(client)

    assert KEY == bookie.master_key(L)
    assert list(range(100)) == bookie.entries(L).tolist()
    for entry in range(100):
        found = decode(bookie.read_entry(L, entry), "CRC32C", PASSWORD)
        assert (payload(L, entry), entry - 1) == (found.payload, found.lac)


@pytest.mark.parametrize("digest", ["CRC32", "HMAC", "DUMMY"])
def test_digests(client: RealClient, bookie: Bookie, digest: str) -> None:
    """Entries of the other digests go in, and come back to a client that verifies them."""
    entries = range(3)
    adds = [add(L, entry, digest=digest) for entry in entries]

    assert [OK] * 3 == client.codes(*adds)
    found = client.do(*(read(L, entry, digest=digest) for entry in entries))
    assert payload_hex(L, entries) == [answer["payload"] for answer in found]
    assert payload(L, 2) == Coder(digest, PASSWORD).decode(bookie.read_entry(L, 2)).payload


def test_reads(client: RealClient, bookie: Bookie) -> None:
    """Reads under way together, before and after a flush; what is not there, and the last."""
    _fill(client)
    entries = range(100)
    for _ in range(2):
        found = client.do(*(read(L, entry) for entry in entries))

        assert [OK] * 100 == [answer["rc"] for answer in found]
        assert payload_hex(L, entries) == [answer["payload"] for answer in found]
        bookie.storage.flush()
    missing, unknown, last = client.do(read(L, 100), read(L + 1, 0), read(L, -1))
    assert [NO_ENTRY, NO_LEDGER, OK] == [answer["rc"] for answer in (missing, unknown, last)]
    assert payload(L, 99).hex() == last["payload"]


def test_piggyback(v3: RealClient) -> None:
    """An answer to a read has the LAC: the highest that any entry of the ledger tells."""
    _fill(v3, 10)
    (answer,) = v3.do(read(L, 3))

    assert 8 == answer["lac"]


def test_batch_reads(real: RealBookKeeper, server: BookieServer) -> None:
    """Batches by count, by size, up to the end, and the errors of their first entry.

    Protocol v3 has none: the real client refuses to ask.
    """
    with real_client(real, server.address, "v2") as client:
        _fill(client)
        sizes = [len(payload(L, entry)) + 36 + 4 for entry in range(100)]

        def batch(
            start: int, count: int, size: int, ledger: int = L, flags: int = 0
        ) -> tuple[int, list[str]]:
            limits = {"max_count": count, "max_size": size}
            operation = ask("batch", ledger, start=start, flags=flags, **limits)
            (answer,) = client.do(operation)
            return answer["rc"], answer["payloads"]

        some = 36 + sum(sizes[10:15])
        assert (OK, payload_hex(L, range(10, 30))) == batch(10, 20, 1 << 20)
        assert (OK, payload_hex(L, range(10, 15))) == batch(10, 20, some)
        assert (OK, payload_hex(L, range(10, 14))) == batch(10, 20, some - 1)
        assert (OK, payload_hex(L, range(90, 100))) == batch(90, 0, 1 << 20)
        assert (OK, payload_hex(L, [49])) == batch(49, 5, 100)
        assert (NO_ENTRY, []) == batch(100, 5, 1000)
        assert (NO_LEDGER, []) == batch(0, 5, 1000, ledger=L + 1)
        assert (OK, payload_hex(L, [7])) == batch(7, 1, 1 << 20, flags=FENCE)
        assert [FENCED] == client.codes(add(L, 100))


def test_lac(client: RealClient) -> None:
    """The LAC of a ledger is its last entry's; once there is an explicit one, both are told."""
    _fill(client, 10)
    (before,) = client.do(ask("read_lac", L))
    (written,) = client.codes(ask("write_lac", L, lac=9))
    (after,) = client.do(ask("read_lac", L))
    (unknown,) = client.codes(ask("read_lac", L + 1))

    assert (OK, 8, None) == (before["rc"], before["last_confirmed"], before.get("lac"))
    assert OK == written
    assert (OK, 8, 9) == (after["rc"], after["last_confirmed"], after["lac"])
    assert NO_ENTRY == unknown


def test_explicit_lac(client: RealClient, bookie: Bookie) -> None:
    """The body that a client wrote is kept as it is, also on a fenced ledger."""
    _fill(client, 10)

    assert [OK] == client.codes(ask("write_lac", L, lac=9))
    assert encode_explicit_lac(L, 9, "CRC32C", PASSWORD) == bookie.explicit_lac(L)
    assert [OK] == client.codes(read(L, -1, FENCE))
    assert [OK] == client.codes(ask("write_lac", L, lac=7))
    assert encode_explicit_lac(L, 7, "CRC32C", PASSWORD) == bookie.explicit_lac(L)


def test_recovery(client: RealClient, bookie: Bookie) -> None:
    """A fencing read answers the last entry and stops writers; recovery adds go through."""
    _fill(client, 10)
    wrong = client.codes(read(L, -1, FENCE, password="other"), add(L, 10))
    (last,) = client.do(read(L, -1, FENCE | HIGH_PRIORITY))
    late = client.codes(add(L, 11))
    again = client.codes(add(L, 11, options=RECOVERY_ADD | HIGH_PRIORITY))

    assert [UNAUTHORIZED, OK] == wrong
    assert (OK, payload(L, 10).hex()) == (last["rc"], last["payload"])
    assert ([FENCED], [OK]) == (late, again)
    assert bookie.is_fenced(L)
    assert list(range(12)) == bookie.entries(L).tolist()


def test_recovery_of_an_unknown_ledger(client: RealClient, bookie: Bookie) -> None:
    """A fencing read of a ledger that is not known makes it, fenced, and has no entry."""
    assert [NO_ENTRY] == client.codes(read(L, -1, FENCE))
    assert (True, KEY) == (bookie.is_fenced(L), bookie.master_key(L))
    assert [FENCED] == client.codes(add(L, 0))


def test_wrong_key(client: RealClient) -> None:
    """An add with another key than the first one's is refused."""
    _fill(client, 1)

    assert [UNAUTHORIZED] == client.codes(add(L, 1, password="other"))


def test_list_of_entries(v3: RealClient, bookie: Bookie) -> None:
    """The list of entries, striped ones and flushed ones among them, as the real client reads it.

    On db storage too, where a real bookie has none.
    """
    entries = [*range(0, 60, 3), 70, 71, 72]

    assert [OK] * len(entries) == v3.codes(*(add(L, entry) for entry in entries))
    for _ in range(2):
        (answer,) = v3.do(ask("list", L, entries=list(range(80))))
        assert (OK, len(entries)) == (answer["rc"], answer["total"])
        assert entries == [entry for entry, here in enumerate(answer["available"]) if here]
        bookie.storage.flush()
    assert [NO_LEDGER] == v3.codes(ask("list", L + 1, entries=[]))


def test_delete(client: RealClient, bookie: Bookie) -> None:
    """A ledger that the bookie deleted is not known to clients, and can be made again."""
    _fill(client, 10)
    bookie.delete_ledger(L)

    assert [NO_LEDGER] == client.codes(read(L, 0))
    assert [OK] == client.codes(add(L, 5))
    assert [5] == bookie.entries(L).tolist()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_reconnect(real: RealBookKeeper, storage: Any, protocol: str, tmp_path: Path) -> None:
    """A client finds the bookie again after a restart on the same port, and what it added.

    In between there is nobody; the client's other calls do not hang.
    """
    with Bookie.open(tmp_path / "b", storage) as bookie:
        server = BookieServer(bookie).start()
        address = server.address
        with real_client(real, address, protocol) as client:
            _fill(client, 10)
            server.close()

            assert [NOT_AVAILABLE] == client.codes(read(L, 0))
            bookie.close(checkpoint=False)
            with (
                Bookie.open(tmp_path / "b", storage) as again,
                BookieServer(again, port=address.port),
            ):
                found = client.do(*(read(L, entry) for entry in range(10)))

                assert payload_hex(L, range(10)) == [answer["payload"] for answer in found]
                assert [OK] == client.codes(add(L, 10))


def test_force(v3: RealClient, bookie: Bookie) -> None:
    """Adds with deferred sync are answered, readable, and made durable by a force."""
    operations = [add(L, entry, deferred_sync=True) for entry in range(5)]

    assert [OK] * 5 == v3.codes(*operations)
    assert [OK] == v3.codes(ask("force", L))
    assert [OK] == v3.codes(read(L, 4))


def test_long_poll(v3: RealClient) -> None:
    """A read that waits for the LAC is answered by the add that moves it on, or when it is due."""
    _fill(v3, 5)
    waiting, added = v3.do(ask("long_poll", L, previous_lac=3, timeout_ms=20_000), add(L, 5))
    (due,) = v3.do(ask("long_poll", L, previous_lac=4, timeout_ms=50))

    assert (OK, 4, payload(L, 4).hex()) == (waiting["rc"], waiting["lac"], waiting["payload"])
    assert (OK, OK, 4) == (added["rc"], due["rc"], due["lac"])


def test_info(v3: RealClient) -> None:
    """The bookie's disk space is told."""
    (answer,) = v3.do(ask("info", 0))

    assert OK == answer["rc"]
    assert 0 < answer["free"] <= answer["total"]


def test_read_only(client: RealClient, server: BookieServer) -> None:
    """A bookie that is read-only refuses adds, and answers reads."""
    _fill(client, 1)
    server.read_only = True

    assert [READ_ONLY, OK] == client.codes(add(L, 1), read(L, 0))
