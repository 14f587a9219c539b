"""LedgerStates: master keys, fences, limbo and explicit LACs, changed in memory first.

Every storage of BookKeeper changes these in memory and writes them at a flush: the header of an
index file when its pages are flushed (`FileInfo`), rows of the `ledgers` database from a queue
(`LedgerMetadataIndex`). Until then the journal is what keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest

from bkstore.errors import NoSuchLedger, UnauthorizedAccess
from bkstore.ids import LedgerId, check_scope
from bkstore.index.api import EntryIndex, LedgerState


class LedgerStates:
    """The states of an index's ledgers: reads through, writes at `flush`.

    Not safe between threads by itself; its storage has the lock.
    """

    def __init__(self, index: EntryIndex) -> None:
        self._index = index
        self._known: dict[LedgerId, LedgerState] = {}
        self._dirty: set[LedgerId] = set()
        self._gone: set[LedgerId] = set()
        self.ready: dict[int, tuple[LedgerId, bytes]] = {}
        """Ledgers of scope 0 that take adds, by number, with their master keys.

        Entered by who has checked it, gone with any change: a single add looks nowhere else.
        """
        self.suspects: set[LedgerId] = set()
        """Ledgers of which somebody asks whether they are deleted; one that is added to or
        changed meanwhile is none any more."""

    def find(self, name: LedgerId) -> LedgerState | None:
        """Return a ledger's state, None if it is unknown."""
        state = self._known.get(name)
        if state is None and name not in self._gone:
            state = self.written(name)
            if state is not None:
                self._known[name] = state
        return state

    def get(self, name: LedgerId) -> LedgerState:
        """Return a ledger's state; `NoSuchLedger` if it is unknown."""
        state = self._known.get(name) or self.find(name)
        if state is None:
            raise NoSuchLedger(f"ledger {name} is not known here")
        return state

    def set(self, name: LedgerId, state: LedgerState) -> None:
        """Keep a state; the ledger is known from now on."""
        self._known[name] = state
        self.suspects.discard(name)
        self.ready.pop(name.ledger, None)
        self._dirty.add(name)
        self._gone.discard(name)

    def set_master_key(self, name: LedgerId, key: bytes) -> bool:
        """Make a ledger known under a key; return whether it is new.

        As `LedgerMetadataIndex.setMasterKey`: an empty or all-zero key that is stored is
        replaced, one that is given is ignored; two different keys are `UnauthorizedAccess`.
        """
        state = self.find(name)
        if state is None:
            self.set(name, LedgerState(key))
            return True
        if not compare_digest(state.master_key, key) and any(key):
            if any(state.master_key):
                raise UnauthorizedAccess(f"ledger {name} has another master key")
            self.set(name, state._replace(master_key=key))
        return False

    def suspect(self, names: Iterable[LedgerId]) -> None:
        """Make ledgers suspects: the next add to one takes the long way, and clears it."""
        for name in names:
            self.ready.pop(name.ledger, None)
            self.suspects.add(name)

    def delete(self, name: LedgerId) -> None:
        """Forget a ledger that the index is being told to forget."""
        self._known.pop(name, None)
        self.suspects.discard(name)
        self.ready.pop(name.ledger, None)
        self._dirty.discard(name)
        self._gone.add(name)

    def deleted_from_index(self, name: LedgerId) -> None:
        """Note that the index has forgotten the ledger."""
        self._gone.discard(name)

    def is_gone(self, name: LedgerId) -> bool:
        """Return whether the ledger is deleted, and the index not told of it yet."""
        return name in self._gone

    def written(self, name: LedgerId) -> LedgerState | None:
        """Return the state that the index has, None if it does not know the ledger."""
        try:
            return self._index.state(name)
        except NoSuchLedger:
            return None

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the known ledgers in unsigned order, unflushed ones too."""
        scope = check_scope(scope)
        new = {name for name in self._dirty if scope is None or name.scope == scope}
        return sorted(new.union(self._index.ledgers(scope)) - self._gone)

    @property
    def dirty(self) -> frozenset[LedgerId]:
        """The ledgers whose state is not in the index yet."""
        return frozenset(self._dirty)

    def flush(self, names: Iterable[LedgerId] | None = None) -> None:
        """Hand changed states to the index (of `names` only); the index's flush syncs them.

        An explicit LAC that the index has no field for stays in memory only, as in `FileInfo`.
        """
        for name in sorted(self._dirty if names is None else self._dirty.intersection(names)):
            state = self._known[name]
            if state.explicit_lac is not None and not self._index.can_store_explicit_lac(name):
                state = state._replace(explicit_lac=None)
            self._index.set_state(name, state)
            self._dirty.discard(name)
