"""LedgerStates: master keys, fences, limbo and explicit LACs, changed in memory first.

As in BookKeeper, a flush writes them: to the header of an index file (`FileInfo`), or to rows of
the `ledgers` database (`LedgerMetadataIndex`). Until then only the journal has them durably. A
ledger in limbo may have lost entries; the scope is the upper half of a ledger id.
"""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest

from bkstore.errors import NoSuchLedger, UnauthorizedAccess
from bkstore.ids import LedgerId, check_scope
from bkstore.index.api import EntryIndex, LedgerState


class LedgerStates:
    """The states of an index's ledgers: a read-through cache that writes at `flush`. Not
    thread-safe: the caller holds the storage's lock."""

    def __init__(self, index: EntryIndex) -> None:
        self._index = index
        self._states: dict[LedgerId, LedgerState] = {}
        self._dirty: set[LedgerId] = set()
        """Ledgers whose states changed since they were last written to the index."""
        self._pending_deletions: set[LedgerId] = set()
        """Ledgers that are deleted, but not from the index yet."""
        self.fast_path_ledgers: dict[int, tuple[LedgerId, bytes]] = {}
        """Ledgers of scope 0 that take adds, by number, with their master keys. An add that passed
        all checks enters its ledger, any change removes it: the fast path checks nothing else."""
        self.suspects: set[LedgerId] = set()
        """Ledgers that a garbage collection is about to delete; an add or change removes one."""

    def find(self, ledger_id: LedgerId) -> LedgerState | None:
        """Return a ledger's state, None if it is unknown."""
        state = self._states.get(ledger_id)
        if state is None and ledger_id not in self._pending_deletions:
            state = self.read_stored(ledger_id)
            if state is not None:
                self._states[ledger_id] = state
        return state

    def get(self, ledger_id: LedgerId) -> LedgerState:
        """Return a ledger's state; `NoSuchLedger` if it is unknown."""
        state = self._states.get(ledger_id) or self.find(ledger_id)
        if state is None:
            raise NoSuchLedger(f"ledger {ledger_id} is not on this bookie")
        return state

    def set(self, ledger_id: LedgerId, state: LedgerState) -> None:
        """Set a state in memory; the ledger is known from now on."""
        self._states[ledger_id] = state
        self.suspects.discard(ledger_id)
        self.fast_path_ledgers.pop(ledger_id.ledger, None)
        self._dirty.add(ledger_id)
        self._pending_deletions.discard(ledger_id)

    def set_master_key(self, ledger_id: LedgerId, key: bytes) -> bool:
        """Create a ledger with a key, or check the key of a known one; return whether it is new. A
        key that is empty or all zeros counts as none: such a stored one is replaced, and such a
        `key` is ignored, as in `LedgerMetadataIndex.setMasterKey`. Raises `UnauthorizedAccess` if
        the keys differ."""
        state = self.find(ledger_id)
        if state is None:
            self.set(ledger_id, LedgerState(key))
            return True
        if not compare_digest(state.master_key, key) and any(key):
            if any(state.master_key):
                raise UnauthorizedAccess(f"ledger {ledger_id} has another master key")
            self.set(ledger_id, state._replace(master_key=key))
        return False

    def mark_suspects(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Make ledgers suspects: the next add to one runs all checks, which clears it."""
        for ledger_id in ledger_ids:
            self.fast_path_ledgers.pop(ledger_id.ledger, None)
            self.suspects.add(ledger_id)

    def delete(self, ledger_id: LedgerId) -> None:
        """Drop a ledger's state; the caller deletes it from the index."""
        self._states.pop(ledger_id, None)
        self.suspects.discard(ledger_id)
        self.fast_path_ledgers.pop(ledger_id.ledger, None)
        self._dirty.discard(ledger_id)
        self._pending_deletions.add(ledger_id)

    def note_deleted_from_index(self, ledger_id: LedgerId) -> None:
        """Note that the index has deleted the ledger."""
        self._pending_deletions.discard(ledger_id)

    def is_deleted(self, ledger_id: LedgerId) -> bool:
        """Return whether the ledger is deleted, but not yet from the index."""
        return ledger_id in self._pending_deletions

    def read_stored(self, ledger_id: LedgerId) -> LedgerState | None:
        """Return the state in the index, None if the index has no such ledger."""
        try:
            return self._index.state(ledger_id)
        except NoSuchLedger:
            return None

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the known ledgers in unsigned order, unflushed ones too."""
        scope = check_scope(scope)
        unflushed = {each for each in self._dirty if scope is None or each.scope == scope}
        return sorted(unflushed.union(self._index.ledgers(scope)) - self._pending_deletions)

    @property
    def dirty(self) -> frozenset[LedgerId]:
        """The ledgers whose states are not in the index yet."""
        return frozenset(self._dirty)

    def flush(self, ledger_ids: Iterable[LedgerId] | None = None) -> None:
        """Write changed states (of `ledger_ids` only, if given) to the index, without a sync. An
        explicit LAC that the index has no field for stays in memory, as in `FileInfo`."""
        to_flush = self._dirty if ledger_ids is None else self._dirty.intersection(ledger_ids)
        for ledger_id in sorted(to_flush):
            state = self._states[ledger_id]
            if state.explicit_lac is not None and not self._index.can_store_explicit_lac(ledger_id):
                state = state._replace(explicit_lac=None)
            self._index.set_state(ledger_id, state)
            self._dirty.discard(ledger_id)
