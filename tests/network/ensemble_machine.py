"""The cluster's state machine over processes: bookies and ZooKeeper are killed, and come back.

The rules and the judge are those of `cluster_machine`; faults are signals. A ledger is recovered,
and a bookie or ZooKeeper killed, in the middle of appends too.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from bkstore.availability import Availability
from bkstore.cluster import ClientOptions, ZooKeeperStore
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.placement.policies import DefaultPlacement
from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
)
from bkstore.ids import LedgerId
from bkstore.network import Client
from bkstore.schedule import write_set
from bkstore.testing.ensemble import Ensemble
from tests.cluster.client.cluster_machine import CONFIGS, ClusterMachine
from tests.cluster.client.cluster_model import Config, LedgerModel, payload
from tests.worlds.zookeeper import expire

__all__ = ["BOOKIES", "EnsembleMachine"]

BOOKIES = 5
TIMEOUT = 4.0  # of a client for an answer: whoever is slower on a busy machine counts as down
PATIENCE = 60.0
WAYS = ["kill", "kill", "stop", "pause"]

_names = st.integers(1, BOOKIES).map(lambda number: f"bookie-{number}")


class _Processes:
    """What the machine asks of a cluster, of processes that all runs share."""

    def __init__(self, ensemble: Ensemble, **settings: Any) -> None:
        self.ensemble = ensemble
        self._settings = settings
        self._clients: list[Client] = []
        self._starting: threading.Thread | None = None

    def client(self, name: str) -> Client:
        """Return a client with a session and connections of its own."""
        self._clients.append(Client(self.ensemble.uri, timeout=TIMEOUT, **self._settings))
        return self._clients[-1]

    def delete_ledger(self, name: LedgerId) -> None:
        """Delete a ledger."""
        self._clients[0].delete_ledger(name)

    def writable(self) -> frozenset[str]:
        """Return the bookies that are registered now."""
        return self._clients[0].store.writable_bookies() or frozenset()

    def take_down(self, name: str, way: str) -> None:
        """Kill, stop or pause a bookie."""
        if way == "kill":
            self.ensemble.kill(name)
        elif way == "stop":
            self.ensemble.stop(name)
        else:
            self._signal(name, signal.SIGSTOP)

    def bring_back(self, name: str, way: str) -> None:
        """Let a bookie go on; return when it is registered."""
        if way == "pause":
            self._signal(name, signal.SIGCONT)
        else:
            self.ensemble.start(name)
        until = time.monotonic() + PATIENCE
        while name not in self.writable():
            assert time.monotonic() < until, f"{name} is not registered again"
            time.sleep(0.02)

    def _signal(self, name: str, number: int) -> None:
        pid = self.ensemble.bookies[name].pid
        assert pid is not None, f"{name} ended by itself"
        os.kill(pid, number)

    def kill_zookeeper(self, away: float) -> None:
        """Kill it; it is started beside what comes next, after so many seconds."""
        self.wait_for_zookeeper()
        self.ensemble.kill_zookeeper()

        def start() -> None:
            time.sleep(away)
            self.ensemble.start_zookeeper()

        self._starting = threading.Thread(target=start)
        self._starting.start()

    def wait_for_zookeeper(self) -> None:
        """Return when it runs."""
        if self._starting is not None:
            self._starting.join()
            self._starting = None

    def close(self) -> None:
        """End the clients."""
        for client in self._clients:
            client.close()


def _listed(bookie: BookieClient, ledger: LedgerId) -> Availability:
    try:
        return bookie.availability(ledger)
    except NoSuchLedger:
        return Availability.from_entries([])


class EnsembleMachine(ClusterMachine):
    """The rules over processes."""

    ledgers: Bundle[LedgerId] = ClusterMachine.ledgers

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

    @initialize(config=st.sampled_from(CONFIGS), seed=st.integers(0, 3), delay=st.booleans())
    def start(self, config: Config, seed: int, delay: bool) -> None:
        """Begin with clients of their own."""
        self.config = config
        self.processes = _Processes(
            self.ensemble,
            placement=DefaultPlacement(seed=seed),
            options=ClientOptions(delay_ensemble_change=delay),
        )
        self.cluster: Any = self.processes
        self.writer = self.processes.client("writer")
        self.other = self.processes.client("other")
        self.handles, self.models, self.deleted, self.down = {}, {}, [], {}

    def teardown(self) -> None:
        """Let all come back, and look at all that was acknowledged once more."""
        if not hasattr(self, "processes"):
            return
        try:
            self.processes.wait_for_zookeeper()
            for name, way in self.down.items():
                self.processes.bring_back(name, way)
            self.down.clear()
            super().everything_acknowledged_is_readable()
            self.everything_acknowledged_has_its_copies()
        finally:
            self.processes.close()

    def everything_acknowledged_has_its_copies(self) -> None:
        """With all bookies back A of each entry's write set have it: none forgot what it took."""
        for name, model in self.models.items():
            metadata = self.other.store.read(name).metadata
            listed = {
                bookie: _listed(self.other.bookies[bookie], name) for bookie in metadata.bookies
            }
            for entry in range(len(model.content())):
                ensemble = metadata.ensemble_at(entry)
                places = write_set(entry, metadata.ensemble_size, metadata.write_quorum_size)
                having = [place for place in places if entry in listed[ensemble[place]]]

                assert metadata.ack_quorum_size <= len(having), (name, entry)

    # -- ledgers

    @rule(target=ledgers, scope=st.sampled_from([0, 0, 1, 2**64 - 1]))
    def create(self, scope: int) -> LedgerId | MultipleResults[LedgerId]:
        """Make a ledger; killed bookies are registered for a while, and then too few may be."""
        numbers = (self.config.ensemble, self.config.write, self.config.ack)
        try:
            handle = self.writer.create_ledger(*numbers, scope=scope, password=b"secret")
        except NotEnoughBookies as error:
            if self.config.ensemble <= BOOKIES - len(self.down):
                raise AssertionError("there are enough bookies") from error
            return multiple()
        self.handles[handle.ledger] = handle
        self.models[handle.ledger] = LedgerModel()
        return handle.ledger

    @rule(name=ledgers, collect=st.none())
    def delete(self, name: LedgerId, collect: None) -> None:
        """Delete a ledger; nobody opens it any more."""
        super().delete(name, False)

    @rule(name=ledgers, count=st.integers(1, 40))
    def append_during_a_recovery(self, name: LedgerId, count: int) -> None:
        """While the writer appends another closes the ledger: then nothing is acknowledged."""
        model = self.models.get(name)
        if model is None or not model.writable:
            return
        handle, first = self.handles[name], len(model.acknowledged)
        sent = [payload(name.ledger, first + at, 5) for at in range(count)]
        known: list[bytes] = []
        failure = self._beside(
            lambda: self._append_each(handle, sent, known), lambda: self._recovered(name)
        )
        model.acknowledged += known
        if failure is not None:
            assert isinstance(failure, (LedgerFenced, NotEnoughBookies)), failure
            assert isinstance(failure, LedgerFenced) or self.may_fail
            model.fail(sent[len(known) : len(known) + 1])
        self.recover(name)
        try:
            handle.append(b"behind the fence")
        except LedgerFenced:
            pass
        except (IllegalOperation, NotEnoughBookies):
            assert model.broken or self.may_fail
        else:
            raise AssertionError("a fenced writer acknowledged an entry")
        if not model.broken:
            model.fail([])

    def _append_each(self, handle: Any, sent: list[bytes], known: list[bytes]) -> None:
        for each in sent:
            handle.append(each)
            known.append(each)

    def _recovered(self, name: LedgerId) -> None:
        try:
            self.other.open_ledger(name, password=b"secret")
        except NotEnoughBookies as error:
            if not self.may_fail:
                raise AssertionError("a recovery has to succeed") from error
        self.models[name].fenced = True

    def _beside(
        self, work: Callable[[], None], meanwhile: Callable[[], None]
    ) -> BkstoreError | None:
        """Do both at once; return what the first raised."""
        failures: list[BkstoreError] = []
        unexpected: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BkstoreError as error:
                failures.append(error)
            except BaseException as error:  # noqa: BLE001  raised below
                unexpected.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            time.sleep(0.005)
            meanwhile()
        finally:
            thread.join()
        if unexpected:
            raise unexpected[0]
        return failures[0] if failures else None

    # -- faults

    def may_go_down(self) -> bool:
        """Whether one more bookie may be away."""
        return len(self.down) < self.config.ack - 1

    @precondition(lambda self: self.may_go_down())
    @rule(name=_names, way=st.sampled_from(WAYS))
    def take_down(self, name: str, way: str) -> None:
        """One more bookie is away, of at most A - 1."""
        if name not in self.down:
            self.down[name] = way
            self.processes.take_down(name, way)

    @precondition(lambda self: self.may_go_down())
    @rule(name=_names, ledger=ledgers, sizes=st.lists(st.integers(0, 20), min_size=8, max_size=60))
    def kill_during_appends(self, name: str, ledger: LedgerId, sizes: list[int]) -> None:
        """A bookie is killed while many entries are under way: none is lost."""
        if name in self.down or ledger not in self.models:
            return
        self.down[name] = "kill"
        failure = self._beside(
            lambda: self.append_all(ledger, sizes, at_once=True),
            lambda: self.processes.take_down(name, "kill"),
        )
        assert failure is None, failure

    @precondition(lambda self: self.may_go_down())
    @rule(name=_names, ledger=ledgers)
    def kill_during_a_recovery(self, name: str, ledger: LedgerId) -> None:
        """A bookie is killed while another client closes the ledger: it ends all the same."""
        if name in self.down or ledger not in self.models:
            return
        self.down[name] = "kill"
        killing = threading.Thread(target=self.processes.take_down, args=(name, "kill"))
        killing.start()
        try:
            self.recover(ledger)
        finally:
            killing.join()

    @rule(writers=st.booleans())
    def end_a_session(self, writers: bool) -> None:
        """A client's session with ZooKeeper ends."""
        self.processes.wait_for_zookeeper()
        store = (self.writer if writers else self.other).store
        assert isinstance(store, ZooKeeperStore)
        expire(store)

    @precondition(lambda self: self.down)
    @rule(data=st.data())
    def bring_back(self, data: Any) -> None:
        """A bookie comes back with what it had."""
        self.bring_one_back(data.draw(st.sampled_from(sorted(self.down))))

    def bring_one_back(self, name: str) -> None:
        """Let a bookie come back."""
        self.processes.bring_back(name, self.down[name])
        del self.down[name]

    @rule(name=_names)
    def bounce(self, name: str) -> None:
        """A bookie is killed, and comes back when its old session has ended."""
        if name not in self.down:
            self.processes.take_down(name, "kill")
            self.processes.bring_back(name, "kill")

    @rule(name=_names)
    def flush(self, name: str) -> None:
        """A bookie stops in order, which makes a checkpoint, and starts again."""
        if name not in self.down:
            self.processes.take_down(name, "stop")
            self.processes.bring_back(name, "stop")

    @rule(away=st.sampled_from([0.0, 0.3]))
    def kill_zookeeper(self, away: float) -> None:
        """ZooKeeper is killed; the next steps meet it dead, or as it starts."""
        self.processes.kill_zookeeper(away)

    # -- what must hold

    @invariant()
    def everything_acknowledged_is_readable(self) -> None:
        """Through any A - 1 failures; later, where each answer of a paused bookie is waited for."""
        if "pause" not in getattr(self, "down", {}).values():
            super().everything_acknowledged_is_readable()
