"""A state machine over a cluster: nothing acknowledged is lost, nobody acknowledges when fenced.

It runs in one process, and over sockets (`tests/wire/client/`).

Bookies stop, crash, fall silent and come back, up to A - 1 at a time; ledgers are written,
recovered by other clients, closed, deleted. Expected answers come from `cluster_model`.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from bkstore.cluster import ClientOptions, Cluster, LedgerHandle
from bkstore.cluster.placement.policies import DefaultPlacement
from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
)
from bkstore.ids import LedgerId
from tests.cluster.client.cluster_model import Config, LedgerModel, payload

__all__ = ["ClusterMachine"]

BOOKIES = 5
CONFIGS = [Config(3, 2, 2), Config(3, 3, 2), Config(4, 3, 2), Config(5, 5, 3), Config(4, 3, 3)]
KINDS = ["sorted", "interleaved", "sorted", "db"]
WAYS = ["stop", "stop silently", "crash", "crash silently", "partition", "slow", "writer cut off"]

_names = st.integers(1, BOOKIES).map(lambda number: f"bookie-{number}")


class ClusterMachine(RuleBasedStateMachine):
    """The rules; `writer` is the client that writes, the others read and recover."""

    clusters: type[Cluster] = Cluster
    scopes = True
    """Whether clients can name ledgers of other scopes."""

    ledgers: Bundle[LedgerId] = Bundle("ledgers")

    @initialize(config=st.sampled_from(CONFIGS), seed=st.integers(0, 3), delay=st.booleans())
    def start(self, config: Config, seed: int, delay: bool) -> None:
        """Begin with bookies of all three storages."""
        self.scratch = tempfile.TemporaryDirectory(prefix="bkstore-machine-")
        self.config = config
        self.cluster = self.clusters.open(
            self.scratch.name,
            BOOKIES,
            KINDS,  # type: ignore[arg-type]
            placement=DefaultPlacement(seed=seed),
            client_options=ClientOptions(delay_ensemble_change=delay),
            sleep=lambda seconds: None,
        )
        self.writer = self.cluster.client("writer")
        self.other = self.cluster.client("other")
        self.handles: dict[LedgerId, LedgerHandle] = {}
        self.models: dict[LedgerId, LedgerModel] = {}
        self.deleted: list[LedgerId] = []
        self.down: dict[str, str] = {}

    def teardown(self) -> None:
        """Close what is open and remove the directory."""
        if hasattr(self, "cluster"):
            self.cluster.close(checkpoint=False)
            self.scratch.cleanup()

    @property
    def may_fail(self) -> bool:
        """Whether there are too few bookies for an append that has to succeed."""
        return self.config.may_fail(BOOKIES, len(self.down))

    # -- ledgers

    @rule(target=ledgers, scope=st.sampled_from([0, 0, 1, 2**64 - 1]))
    def create(self, scope: int) -> LedgerId:
        """Make a ledger, out of registered bookies; silent ones show at the first append."""
        numbers = (self.config.ensemble, self.config.write, self.config.ack)
        for name in self.down:  # so that there are E of them, whatever is down
            self.cluster.store.register_bookie(name)
        scope = scope if self.scopes else 0
        handle = self.writer.create_ledger(*numbers, scope=scope, password=b"secret")
        self.handles[handle.ledger] = handle
        self.models[handle.ledger] = LedgerModel()
        return handle.ledger

    def append_all(self, name: LedgerId, sizes: list[int], at_once: bool) -> None:
        """Append entries; note what was acknowledged, and what may be there all the same."""
        handle, model = self.handles[name], self.models[name]
        first = len(model.acknowledged)
        sent = [payload(name.ledger, first + at, size) for at, size in enumerate(sizes)]
        failure: BkstoreError | None = None
        told: list[int] = []
        try:
            told = list(handle.append_many(sent)) if at_once else [handle.append(sent[0])]
        except (LedgerFenced, NotEnoughBookies, IllegalOperation) as error:
            failure = error
        known = handle.last_add_confirmed + 1
        model.acknowledged += sent[: known - first]
        if failure is None:
            assert model.writable
            assert list(range(first, first + len(sent))) == told
            assert first + len(sent) == known
            return

        may_fail = self.may_fail and isinstance(failure, NotEnoughBookies)
        assert not model.writable or may_fail, failure
        assert not model.fenced or known == first
        assert not isinstance(failure, IllegalOperation) or model.broken or model.last is not None

        model.fail(sent[known - first :])

    @rule(name=ledgers, size=st.integers(0, 40))
    def append(self, name: LedgerId, size: int) -> None:
        """Append one entry."""
        if name in self.models:
            self.append_all(name, [size], at_once=False)

    @rule(name=ledgers, sizes=st.lists(st.integers(0, 20), min_size=1, max_size=8))
    def append_many(self, name: LedgerId, sizes: list[int]) -> None:
        """Append several entries with one sync."""
        if name in self.models:
            self.append_all(name, sizes, at_once=True)

    @rule(name=ledgers)
    def recover(self, name: LedgerId) -> None:
        """Another client closes the ledger; what was acknowledged is in it."""
        if name not in self.models:
            return
        model = self.models[name]
        try:
            handle = self.other.open_ledger(name, password=b"secret")
        except NotEnoughBookies as error:
            if not self.may_fail or model.last is not None:
                raise AssertionError("a recovery has to succeed") from error
            model.fenced = True
            return
        last = handle.metadata.last_entry_id

        assert handle.closed
        assert model.last in (None, last)
        assert model.last is not None or model.may_end_at(last)

        model.fenced, model.last = True, last

        assert sum(map(len, model.content())) == handle.length

    @rule(name=ledgers)
    def close(self, name: LedgerId) -> None:
        """The writer closes the ledger at its LAC, unless another client was there before."""
        if name not in self.models:
            return
        model = self.models[name]
        end = len(model.acknowledged) - 1
        try:
            self.handles[name].close()
        except LedgerFenced:
            assert model.fenced
            assert model.last is None or model.last != end or model.failed
        else:
            assert not model.fenced or model.last == end

            model.last = end

    @rule(name=consumes(ledgers), collect=st.booleans())
    def delete(self, name: LedgerId, collect: bool) -> None:
        """Delete a ledger; bookies drop it when they collect garbage, and nothing else."""
        if name not in self.models:
            return
        self.cluster.delete_ledger(name)
        del self.handles[name], self.models[name]
        self.deleted.append(name)
        if collect:
            self.cluster.collect_garbage()
            for client in self.cluster.bookies.values():
                if client.server.is_running:
                    assert not client.server.bookie.ledger_exists(name)
        with pytest.raises(NoSuchLedger):
            self.other.open_ledger(name, password=b"secret")

    # -- faults

    @precondition(lambda self: len(self.down) < self.config.ack - 1)
    @rule(name=_names, way=st.sampled_from(WAYS))
    def take_down(self, name: str, way: str) -> None:
        """One more bookie fails, of at most A - 1."""
        if name in self.down:
            return
        self.down[name] = way
        if way.startswith("stop"):
            self.cluster.stop(name, keep_registered="silently" in way)
        elif way.startswith("crash"):
            self.cluster.crash(name, keep_registered="silently" in way)
        elif way == "slow":
            self.cluster.slow(name, 60)
        else:
            self.cluster.partition(name, *(["writer"] if way == "writer cut off" else []))

    @precondition(lambda self: self.down)
    @rule(data=st.data())
    def bring_back(self, data: Any) -> None:
        """A bookie comes back with what it had."""
        name = data.draw(st.sampled_from(sorted(self.down)))
        del self.down[name]
        self.cluster.heal(name)
        self.cluster.slow(name, 0)
        self.cluster.start(name)

    @rule(name=_names)
    def bounce(self, name: str) -> None:
        """A bookie is killed and starts again before anybody notices."""
        if name not in self.down:
            self.cluster.crash(name)
            self.cluster.start(name)

    @rule()
    def flush(self) -> None:
        """Every bookie makes a checkpoint."""
        self.cluster.flush()

    # -- what must hold

    @rule(name=ledgers)
    def follow(self, name: LedgerId) -> None:
        """A reader's LAC is never beyond what was sent, and all up to it can be read."""
        if name not in self.models:
            return
        model = self.models[name]
        reader = self.other.open_ledger_no_recovery(name, password=b"secret")
        lac = reader.last_add_confirmed
        sent = [*model.acknowledged, *model.failed]

        assert lac <= len(sent) - 1
        assert model.last is None or model.last == lac
        if lac >= 0:
            assert sent[: lac + 1] == [entry.payload for entry in reader.read(0, lac)]
            assert sum(map(len, sent[: lac + 1])) == reader.length

            start = lac // 2
            batch = [entry.payload for entry in reader.read_batch_with_fallback(start, 3)]

            assert batch
            assert sent[start : lac + 1][: len(batch)] == batch

    @invariant()
    def everything_acknowledged_is_readable(self) -> None:
        """Through any A - 1 failures, by a client that has no part in it."""
        for name, model in getattr(self, "models", {}).items():
            expected = model.content()
            if expected:
                reader = self.other.open_ledger_no_recovery(name, password=b"secret")
                found = reader.read_unconfirmed(0, len(expected) - 1)

                assert expected == [entry.payload for entry in found]
                assert list(range(len(expected))) == [entry.entry_id for entry in found]
