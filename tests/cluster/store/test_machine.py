"""The metadata store against a dict, through random sequences of operations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bkstore.cluster import (
    MemoryStore,
)
from bkstore.errors import (
    BadVersion,
    LedgerExists,
    NoSuchLedger,
)
from bkstore.ids import LedgerId
from tests.cluster.store.samples import IDS, metadata_of


class StoreMachine(RuleBasedStateMachine):
    """A store in memory against a dict: what is there, in which version, in which order."""

    names = st.sampled_from(IDS)
    layouts = st.sampled_from(["tree", "keys"])
    quorums = st.integers(1, 9)

    @initialize(layout=layouts)
    def start(self, layout: Any) -> None:
        """Begin with nothing."""
        self.store = MemoryStore(layout)
        self.model: dict[LedgerId, tuple[int, int]] = {}

    @rule(name=names, quorum=quorums)
    def create(self, name: LedgerId, quorum: int) -> None:
        """Creating succeeds only where nothing is."""
        if name in self.model:
            with pytest.raises(LedgerExists):
                self.store.create(metadata_of(name))
            return
        self.model[name] = (quorum, self.store.create(metadata_of(name, ack_quorum_size=quorum)))

        assert 0 == self.model[name][1]

    @rule(name=names, quorum=quorums, behind=st.integers(0, 1))
    def write(self, name: LedgerId, quorum: int, behind: int) -> None:
        """Writing succeeds only with the version that is there."""
        if name not in self.model:
            with pytest.raises(NoSuchLedger):
                self.store.write(metadata_of(name), 0)
            return
        version = self.model[name][1]
        if behind:
            with pytest.raises(BadVersion):
                self.store.write(metadata_of(name), version + 1)
            return
        now = self.store.write(metadata_of(name, ack_quorum_size=quorum), version)

        assert version + 1 == now
        self.model[name] = (quorum, now)

    @rule(name=names)
    def delete(self, name: LedgerId) -> None:
        """Deleting succeeds where something is."""
        if self.model.pop(name, None) is None:
            with pytest.raises(NoSuchLedger):
                self.store.delete(name)
        else:
            self.store.delete(name)

    @invariant()
    def same(self) -> None:
        """The store has what the model has."""
        if not hasattr(self, "store"):
            return
        found = {name: self.store.read(name) for name in self.store.ledgers()}

        assert sorted(self.model) == list(found)
        assert self.model == {
            name: (metadata.ack_quorum_size, version) for name, (metadata, version) in found.items()
        }


StoreMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestStoreMachine = StoreMachine.TestCase
