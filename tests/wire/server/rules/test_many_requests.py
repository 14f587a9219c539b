"""Many requests as one operation are answered as each of them would be, and change the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2
from bkstore.wire.frames import frame
from bkstore.wire.server.group_sync import GroupSync
from bkstore.wire.server.requests.operations import (
    AddManyOperation,
    EncodedResponse,
    Operation,
    ReadManyOperation,
)
from bkstore.wire.server.requests.v2_requests import make_operation, make_operation_of_many
from bkstore.wire.server.rules import BookieRules
from bkstore.wire.server.shared_state import WriteJob
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import KEY, Peer, record

JOURNAL = JournalOptions(preallocate=64 << 10)
FOREIGN = b"f" * 20
LARGE = b"x" * 5000


def _operations(requests: list[v2.Request]) -> list[Operation]:
    """Return what a server makes of requests that come together."""
    messages = [b"".join(request.parts()) for request in requests]
    sizes = np.array([len(message) for message in messages], np.int64)
    places = np.cumsum(sizes) - sizes
    found: list[Operation] = []
    for count, many in v2.group_requests(b"".join(messages), places, sizes):
        here, messages = messages[:count], messages[count:]
        if many is None:
            found += [make_operation(v2.decode_request(message)) for message in here]
        else:
            operation = make_operation_of_many(many)
            operation.frame_bytes = sum(len(message) + 4 for message in here)
            found.append(operation)
    return found


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[list[Bookie]]:
    """Yield two bookies alike: 7 is open, 8 fenced, 9 another's, 10 in limbo."""
    made = []
    for name in ("one", "other"):
        options = StorageOptions(max_entry_size=4000)
        bookie = Bookie.open(tmp_path / name, "db", options=options, journal=JOURNAL)
        for ledger, key in ((7, KEY), (8, KEY), (9, FOREIGN), (10, KEY)):
            bookie.add_entry(record(ledger, 0), key)
        bookie.fence(8, KEY)
        bookie.storage.set_limbo(10)
        made.append(bookie)
    yield made
    for bookie in made:
        bookie.close()


def _add(ledger: int, entry: int, payload: bytes = b"payload", flags: int = 0) -> v2.AddRequest:
    return v2.AddRequest(KEY, record(ledger, entry, payload), flags)


def _listed(bookie: Bookie) -> dict[LedgerId, list[int]]:
    return {ledger: bookie.entries(ledger).tolist() for ledger in bookie.ledgers()}


ADDS = {
    "one ledger": [_add(7, n) for n in range(1, 9)],
    "new ledgers": [_add(20 + n % 3, n, b"x" * n) for n in range(9)],
    "a fenced one among others": [_add(7 + n % 2, n) for n in range(1, 9)],
    "recovery of a fenced one": [_add(8, n, flags=2) for n in range(1, 6)],
    "another's among others": [_add(7 + n % 3, n) for n in range(1, 13)],
    "limbo": [_add((7, 10)[n % 2], n) for n in range(1, 9)],
    "too large": [_add(7, n, LARGE if n == 3 else b"") for n in range(1, 9)],
    "nothing but too large": [_add(7, n, LARGE) for n in range(1, 6)],
    "all of it": [_add(7 + n % 5, n, LARGE if n in (5, 10, 24) else b"p") for n in range(25)],
}


@pytest.mark.parametrize("requests", ADDS.values(), ids=ADDS.keys())
@pytest.mark.parametrize("read_only", [False, True])
def test_adds(bookies: list[Bookie], requests: list[v2.Request], read_only: bool) -> None:
    """The same frames of answers in the same order, the same wait for a sync, the same entries."""
    one_by_one, at_once = map(BookieRules, bookies)
    one_by_one.read_only = at_once.read_only = read_only
    operations = _operations(requests)
    singles = [make_operation(request) for request in requests]

    assert [AddManyOperation] == [type(operation) for operation in operations]
    wanted, waits = one_by_one.write(singles)
    answers, waits_too = at_once.write(operations)
    assert waits == waits_too
    assert b"".join(a.frame for a in wanted) == b"".join(a.frame for a in answers)
    told = [a.status for a in answers for _ in range(a.operation.request_count)]
    assert [answer.status for answer in wanted] == told
    assert sum(map(len, map(_frame_of, requests))) == sum(a.operation.frame_bytes for a in answers)
    assert _listed(bookies[0]) == _listed(bookies[1])
    if read_only:
        assert {"EREADONLY"} == {status.name for status in told}


