"""What a server does beside single answers: when it answers, and in what order."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.ids import LedgerId
from bkstore.testing.faults import FaultPlan
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.server import ServerOptions
from bkstore.wire.status_codes import Status
from tests.wire.server.held_syncs import HeldSyncs
from tests.wire.server.peer import KEY, Peer, add, record, statuses

Operation = v3.OperationType


class Seen:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def observe(
        self,
        operation: str,
        protocol: int,
        seconds: float,
        status: Status,
        response_size: int | None = None,
    ) -> None:
        """Remember what is told."""
        assert 0 <= seconds < 30
        self.calls.append((operation, protocol, status.name, response_size))


# -- adds


@pytest.mark.bkstore_storage
def test_pipelined_adds_are_answered_one_by_one(bkstore_server: ServerFactory) -> None:
    """In a stream of adds each gets the answer that it would get alone, in order."""
    server = bkstore_server()
    with Peer(server.address) as peer:
        peer.ask(add(8, 0), add(9, 0))
        server.bookie.fence(8, KEY)
        short = v2.AddRequest(KEY, record(7, 2)[:20])
        foreign = v2.AddRequest(b"x" * 20, record(9, 1))
        requests = [add(7, 0), add(7, 1), short, add(8, 1), add(7, 2), foreign, add(9, 2)]
        recovery = add(8, 2, flags=v2.Flags.RECOVERY_ADD)
        answers = peer.ask(*requests, recovery, add(8, 3), add(7, 3))

        assert statuses(answers) == [
            *("EOK", "EOK", "EBADREQ", "EFENCED", "EOK", "EUA", "EOK"),
            *("EOK", "EFENCED", "EOK"),
        ]
        assert [(a.ledger, a.entry) for a in answers[:5]] == [
            (7, 0), (7, 1), (7, 2), (8, 1), (7, 2),
        ]  # fmt: skip
    assert [server.bookie.entries(each).tolist() for each in (7, 8, 9)] == [
        [0, 1, 2, 3], [0, 2], [0, 2],
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3])
def test_an_add_is_answered_when_it_is_durable(
    bkstore_server: ServerFactory, protocol: int
) -> None:
    """No add is acknowledged before the journal's sync; one with deferred sync is."""
    files = HeldSyncs()
    server = bkstore_server(files=files)
    with Peer(server.address, timeout=0.3) as peer:
        files.gate.clear()
        files.waiting.clear()
        body = {"ledgerId": 7, "entryId": 0, "masterKey": KEY, "body": record(7, 0)}
        message = v3.new_request(Operation.ADD_ENTRY, 1, body)
        peer.send(frame(*add(7, 0).parts()) if protocol == 2 else frame(v3.encode(message)))

        assert files.waiting.wait(10)
        with pytest.raises(TimeoutError):
            peer.frame()
        with Peer(server.address) as other:
            deferred = body | {"entryId": 1, "body": record(7, 1), "writeFlags": 1}

            assert v3.status_in(other.ask_v3(Operation.ADD_ENTRY, deferred)) is Status.EOK
            assert record(7, 1) == server.bookie.read_entry(7, 1)
        files.gate.set()

        assert peer.frame()


def test_syncs_are_shared(bkstore_server: ServerFactory, bkstore_faults: FaultPlan) -> None:
    """Adds that come while the journal is synced share the next sync."""
    server = bkstore_server(files=bkstore_faults)
    before = bkstore_faults.syncs
    with Peer(server.address) as peer:
        answers = peer.ask(*(add(7, entry) for entry in range(2000)))

    assert {"EOK"} == set(statuses(answers))
    assert bkstore_faults.syncs - before < 200


def test_nothing_is_acknowledged_after_a_failed_sync(
    bkstore_server: ServerFactory, bkstore_faults: FaultPlan
) -> None:
    """Adds whose sync failed, and those behind them, are answered with EIO; reads go on."""
    server = bkstore_server(files=bkstore_faults)
    with Peer(server.address) as peer:
        peer.ask(add(7, 0))
        bkstore_faults.fail_sync(1)

        assert statuses(peer.ask(add(7, 1), add(7, 2))) == ["EIO", "EIO"]
        assert statuses(peer.ask(add(7, 3))) == ["EIO"]
        assert statuses(peer.ask(v2.ReadRequest(7, 0))) == ["EOK"]


