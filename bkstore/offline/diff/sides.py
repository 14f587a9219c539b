"""A side of a comparison: what is known of each ledger, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.many_ledgers import answers
from bkstore.storage.read_only.bookie_dir import BookieDir


class Kept(NamedTuple):
    """A ledger's state as it is compared; `limbo` is None where the layout does not keep it.

    Printed, it keeps the master key to itself.
    """

    master_key: bytes
    fenced: bool
    limbo: bool | None
    explicit_lac: bytes | None

    def __repr__(self) -> str:
        return (
            f"Kept(master_key=<{len(self.master_key)} bytes>, fenced={self.fenced}, "
            f"limbo={self.limbo}, explicit_lac={self.explicit_lac!r})"
        )


class Held(NamedTuple):
    """One ledger of a side. An error stands where entries or state cannot be read."""

    ledger: LedgerId
    here: Availability | BkstoreError
    state: Kept | BkstoreError


class Side(Protocol):
    """What `diff` compares."""

    @property
    def name(self) -> str:
        """What findings call it."""
        ...

    def ledgers(self, only: LedgerId | None = None) -> Iterator[Held]:
        """Yield each known ledger once, or the one that is asked for, in unsigned order."""
        ...


class DirectorySide:
    """An open bookie directory as a side.

    Reads the index once, by `availability_many`: no entry log is opened. Memory: the names of the
    ledgers, and a part of the answers that does not grow with their number.
    """

    def __init__(self, bookie: BookieDir) -> None:
        self._bookie = bookie

    @property
    def name(self) -> str:
        """The path of the directory."""
        return str(self._bookie.path)

    def ledgers(self, only: LedgerId | None = None) -> Iterator[Held]:
        """Yield each known ledger once, or the one that is asked for, in unsigned order."""
        index = self._bookie.index
        names = index.ledgers(None if only is None else only.scope)
        if only is not None:
            names = [name for name in names if name == only]
        for name, here in answers(index, names):
            yield Held(name, here, self._state(name))

    def _state(self, name: LedgerId) -> Kept | BkstoreError:
        index = self._bookie.index
        try:
            state = index.state(name)
        except BkstoreError as error:
            return error
        limbo = state.limbo if index.supports_limbo else None
        return Kept(state.master_key, state.fenced, limbo, state.explicit_lac)
