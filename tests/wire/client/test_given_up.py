"""A client whose request was not answered, or not sent: what becomes of the next one."""

from __future__ import annotations

import threading

import pytest

from bkstore.errors import BookieUnavailable, InvalidArgument
from bkstore.formats.entry import Entry, encode
from bkstore.wire.client import WireClient, WireClients, wire_clients as module
from bkstore.wire.client.socket_stream import SocketStream
from bkstore.wire.protocol_detection import RequestDecoder
from tests.wire.client.answering import KEY, LEDGER, answer, record
from tests.wire.client.scripted import Peer, served

PROTOCOLS = ["v2", "v3"]


def _fine(peer: Peer) -> None:
    decoder = RequestDecoder()
    for message in peer.requests():
        peer.answer(answer(decoder.decode(message)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_interrupt_while_sending(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind half a frame comes nothing more: the bookie would take it for the rest of that."""
    interrupted = threading.Event()
    adds: list[object] = []

    def slow(peer: Peer) -> None:
        interrupted.wait(10)
        decoder = RequestDecoder()
        for message in peer.requests():
            adds.append(len(message) > 1 << 20)
            peer.answer(answer(decoder.decode(message)))

    def interrupt(
        stream: SocketStream, seconds: float, *, receive: bool = False, send: bool = False
    ) -> bool:
        if send:
            raise KeyboardInterrupt
        return wait(stream, seconds, receive=receive, send=send)

    wait = SocketStream.wait
    large = encode(Entry(LEDGER, 0, -1, 5_000_000, bytes(5_000_000)), "CRC32C")
    with served(slow) as server, WireClient(server.address, protocol) as client:
        with monkeypatch.context() as patch:
            patch.setattr(SocketStream, "wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.add_entry(large, KEY)
        interrupted.set()

        assert 1 == client.add_entry(record(1), KEY)
        assert (2, [False]) == (server.connections, adds)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_bookie_that_ended_after_a_time_out(protocol: str) -> None:
    """A request that was given up is not under way: the next one is sent on a new connection
    where the bookie has ended the old one, and fails for nothing."""
    turn = iter(range(10))
    late = threading.Event()

    def first_says_nothing(peer: Peer) -> None:
        if next(turn):
            _fine(peer)
        else:
            peer.request()
            late.wait(10)

    with (
        served(first_says_nothing) as server,
        WireClient(server.address, protocol, timeout=1) as client,
    ):
        with pytest.raises(BookieUnavailable, match="no answer"):
            client.read_entry(LEDGER, 0)
        late.set()
        server.wait()

        assert record(1) == client.read_entry(LEDGER, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("timeout", [3e6, 1e10, 1e300])
def test_long_time_outs(protocol: str, timeout: float) -> None:
    """Any number of seconds is one, though the system takes no such numbers."""
    with served(_fine) as server, WireClient(server.address, protocol, timeout=timeout) as client:
        assert record(0) == client.read_entry(LEDGER, 0)


@pytest.mark.parametrize("host", ["a..b", "a\0b", "x" * 64, ""])
def test_hosts_that_cannot_be(host: str) -> None:
    """What cannot be looked up is not an address; as a bookie's id it is no bookie."""
    for address in (f"{host}:3181", (host, 3181)):
        with pytest.raises(InvalidArgument, match="is not an address"):
            WireClient(address)
    with WireClients() as bookies:
        assert f"{host}:3181" not in bookies


def test_making_a_client_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that makes a client has no lock: a forked child would find it taken for ever."""
    making, made = threading.Event(), threading.Event()

    class Slow(WireClient):
        def __init__(self, *arguments: object, bookie_id: str) -> None:
            if bookie_id == "slow:1":
                making.set()
                made.wait(10)
            super().__init__("slow:1", bookie_id=bookie_id)

    monkeypatch.setattr(module, "WireClient", Slow)
    with WireClients() as bookies:
        thread = threading.Thread(target=lambda: bookies["slow:1"])
        thread.start()

        assert making.wait(10)
        other = threading.Thread(target=lambda: bookies["other:1"], daemon=True)
        other.start()
        other.join(5)
        done = not other.is_alive()
        made.set()
        thread.join()
        assert done
        assert ["other:1", "slow:1"] == sorted(bookies)
        assert bookies["slow:1"] is bookies["slow:1"]