class _Key(bytes):
    """A stored key that only `hmac.compare_digest` may compare."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("keys are compared in a time that tells of them")

    __ne__ = __eq__
    __hash__ = bytes.__hash__


def test_keys_are_compared_in_constant_time(bkstore_server: ServerFactory) -> None:
    """A key that is not the ledger's is found out by `hmac.compare_digest` alone: by adds to a
    ledger that had some before and by others, by reads that fence, and by explicit LACs."""
    server = bkstore_server()
    storage, wrong, flags = server.bookie.storage, b"x" * 20, v2.Flags.DO_FENCING
    with Peer(server.address) as peer:
        peer.ask(add(7, 0), add(8, 0))
        for ledger in map(LedgerId.of, (7, 8)):
            states = storage.write_paths[0].states
            states.set(ledger, states.get(ledger)._replace(master_key=_Key(KEY)))
        states.fast_path_ledgers[7] = LedgerId.of(7), _Key(KEY)
        several = [v2.AddRequest(wrong, record(ledger, 1)) for ledger in (7, 8, 7, 8)]
        answers = [
            *(
                each
                for ledger in (7, 8)
                for each in peer.ask(v2.AddRequest(wrong, record(ledger, 1)))
            ),
            *peer.ask(*several),
            *peer.ask(
                v2.ReadRequest(7, 0, flags, wrong), v2.BatchReadRequest(7, 0, 1, 1, 1, flags, wrong)
            ),
        ]
        lac = {"ledgerId": 7, "lac": 0, "masterKey": wrong, "body": b""}

        assert ["EUA"] * 8 == statuses(answers)
        assert ["EOK"] * 3 == statuses(peer.ask(add(7, 1), add(8, 1), add(7, 2)))
    with Peer(server.address) as peer:
        assert v3.status_in(peer.ask_v3(Operation.WRITE_LAC, lac)) is Status.EUA
    assert [[0, 1, 2], [0, 1]] == [server.bookie.entries(ledger).tolist() for ledger in (7, 8)]


# -- reads


def test_pipelined_reads(bkstore_server: ServerFactory) -> None:
    """Reads in a stream get the answers that they would get alone, in order."""
    server = bkstore_server()
    entries = [*range(40), *range(45, 90)]
    records = {entry: record(7, entry, b"p" * (entry % 17 * 9)) for entry in entries}
    server.bookie.add_entries(records.values(), KEY)
    asked = [*range(50), 3, 3, *range(60, 40, -1), *range(70, 95), -1]
    with Peer(server.address) as peer:
        answers = peer.ask(*(v2.ReadRequest(7, entry) for entry in asked))

    assert [records.get(entry if entry >= 0 else 89, b"") for entry in asked] == [
        answer.record for answer in answers
    ]
    assert asked == [answer.entry for answer in answers]
    assert ["EOK" if answer.record else "ENOENTRY" for answer in answers] == statuses(answers)


def test_reads_of_several_ledgers(bkstore_server: ServerFactory) -> None:
    """Ids in a row of different ledgers are no row."""
    server = bkstore_server()
    for ledger in (7, 8):
        server.bookie.add_entries([record(ledger, entry) for entry in range(9)], KEY)
    asked = [(7 + entry % 2, entry) for entry in range(9)]
    with Peer(server.address) as peer:
        answers = peer.ask(*(v2.ReadRequest(*each) for each in asked))

    assert [record(*each) for each in asked] == [answer.record for answer in answers]


def test_adds_that_wait_are_bounded(bkstore_server: ServerFactory) -> None:
    """While nothing becomes durable no more is read from a client than the limit says; it is
    held up, and loses nothing."""
    files = HeldSyncs()
    server = bkstore_server(files=files)
    with Peer(server.address, timeout=30) as peer:
        peer.ask(add(7, 0))
        files.gate.clear()
        adds = [frame(*add(7, entry, bytes(100_000)).parts()) for entry in range(1, 301)]
        sender = threading.Thread(target=peer.send, args=adds)
        sender.start()
        held = []
        for _ in range(50):
            held.append(server.held_bytes)
            time.sleep(0.01)
        files.gate.set()
        answers = [v2.decode_response(peer.frame()[4:]) for _ in adds]
        sender.join()

    assert {"EOK"} == set(statuses(answers))
    assert 1 << 20 <= max(held) < 2 << 20


def test_a_client_that_takes_no_answers(bkstore_server: ServerFactory) -> None:
    """Who asks for much and reads nothing holds little memory, and nobody else up; all of it
    comes when he reads."""
    options = ServerOptions(max_waiting=100)
    server = bkstore_server(server={"options": options})
    server.bookie.add_entries([record(7, e, bytes(100_000)) for e in range(20)], KEY)
    requests = [frame(*v2.ReadRequest(7, at * 7 % 20).parts()) for at in range(3000)]
    with Peer(server.address) as greedy, Peer(server.address) as other:
        sender = threading.Thread(target=greedy.send, args=requests)
        sender.start()
        highest = 0
        for _ in range(20):
            assert statuses(other.ask(v2.ReadRequest(7, 0))) == ["EOK"]
            time.sleep(0.02)
            highest = max(highest, server.held_bytes)
        entries = [v2.decode_response(greedy.frame()[4:]).entry for _ in requests]  # type: ignore[union-attr]
        sender.join()

    assert [at * 7 % 20 for at in range(3000)] == entries
    assert 100_000 < highest < 8 << 20


# -- extended


def test_scopes_and_batches_are_behind_a_switch(bkstore_server: ServerFactory) -> None:
    """With `extended` v3 has ledgers of all scopes and batch reads; without it, as a real bookie,
    a scope is an unknown field, and a batch read is refused."""
    from bkstore.formats.entry import Coder, Entry

    name = LedgerId(3, 2**63 + 5)
    records = [Coder("CRC32C").encode(Entry(name, e, e - 1, 5, b"hello")) for e in range(3)]
    plain, extended = bkstore_server(), bkstore_server(server={"extended": True})
    batch = {"ledgerId": name, "startEntryId": 1, "maxCount": 5, "maxSize": 1 << 20}
    with Peer(extended.address) as peer:
        for entry, each in enumerate(records):
            body = {"ledgerId": name, "entryId": entry, "masterKey": KEY, "body": each}
            answer = peer.ask_v3(Operation.ADD_ENTRY, body, extended=True)

            assert v3.status_in(answer) is Status.EOK
            assert v3.ledger_id_of(v3.body_of(answer)) == name
        read = peer.ask_v3(Operation.READ_ENTRY, {"ledgerId": name, "entryId": 2}, extended=True)
        found = v3.body_of(peer.ask_v3(Operation.BATCH_READ_ENTRY, batch, extended=True))

        assert v3.body_of(read).body == records[2]
        assert (records[1:], 1) == (list(found.body), found.maxLAC)
        assert v3.ledger_id_of(found) == name
    plain.bookie.add_entry(record(7, 0), KEY)
    with Peer(plain.address) as peer:
        body = {"ledgerId": LedgerId(3, 7), "entryId": 0}
        message = v3.encode(v3.new_request(Operation.READ_ENTRY, 7, body, extended=True))
        peer.send(frame(message))

        assert v3.body_of(v3.decode_response(peer.frame()[4:])).body == record(7, 0)
        answer = peer.ask_v3(Operation.BATCH_READ_ENTRY, batch, extended=True)

        assert (Status.EBADREQ, 2) == (v3.status_in(answer), len(answer.ListFields()))
        body = {"ledgerId": 7, "entryId": 0, "masterKey": KEY, "body": records[0]}

        assert v3.status_in(peer.ask_v3(Operation.ADD_ENTRY, body)) is Status.EBADREQ


def test_v2_cannot_say_a_scope(bkstore_server: ServerFactory) -> None:
    """A record of another scope in an add of v2 is answered with EBADREQ, and not stored."""
    from bkstore.formats.entry import Entry, encode

    server = bkstore_server(server={"extended": True})
    scoped = encode(Entry(LedgerId(3, 7), 0, -1, 5, b"hello"), "CRC32C")
    with Peer(server.address) as peer:
        peer.send(frame(bytes.fromhex("02010000"), KEY, scoped))

        assert statuses([v2.decode_response(peer.frame()[4:])]) == ["EBADREQ"]
    assert [] == server.bookie.ledgers()


@pytest.mark.bkstore_storage
def test_lists_of_entries(bkstore_server: ServerFactory) -> None:
    """A list of entries is in sequence groups, and in a group for each run under the switch; for
    entries that are not flushed too, on all storages."""
    entries = [0, 2, 4, 6, 20]
    records = [record(7, entry) for entry in entries]
    sizes = {}
    for compat in (None, "bookkeeper"):
        server = bkstore_server(compat=compat)
        server.bookie.add_entries(records[:3], KEY)
        server.bookie.checkpoint()
        server.bookie.add_entries(records[3:], KEY)
        with Peer(server.address) as peer:
            answer = peer.ask_v3(Operation.GET_LIST_OF_ENTRIES_OF_LEDGER, {"ledgerId": 7})
            unknown = peer.ask_v3(Operation.GET_LIST_OF_ENTRIES_OF_LEDGER, {"ledgerId": 8})
        data = v3.body_of(answer).availabilityOfEntriesOfLedger
        sizes[compat] = len(data)

        assert entries == Availability.from_bytes(data).entries().tolist()
        assert v3.status_in(unknown) is Status.ENOLEDGER
    assert {None: 64 + 2 * 24, "bookkeeper": 64 + 5 * 24} == sizes


# -- the observer, and states


def test_the_observer_is_told_of_each_request(bkstore_server: ServerFactory) -> None:
    """Name, protocol and status of every request, and the size of the answers of batch reads."""
    seen = Seen()
    server = bkstore_server(server={"observer": seen})
    with Peer(server.address) as peer:
        peer.ask_v3(Operation.READ_LAC, {"ledgerId": 7})
        peer.ask_v3(Operation.START_TLS)
        peer.ask(add(7, 0), add(7, 1))
        peer.ask(v2.ReadRequest(8, 0), v2.BatchReadRequest(7, 0, 1, 0, 5000))

    batch = 36 + 2 * 4 + len(record(7, 0)) + len(record(7, 1))

    assert [
        ("READ_LAC", 3, "ENOENTRY", None),
        ("START_TLS", 3, "EBADREQ", None),
        ("ADD_ENTRY", 2, "EOK", None),
        ("ADD_ENTRY", 2, "EOK", None),
        ("READ_ENTRY", 2, "ENOLEDGER", None),
        ("BATCH_READ_ENTRY", 2, "EOK", batch),
    ] == seen.calls


def test_a_failing_observer_changes_no_answer(
    bkstore_server: ServerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """What an observer raises is logged, and the client has its answer."""

    class Broken(Seen):
        def observe(self, *_told: Any) -> None:
            raise RuntimeError("not today")

    server = bkstore_server(server={"observer": Broken()})
    with Peer(server.address) as peer:
        assert statuses(peer.ask(add(7, 0))) == ["EOK"]
    assert "the observer failed" in caplog.text


def test_a_bookie_that_was_closed(bkstore_server: ServerFactory) -> None:
    """Requests to a server whose bookie is closed are answered with EIO."""
    server = bkstore_server()
    server.bookie.add_entry(record(7, 0), KEY)
    server.bookie.close()
    with Peer(server.address) as peer:
        answers = peer.ask(add(7, 1), v2.ReadRequest(7, 0), v2.BatchReadRequest(7, 0, 1, 2, 3))

    assert statuses(answers) == ["EIO", "EIO", "EIO"]
