"""The cluster's state machine over processes: bookies and ZooKeeper are killed, and come back.

The rules and the judge are those of `cluster_machine`; faults are signals. A ledger is recovered,
and a bookie or ZooKeeper killed, in the middle of appends too.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

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


class _Processes:
    """What the machine asks of a cluster, of processes that all runs share."""

    def __init__(self, ensemble: Ensemble, **settings: Any) -> None:
        self.ensemble = ensemble
        self._settings = settings
        self._clients: list[Client] = []
        self._starting: threading.Thread | None = None
        self.least = BOOKIES
        """How many bookies were registered, at the worst moment since one came back."""

    def _told(self, writable: frozenset[str], read_only: frozenset[str]) -> None:
        self.least = min(self.least, len(writable))

    def client(self, name: str) -> Client:
        """Return a client with a session and connections of its own."""
        made = Client(self.ensemble.uri, timeout=TIMEOUT, **self._settings)
        if not self._clients:
            assert isinstance(made.store, ZooKeeperStore)
            made.store.watch_bookies(self._told)
        self._clients.append(made)
        return made

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
        self.least = len(self.writable())

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

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

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

    @property
    def may_fail(self) -> bool:
        """Whether there are, or were, too few bookies: one whose session ended takes no places."""
        away = max(len(self.down), BOOKIES - self.processes.least)
        return self.config.may_fail(BOOKIES, away)

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

    # -- in any order

    def go(self, seed: int, steps: int) -> None:
        """Do so many steps that a seed chooses; an error tells which they were."""
        chosen, done = random.Random(seed), [f"seed {seed}"]
        self.start(chosen.choice(CONFIGS), chosen.randrange(4), chosen.random() < 0.5)
        try:
            try:
                for _ in range(steps):
                    name, arguments = self._step(chosen)
                    done.append(f"{name}{arguments}")
                    getattr(self, name)(*arguments)
                    self.everything_acknowledged_is_readable()
            finally:
                self.teardown()
        except Exception as error:
            raise AssertionError("; ".join(done)) from error

    def _step(self, chosen: random.Random) -> tuple[str, tuple[Any, ...]]:
        """Return what to do next, of what can be done now."""
        bookie = f"bookie-{chosen.randint(1, BOOKIES)}"
        sizes = [chosen.randint(0, 20) for _ in range(chosen.randint(1, 60))]
        steps: list[tuple[str, tuple[Any, ...]]] = [
            ("create", (chosen.choice([0, 0, 1, 2**64 - 1]),)),
            ("kill_zookeeper", (chosen.choice([0.0, 0.3]),)),
            ("end_a_session", (chosen.random() < 0.5,)),
            *([("bounce", (bookie,)), ("flush", (bookie,))] if chosen.random() < 0.5 else []),
        ]
        if self.models:
            ledger = chosen.choice(list(self.models))
            steps += [("append_many", (ledger, sizes))] * 3
            steps += [("append", (ledger, sizes[0])), ("follow", (ledger,))] * 2
            steps += [("recover", (ledger,)), ("close", (ledger,))]
            steps += [("append_during_a_recovery", (ledger, len(sizes)))]
            steps += [("delete", (ledger, None))] if len(self.models) > 3 else []
            if self.may_go_down():
                steps += [("kill_during_appends", (bookie, ledger, sizes * 4))]
                steps += [("kill_during_a_recovery", (bookie, ledger))]
        if self.may_go_down():
            steps += [("take_down", (bookie, chosen.choice(WAYS)))] * 2
        if self.down:
            steps += [("bring_one_back", (chosen.choice(sorted(self.down)),))] * 3
        return chosen.choice(steps)

    # -- ledgers

    def create(self, scope: int) -> LedgerId | None:  # type: ignore[override]
        """Make a ledger; killed bookies are registered for a while, and then too few may be."""
        numbers = (self.config.ensemble, self.config.write, self.config.ack)
        try:
            handle = self.writer.create_ledger(*numbers, scope=scope, password=b"secret")
        except NotEnoughBookies as error:
            if self.config.ensemble <= min(BOOKIES - len(self.down), self.processes.least):
                raise AssertionError("there are enough bookies") from error
            return None
        self.handles[handle.ledger] = handle
        self.models[handle.ledger] = LedgerModel()
        return handle.ledger

    def delete(self, name: LedgerId, collect: None) -> None:
        """Delete a ledger; nobody opens it any more."""
        super().delete(name, False)

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

    def take_down(self, name: str, way: str) -> None:
        """One more bookie is away, of at most A - 1."""
        if name not in self.down:
            self.down[name] = way
            self.processes.take_down(name, way)

    def kill_during_appends(self, name: str, ledger: LedgerId, sizes: list[int]) -> None:
        """A bookie is killed while many entries are under way: none is lost."""
        if name in self.down or ledger not in self.models:
            return
        self.down[name] = "kill"
        failure = self._beside(
            lambda: self.append_all(ledger, sizes, at_once=True),
            lambda: self.processes.take_down(name, "kill"),
        )
        if failure is not None:
            raise AssertionError("appends have to succeed") from failure

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

    def end_a_session(self, writers: bool) -> None:
        """A client's session with ZooKeeper ends."""
        self.processes.wait_for_zookeeper()
        store = (self.writer if writers else self.other).store
        assert isinstance(store, ZooKeeperStore)
        expire(store)

    def bring_one_back(self, name: str) -> None:
        """Let a bookie come back."""
        self.processes.bring_back(name, self.down[name])
        del self.down[name]

    def bounce(self, name: str) -> None:
        """A bookie is killed, and comes back when its old session has ended."""
        if name not in self.down:
            self.processes.take_down(name, "kill")
            self.processes.bring_back(name, "kill")

    def flush(self, name: str) -> None:
        """A bookie stops in order, which makes a checkpoint, and starts again."""
        if name not in self.down:
            self.processes.take_down(name, "stop")
            self.processes.bring_back(name, "stop")

    def kill_zookeeper(self, away: float) -> None:
        """ZooKeeper is killed; the next steps meet it dead, or as it starts."""
        self.processes.kill_zookeeper(away)

    # -- what must hold

    def everything_acknowledged_is_readable(self) -> None:
        """Through any A - 1 failures; later, where each answer of a paused bookie is waited for."""
        if "pause" not in getattr(self, "down", {}).values():
            super().everything_acknowledged_is_readable()
