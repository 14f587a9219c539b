"""Many appends under way: when they count, what failures do to them, how many there are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bkstore.cluster import LedgerHandle
from bkstore.cluster.client.workers import Workers
from bkstore.errors import (
    BookieUnavailable,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NotEnoughBookies,
)
from bkstore.formats.entry import RecordBatch
from bkstore.testing.factories import ClusterFactory
from tests.cluster.client.appends.gated import gated, until
from tests.cluster.client.ensembles import ensemble, holders


def test_an_ack_quorum_is_enough(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """An append returns with A acknowledgements, in order; the rest comes when it comes."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 2)
    slow = ensemble(ledger)[2]
    gates[slow].gate.clear()

    assert [0, 1, 2] == [ledger.append(b"x") for _ in range(3)]
    assert 2 == ledger.last_add_confirmed
    assert slow not in holders(cluster, ledger, 0)

    gates[slow].gate.set()
    until(lambda: slow in holders(cluster, ledger, 2))

    assert [0, 1, 2] == gates[slow].entries
    assert 1 == len(ledger.metadata.segments)


def test_nothing_is_confirmed_before_what_comes_before_it(
    bkstore_cluster: ClusterFactory, workers: Workers
) -> None:
    """An entry with its quorum waits for the one before it that has none yet."""
    client, gates = gated(bkstore_cluster(3), workers)
    ledger = client.create_ledger(3, 1, 1)
    gates[ensemble(ledger)[0]].gate.clear()
    done: list[int] = []
    threads = [threading.Thread(target=lambda: done.append(ledger.append(b"x"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: 2 == ledger.last_add_pushed)
    until(lambda: [1] == gates[ensemble(ledger)[1]].entries)
    time.sleep(0.05)

    assert (-1, []) == (ledger.last_add_confirmed, done)

    gates[ensemble(ledger)[0]].gate.set()
    for thread in threads:
        thread.join()

    assert [0, 1, 2] == sorted(done)


def test_the_window(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """No more than the window and one stretch are under way; what waits is not even taken."""
    client, gates = gated(bkstore_cluster(3), workers, window=256)
    ledger = client.create_ledger(3, 3, 3)
    gates[ensemble(ledger)[1]].gate.clear()
    taken: list[int] = []

    def feed() -> Iterator[bytes]:
        for number in range(2000):
            taken.append(number)
            yield b"x"

    thread = threading.Thread(target=lambda: ledger.append_many(feed()))
    thread.start()
    until(lambda: len(taken) >= 256)
    time.sleep(0.1)

    assert len(taken) <= 256 + 128
    assert -1 == ledger.last_add_confirmed

    gates[ensemble(ledger)[1]].gate.set()
    thread.join()

    assert 1999 == ledger.last_add_confirmed


def test_a_new_bookie_gets_all_that_is_not_confirmed(
    bkstore_cluster: ClusterFactory, workers: Workers
) -> None:
    """Entries that the failed bookie had taken, but that are not confirmed, go to the new one, and
    are not confirmed without it."""
    cluster = bkstore_cluster(4)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 3)
    ledger.append_many([b"x"] * 10)
    failing, slow = ensemble(ledger)[0], ensemble(ledger)[1]
    (spare,) = set(gates) - set(ensemble(ledger))
    gates[slow].gate.clear()
    gates[spare].gate.clear()
    done: list[Any] = []
    threads = [
        threading.Thread(target=lambda: done.append(ledger.append_many([b"y"] * 5)))
        for _ in range(2)
    ]
    threads[0].start()
    until(lambda: failing in holders(cluster, ledger, 14))
    cluster.crash(failing)
    threads[1].start()
    until(lambda: 2 == len(ledger.metadata.segments))
    (_, now) = ledger.metadata.segments[-1]
    gates[slow].gate.set()
    until(lambda: slow in holders(cluster, ledger, 19))
    time.sleep(0.05)

    assert 9 == ledger.last_add_confirmed

    gates[spare].gate.set()
    for thread in threads:
        thread.join()

    assert 10 == ledger.metadata.segments[-1].first_entry
    assert failing not in now
    for entry in range(10, 20):
        assert set(now) <= holders(cluster, ledger, entry)
    assert 19 == ledger.last_add_confirmed == cluster.open_ledger(0).last_add_confirmed


def test_a_late_failure(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """A bookie that fails at what is confirmed already is replaced at the next append."""
    cluster = bkstore_cluster(4)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 2)
    late = ensemble(ledger)[2]
    gates[late].gate.clear()
    ledger.append(b"x")
    cluster.stop(late)
    gates[late].gate.set()
    until(lambda: ledger._writer._queues[2].failure is not None)  # type: ignore[union-attr]

    assert 1 == len(ledger.metadata.segments)
    assert 1 == ledger.append(b"y")
    assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]
    assert late not in ensemble(ledger)


def test_fenced_in_the_middle(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """A writer that a recovery fences while entries are under way confirms none of them."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 2, 2)
    ledger.append(b"kept")
    first = ensemble(ledger)[0]
    for gate in gates.values():
        gate.gate.clear()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ledger.append_many([b"x"] * 900)
        except LedgerFenced as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: len(gates[first].entries) > 1)
    last = cluster.open_ledger(0).last_add_confirmed
    for gate in gates.values():
        gate.gate.set()
    thread.join()
    time.sleep(0.05)

    assert (0, 0) == (last, ledger.last_add_confirmed)
    assert 1 == len(failures)
    with pytest.raises(LedgerFenced, match="failed with LedgerFenced"):
        ledger.append(b"again")
    ledger.close()  # at the same end
    assert 0 == ledger.metadata.last_entry_id


def test_nothing_goes_on_behind_the_end(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """Once one bookie says "fenced", what waits for the others is not sent to them, and what they
    take is not confirmed, though A of them have it."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 2)
    ledger.append(b"kept")
    until(lambda: all([0] == gate.entries for gate in gates.values()))
    first = ensemble(ledger)[0]
    cluster.bookie(first).fence(ledger.ledger, ledger._access.key)
    for gate in gates.values():
        gate.gate.clear()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ledger.append_many([b"x"] * 900)
        except LedgerFenced as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: 900 == ledger.last_add_pushed)
    until(lambda: all(len(gate.entries) > 1 for gate in gates.values()))
    gates[first].gate.set()
    thread.join()
    sent = {name: len(gate.entries) for name, gate in gates.items()}
    for gate in gates.values():
        gate.gate.set()
    until(lambda: 2 == len(holders(cluster, ledger, 1)))
    time.sleep(0.05)

    assert 1 == len(failures)
    assert sent == {name: len(gate.entries) for name, gate in gates.items()}
    assert 0 == ledger.last_add_confirmed


def test_one_failure_ends_all_threads(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """Too few bookies end every append under way; none of them is acknowledged later."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 2)
    for gate in gates.values():
        gate.gate.clear()
    told: list[BaseException] = []

    def work() -> None:
        try:
            ledger.append(b"x")
        except (NotEnoughBookies, IllegalOperation) as error:
            told.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: 3 == ledger.last_add_pushed)
    cluster.stop("bookie-1")
    cluster.stop("bookie-3")
    for gate in gates.values():
        gate.gate.set()
    for thread in threads:
        thread.join()

    assert 4 == len(told)
    assert 1 == sum(isinstance(error, NotEnoughBookies) for error in told)
    assert -1 == ledger.last_add_confirmed


def test_an_error_of_a_lane_s_own(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """What no bookie answers with (a bug, say) ends the writer instead of leaving it waiting."""
    client, gates = gated(bkstore_cluster(3), workers)
    ledger = client.create_ledger(3, 3, 3)

    def broken(batch: RecordBatch, master_key: bytes) -> None:
        raise ZeroDivisionError

    gates[ensemble(ledger)[0]].add_batch = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        ledger.append(b"x")
    with pytest.raises(IllegalOperation, match="failed with ZeroDivisionError"):
        ledger.append(b"x")


def test_without_sync(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """Appends without sync wait for those before them, and hold the LAC until `force`."""
    cluster = bkstore_cluster(3)
    client, _ = gated(cluster, workers)
    ledger = client.create_ledger(3, 2, 2)
    ledger.append_many([b"a", b"b"])
    ledger.append(b"c", sync=False)

    assert [3, 4] == ledger.append_many([b"d", b"e"]).tolist()
    assert 5 == ledger.append(b"f")
    assert 1 == ledger.last_add_confirmed
    assert 5 == ledger.force()
    assert [6, 7] == ledger.append_many([b"g", b"h"]).tolist()

    ledger.close()

    assert (7, 8) == (ledger.metadata.last_entry_id, ledger.metadata.length)
    assert b"abcdefgh" == b"".join(entry.payload for entry in ledger.read(0, 7))


def test_refusals(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """What no frame takes is refused before it is sent; a closed handle takes nothing."""
    client, _ = gated(bkstore_cluster(3), workers, max_frame=1000)
    ledger: LedgerHandle = client.create_ledger(3, 2, 2)
    with pytest.raises(InvalidArgument, match="exceeds the frame limit of 1000"):
        ledger.append_many([b"x", bytes(1000)])

    assert 0 == ledger.append(b"still fine")
    ledger.close()
    for append in (ledger.append, lambda data: ledger.append_many([data])):
        with pytest.raises(IllegalOperation, match="has been closed by this handle"):
            append(b"x")


def test_workers() -> None:
    """Work of both kinds is done at the same time; a closed pool takes none; errors come out."""
    with Workers(2) as workers:
        barrier = threading.Barrier(2, timeout=20)

        assert [0, 1] == sorted(workers.map(lambda _: barrier.wait(), "ab"))
        with pytest.raises(BookieUnavailable):
            list(workers.map(_unavailable, "ab"))
    with pytest.raises(IllegalOperation):
        workers.submit(print)


def _unavailable(name: str) -> None:
    raise BookieUnavailable(name)
