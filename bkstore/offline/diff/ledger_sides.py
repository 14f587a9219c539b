"""A side of a comparison: the entries and the state of each ledger, in the order of their ids."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, UnknownLedgers
from bkstore.index.bulk_listing import iterate_results
from bkstore.storage.read_only.bookie_dir import BookieDir


class ComparedState(NamedTuple):
    """The compared state of a ledger; `limbo` is None if not stored. `repr` hides master keys."""

    master_key: bytes
    fenced: bool
    limbo: bool | None
    explicit_lac: bytes | None

    def __repr__(self) -> str:
        return (
            f"ComparedState(master_key=<{len(self.master_key)} bytes>, fenced={self.fenced}, "
            f"limbo={self.limbo}, explicit_lac={self.explicit_lac!r})"
        )


class ComparedLedger(NamedTuple):
    """One ledger of a side, with the error in place of entries or state that cannot be read."""

    ledger: LedgerId
    entries: Availability | BkstoreError
    state: ComparedState | BkstoreError


class DiffSide(Protocol):
    """A bookie that `diff` compares with another one."""

    @property
    def name(self) -> str:
        """The name of the side in findings."""
        ...

    def ledgers(self, chosen: Container[LedgerId] | None = None) -> Iterator[ComparedLedger]:
        """Yield each known ledger once, of the chosen ones if given, in unsigned order."""
        ...


@runtime_checkable
class DamageableSide(Protocol):
    """A side of which damage may hide ledgers; a side without this method lists all it has."""

    def hidden_ledgers(self) -> list[tuple[UnknownLedgers, Finding]]:
        """Return each range of ledgers of which damage hides which the side has, with the damage.
        A ledger there that the side does not list is not compared."""
        ...


class DirectorySide:
    """An open bookie directory as a side; memory: the ledger ids, some availabilities. Reads the
    index once, by `availability_many`; opens no entry log."""

    def __init__(self, bookie: BookieDir) -> None:
        self._bookie = bookie

    @property
    def name(self) -> str:
        """The path of the directory."""
        return str(self._bookie.path)

    def ledgers(self, chosen: Container[LedgerId] | None = None) -> Iterator[ComparedLedger]:
        """Yield each known ledger once, of the chosen ones if given, in unsigned order."""
        index = self._bookie.index
        ledger_ids = index.list_readable_ledgers().ledgers
        if chosen is not None:
            ledger_ids = [ledger_id for ledger_id in ledger_ids if ledger_id in chosen]
        for ledger_id, entries in iterate_results(index, ledger_ids):
            yield ComparedLedger(ledger_id, entries, self._read_state(ledger_id))

    def hidden_ledgers(self) -> list[tuple[UnknownLedgers, Finding]]:
        """Return each range of ledgers that damage hides, with the damage."""
        listing = self._bookie.index.list_readable_ledgers()
        return list(zip(listing.unknown, listing.findings))

    def _read_state(self, ledger_id: LedgerId) -> ComparedState | BkstoreError:
        """Return the ledger's state, or the error if it cannot be read. `limbo` is None if this
        kind of index does not store it."""
        index = self._bookie.index
        try:
            state = index.state(ledger_id)
        except BkstoreError as error:
            return error
        limbo = state.limbo if index.supports_limbo else None
        return ComparedState(state.master_key, state.fenced, limbo, state.explicit_lac)