def _frame_of(request: v2.Request) -> bytes:
    return frame(*request.parts())


def test_adds_of_high_priority(bookies: list[Bookie]) -> None:
    """A bookie that is read-only takes them, and no others."""
    rules = BookieRules(bookies[0])
    rules.read_only = True
    (many,) = _operations([_add(7, n, flags=4) for n in range(1, 6)])
    (answer,), waits = rules.write([many])

    assert ("EOK", True) == (answer.status.name, waits)
    assert [0, 1, 2, 3, 4, 5] == bookies[0].entries(7).tolist()


def test_adds_of_several_connections(bookies: list[Bookie]) -> None:
    """Many adds that come together are one batch; each has the answers that it has alone."""
    requests = [
        [_add(7, n) for n in range(1, 6)],
        [_add(7 + n % 2, n + 10) for n in range(6)],
        [_add(30, n, flags=4) for n in range(4)],
        [_add(31, n) for n in range(5)],
        [_add(7, 40 + n, LARGE if n == 2 else b"") for n in range(5)],
        [_add(8, 60 + n, flags=2) for n in range(4)],
        [_add(8, 70 + n) for n in range(4)],
        [v2.AddRequest(FOREIGN, record(9, 1 + n)) for n in range(4)],
        [_add(9, 10 + n) for n in range(4)],
    ]
    many = [operation for some in requests for operation in _operations(some)]
    alone, together = map(BookieRules, bookies)
    wanted = [answer for operation in many for answer in alone.write([operation])[0]]
    answers, waits = together.write(many)

    assert waits
    assert [(a.status, a.operation.request_count, a.frame) for a in wanted] == [
        (a.status, a.operation.request_count, a.frame) for a in answers
    ]
    assert _listed(bookies[0]) == _listed(bookies[1])


def test_what_goes_with_other_connections() -> None:
    """Many adds, and nothing that syncs by itself or that nobody else should wait for."""
    adds = _operations([_add(7, n) for n in range(8)])
    single, fence = map(make_operation, (_add(7, 9), v2.ReadRequest(7, 0, 1, KEY)))
    kinds = [adds, [*adds, *adds], [*adds, single], [single], [fence], [*adds, fence]]
    writes = [WriteJob(operations, lambda: None, lambda _answers: None) for operations in kinds]

    assert [True, True, False, False, False, False] == [w.is_joinable() for w in writes]


