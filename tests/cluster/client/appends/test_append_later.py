"""Appends that are not waited for: when they count, how they gather, what failures do to them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bkstore.cluster import PendingAppend
from bkstore.cluster.client.workers import Workers
from bkstore.errors import (
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NotEnoughBookies,
)
from bkstore.testing.factories import ClusterFactory
from tests.cluster.client.appends.gated import gated, until
from tests.cluster.client.ensembles import ensemble, holders


def _payloads(count: int) -> list[bytes]:
    return [b"entry %d" % number for number in range(count)]


def test_one_thread_has_many_under_way(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """Nothing waits for the bookies; the first entry goes out at once, the others together when
    it is answered; all are there in order, with their ids, and `flush` has waited for them."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 3)
    gates[ensemble(ledger)[1]].gate.clear()
    pending = [ledger.append_later(data) for data in _payloads(100)]

    assert list(range(100)) == [each.entry for each in pending]
    assert not any(each.is_done for each in pending)
    assert -1 == ledger.last_add_confirmed
    with pytest.raises(TimeoutError, match="entry 7 is still in progress"):
        pending[7].result(0.01)

    gates[ensemble(ledger)[1]].gate.set()

    assert list(range(100)) == [each.result(20) for each in pending]
    assert all(each.is_done for each in pending)
    assert 99 == ledger.flush() == ledger.last_add_confirmed
    # How many go together depends on the threads; never each for itself.
    assert all(gate.calls <= 20 for gate in gates.values())
    assert _payloads(100) == [entry.payload for entry in ledger.read(0, 99)]
    assert sum(map(len, _payloads(100))) == ledger.length


def test_they_go_on_by_themselves(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """What gathered behind the first entry is sent and confirmed though nobody waits."""
    client, _ = gated(bkstore_cluster(3), workers)
    ledger = client.create_ledger()
    pending = [ledger.append_later(data) for data in _payloads(50)]
    until(lambda: pending[-1].is_done)

    assert 49 == ledger.last_add_confirmed


def test_given_while_the_ensemble_changes(
    bkstore_cluster: ClusterFactory, workers: Workers
) -> None:
    """Of what several threads give while bookies go and are replaced, each has its answer, and is
    where the last ensembles say (in the real client one may have no answer, ever)."""
    cluster = bkstore_cluster(6)
    client, _ = gated(cluster, workers)
    ledger = client.create_ledger(3, 2, 2)
    over = threading.Event()

    def given(writer: int) -> dict[bytes, PendingAppend]:
        found = {}
        while not over.is_set():
            data = b"%d %d" % (writer, len(found))
            found[data] = ledger.append_later(data)
        return found

    crashed: list[str] = []
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(given, writer) for writer in range(3)]
        for _ in range(3):
            confirmed = ledger.last_add_confirmed
            until(lambda: ledger.last_add_confirmed > confirmed + 20)  # noqa: B023
            crashed.append(next(name for name in ensemble(ledger) if name not in crashed))
            cluster.crash(crashed[-1])
        over.set()
        pending = {data: each for future in futures for data, each in future.result().items()}
    said = {each.result(20): data for data, each in pending.items()}

    assert len(pending) == len(said)
    assert 2 <= len(ledger.metadata.segments)
    for name in crashed:
        cluster.start(name)
    entries = ledger.read(0, len(said) - 1)
    assert said == {entry.entry_id: entry.payload for entry in entries}


def test_in_one_process(bkstore_cluster: ClusterFactory) -> None:
    """Without a network an append is done at return, and raises what `append` raises."""
    cluster = bkstore_cluster(3)
    ledger = cluster.create_ledger(3, 3, 3)
    pending = ledger.append_later(b"x")

    assert (True, 0, 0, 0) == (pending.is_done, pending.entry, pending.result(), ledger.flush())

    cluster.stop("bookie-1")
    with pytest.raises(NotEnoughBookies):
        ledger.append_later(b"y")
    with pytest.raises(IllegalOperation, match="failed with NotEnoughBookies"):
        ledger.flush()