def test_a_sync_that_fails(bookies: list[Bookie]) -> None:
    """None of many adds is acknowledged then: those that would have been have its status."""
    operations = _operations([_add(7 + n // 3, n + 1) for n in range(6)])
    answers, _ = BookieRules(bookies[0]).write(operations)
    delivered: list[EncodedResponse] = []
    group = GroupSync(lambda: Status.EIO)
    group.put(answers, delivered.extend)
    group.close()
    wanted = [
        frame(*v2.AddResponse(Status.EIO if n < 3 else Status.EFENCED, 7 + n // 3, n + 1).parts())
        for n in range(6)
    ]

    assert ["EIO", "EFENCED"] == [answer.status.name for answer in delivered]
    assert b"".join(wanted) == b"".join(answer.frame for answer in delivered)


READS = {
    "all there": (7, range(40)),
    "behind the end": (7, range(37, 45)),
    "with a gap": (7, range(40, 60)),
    "no such ledger": (99, range(5)),
    "in limbo": (10, range(5)),
}


@pytest.mark.parametrize(("ledger", "entries"), READS.values(), ids=READS.keys())
def test_reads(bookies: list[Bookie], ledger: int, entries: range) -> None:
    """The same frames in the same order, whatever is missing."""
    bookie = bookies[0]
    for entry in [*range(1, 40), 50, 51, 52, 55]:
        bookie.add_entry(record(7, entry, b"x" * (entry % 3 if entry > 40 else 7)), KEY)
    requests: list[v2.Request] = [v2.ReadRequest(ledger, entry) for entry in entries]
    rules = BookieRules(bookie)
    wanted, _ = rules.read([make_operation(request) for request in requests])
    (many,) = left = _operations(requests)
    answers: list[Any] = []
    while left:
        done, left = rules.read(left)
        answers += done

    assert isinstance(many, ReadManyOperation)
    assert b"".join(_frames(wanted)) == b"".join(_frames(answers))
    assert len(requests) == sum(answer.operation.request_count for answer in answers)
    assert many.frame_bytes == sum(answer.operation.frame_bytes for answer in answers)


def _frames(answers: list[Any]) -> list[bytes]:
    assert {EncodedResponse} == {type(answer) for answer in answers}
    return [answer.frame for answer in answers]


def test_reads_end_at_a_mebibyte(tmp_path: Path) -> None:
    """No batch is begun behind 1 MiB of answers; what is left comes with the next turn."""
    with Bookie.open(tmp_path, "interleaved", journal=JOURNAL) as bookie:
        for entry in range(12):
            bookie.add_entry(record(7, entry, b"x" * 300_000), KEY)
        rules = BookieRules(bookie)
        requests: list[v2.Request] = [v2.ReadRequest(7, entry) for entry in range(12)]
        left = _operations([*requests, v2.ReadRequest(7, 0)])
        turns = []
        while left:
            done, left = rules.read(left)
            turns.append(
                sum(a.operation.request_count for a in done if isinstance(a, EncodedResponse))
            )

    assert 13 == sum(turns)
    assert [6, 6, 1] == turns  # three records of 300,000 bytes are within the 1 MiB of a batch


def _random_requests(rnd: random.Random) -> list[v2.Request]:
    requests: list[v2.Request] = []
    written = dict.fromkeys((1, 2, 3), 0)
    for _ in range(90):
        ledger, count = rnd.choice((1, 2, 3)), rnd.choice((1, 2, 20, 80))
        first = written[ledger]
        if rnd.random() < 0.6:
            size = rnd.choice((0, 5, 900))
            for entry in range(first, first + count):
                varied = size + rnd.randrange(2)
                requests.append(_add(ledger, entry, b"x" * varied, rnd.choice((0, 0, 0, 2))))
            written[ledger] += count
        else:
            requests.append(v2.ReadRequest(ledger, first // 2, 1, FOREIGN))
    return requests


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_over_a_socket(bkstore_server: ServerFactory, storage: StorageKind) -> None:
    """What comes at once, and what comes one by one, has the same answers byte for byte, beyond
    `max_waiting` too; and the same reads find the same bytes afterwards."""
    requests = _random_requests(random.Random(7))
    reads: list[v2.Request] = [v2.ReadRequest(n, e) for n in (1, 2, 3, 4) for e in range(500)]
    answers = []
    for together in (True, False):
        server = bkstore_server(storage)
        with Peer(server.address) as peer:
            peer.ask(_add(1, 10**6))  # from now on it speaks v2
            answers.append([_asked(peer, part, together) for part in (requests, reads)])

    assert len(requests) > 1000
    assert answers[0] == answers[1]


def _asked(peer: Peer, requests: list[v2.Request], together: bool) -> list[bytes]:
    frames = [frame(*request.parts()) for request in requests]
    if not together:
        found = []
        for one in frames:
            peer.send(one)
            found.append(peer.frame())
        return found
    peer.send(*frames)
    return [peer.frame() for _ in frames]