def test_order_with_other_appends(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """What gathered goes before an append that is waited for, before many, before one without
    sync and a LAC that is told; `close` waits for the rest."""
    client, gates = gated(bkstore_cluster(3), workers)
    ledger = client.create_ledger()

    def gather() -> None:
        for gate in gates.values():
            gate.gate.clear()
        for _ in range(3):
            ledger.append_later(b"later")
        threading.Timer(0.05, lambda: [gate.gate.set() for gate in gates.values()]).start()

    gather()
    assert 3 == ledger.append(b"now")
    gather()
    assert [7, 8] == ledger.append_many([b"now", b"now"]).tolist()
    gather()
    assert 11 == ledger.write_explicit_lac()
    gather()
    assert 15 == ledger.append(b"now", sync=False)
    behind = ledger.append_later(b"later")
    assert (16, True, 14) == (behind.result(), behind.is_done, ledger.last_add_confirmed)
    assert 16 == ledger.force()
    gather()
    ledger.close()

    assert 19 == ledger.metadata.last_entry_id
    told = [entry.payload for entry in ledger.read(0, 19)]

    assert [3, 7, 8, 15] == [entry for entry, data in enumerate(told) if data == b"now"]


def test_the_window_bounds_what_gathers(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """With a full window the call waits until something is answered."""
    client, gates = gated(bkstore_cluster(3), workers, window=40)
    ledger = client.create_ledger(3, 3, 3)
    slow = gates[ensemble(ledger)[0]]
    slow.gate.clear()
    made: list[PendingAppend] = []
    thread = threading.Thread(
        target=lambda: made.extend(ledger.append_later(b"x") for _ in range(500))
    )
    thread.start()
    until(lambda: len(slow.entries) >= 1)
    thread.join(0.2)

    assert thread.is_alive()
    assert len(made) <= 41

    slow.gate.set()
    thread.join(20)

    assert 499 == ledger.flush()


def test_a_failure_ends_all_of_them(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """All that were under way fail with what ended the writer; none is acknowledged later, though
    the bookies that are left take them."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 3)
    assert 0 == ledger.append_later(b"kept").result(20)
    bookies = ensemble(ledger)
    gates[bookies[0]].gate.clear()
    pending = [ledger.append_later(b"lost") for _ in range(10)]
    cluster.stop(bookies[1])
    gates[bookies[0]].gate.set()

    with pytest.raises(NotEnoughBookies):
        ledger.flush()
    for each in pending:
        assert each.is_done
        with pytest.raises(NotEnoughBookies, match=f"entry {each.entry} of ledger 0: this writer"):
            each.result()
    cluster.start(bookies[1])
    with pytest.raises(IllegalOperation):
        ledger.append_later(b"more")
    ledger.close()

    assert (0, 4) == (ledger.metadata.last_entry_id, ledger.metadata.length)
    with pytest.raises(NotEnoughBookies):
        pending[0].result()


def test_fenced(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """Another client's recovery ends them; what it did not take in is never acknowledged."""
    cluster = bkstore_cluster(3)
    client, gates = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 3)
    for gate in gates.values():
        gate.gate.clear()
    pending = [ledger.append_later(b"x") for _ in range(5)]
    until(lambda: all(gate.entries for gate in gates.values()))
    other = cluster.client("other").open_ledger(ledger.ledger)
    for gate in gates.values():
        gate.gate.set()

    assert -1 == other.last_add_confirmed
    for each in pending:
        with pytest.raises(LedgerFenced):
            each.result(20)
    assert -1 == ledger.last_add_confirmed


def test_a_failed_bookie_is_replaced_by_who_waits(
    bkstore_cluster: ClusterFactory, workers: Workers
) -> None:
    """The next call that appends or waits changes the ensemble; every entry has its replicas."""
    cluster = bkstore_cluster(4)
    client, _ = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 3)
    ledger.append_later(b"x").result(20)
    gone = ensemble(ledger)[2]
    cluster.stop(gone)
    pending = [ledger.append_later(b"y") for _ in range(300)]

    assert list(range(1, 301)) == [each.result(20) for each in pending]
    assert gone not in ensemble(ledger)
    assert set(ensemble(ledger)) == holders(cluster, ledger, 300)


def test_a_failed_bookie_is_replaced_by_the_next_append(
    bkstore_cluster: ClusterFactory, workers: Workers
) -> None:
    """A single append that is not waited for is enough: all that is under way goes on."""
    cluster = bkstore_cluster(4)
    client, _ = gated(cluster, workers)
    ledger = client.create_ledger(3, 3, 3)
    gone = ensemble(ledger)[2]
    cluster.stop(gone)
    pending = [ledger.append_later(b"x")]
    until(lambda: gone in ledger._writer._answers)  # type: ignore[union-attr]
    pending.append(ledger.append_later(b"y"))
    until(lambda: all(each.is_done for each in pending))

    assert gone not in ensemble(ledger)
    assert 1 == ledger.last_add_confirmed


def test_what_is_refused_at_once(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """What is no payload or no frame takes is refused by the call, and nothing ends by that."""
    client, _ = gated(bkstore_cluster(3), workers, max_frame=100)
    ledger = client.create_ledger()
    for wrong in (b"x" * 65, "text", 7):
        with pytest.raises(InvalidArgument):
            ledger.append_later(wrong)  # type: ignore[arg-type]
    for seconds in (-1, "soon"):
        with pytest.raises(InvalidArgument):
            ledger.append_later(b"x" * 64).result(seconds)  # type: ignore[arg-type]
    assert 2 == ledger.append_later(bytearray(b"y")).result(20)
    reader = client.open_ledger(ledger.ledger)
    with pytest.raises(IllegalOperation, match="opened for reading"):
        reader.append_later(b"x")
    with pytest.raises(IllegalOperation, match="opened for reading"):
        reader.flush()


def test_a_forked_child_has_no_writer(bkstore_cluster: ClusterFactory, workers: Workers) -> None:
    """In the child the handle is closed, sends nothing of what gathered, and closes no ledger at
    the end of its block: the parent's writer goes on."""
    client, gates = gated(bkstore_cluster(3), workers)
    with client.create_ledger(3, 3, 3) as ledger:
        for gate in gates.values():
            gate.gate.clear()
        pending = [ledger.append_later(b"x") for _ in range(3)]
        child = os.fork()
        if not child:
            refused = 0
            for call in (lambda: ledger.append_later(b"y"), pending[2].result, ledger.flush):
                try:
                    call()
                except IllegalOperation as error:
                    refused += "is closed" in str(error)
            ledger.close()
            os._exit(0 if refused == 3 and not ledger.closed else 1)

        assert 0 == os.waitpid(child, 0)[1]
        for gate in gates.values():
            gate.gate.set()
        assert 3 == ledger.append_later(b"y").result(20)
        assert [0, 1, 2] == [each.result() for each in pending]
