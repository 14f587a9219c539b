"""Ids of new ledgers, from the numbers that ZooKeeper gives to sequential nodes.

Short ids are numbers of ``idgen/ID-`` nodes. Once ``idgen-long`` is there, or short ids are used
up, an id is a folder's number (``HOB-``, the high bits) and a node's in it. A number is given
once, whatever becomes of the request: one that is lost leaves a gap. Source:
`meta/ZkLedgerIdGenerator`, `meta/LongZkLedgerIdGenerator`.
"""

from __future__ import annotations

import re

from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import InvalidArgument

_END_OF_SHORT = 2**31 - 1
_HIGH = re.compile(r"HOB-([0-9]{10})")
_KEPT = 3  # folders of high bits


class IdGenerator:
    """The ids below one folder. `short_only` is the flat manager's: nodes beside the ledgers."""

    def __init__(self, nodes: Nodes, folder: str, *, short_only: bool = False) -> None:
        self._nodes = nodes
        self._short = folder if short_only else f"{folder}/idgen"
        self._long = f"{folder}/idgen-long"
        self._short_only = short_only
        self._is_long: bool | None = None

    def next(self) -> int:
        """Return the next number; `InvalidArgument` when there is none left."""
        ask = self._nodes.connection.ask
        if self._is_long is None:
            self._is_long = not self._short_only and ask(self._long, "exists") is not None
        if not self._is_long:
            number = self._numbered(self._short)
            if number is not None:
                return number
            if self._short_only:
                raise InvalidArgument(f"{self._short}: all short ledger ids are used up")
            self._nodes.make_folder(self._long)
            self._is_long = True
        return self._next_long()

    def _next_long(self) -> int:
        high = self._highest() or self._begun(1)
        while (low := self._numbered(f"{self._long}/HOB-{high:010d}")) is None:
            high = self._begun(max(high + 1, self._highest()))
        return high << 32 | low

    def _highest(self) -> int:
        names = self._nodes.connection.ask(self._long, "get_children")
        numbers = sorted(int(hit[1]) for hit in map(_HIGH.fullmatch, names) if hit)
        return numbers[-1] if numbers else 0

    def _begun(self, high: int) -> int:
        self._nodes.make_folder(f"{self._long}/HOB-{high:010d}")
        if high > _KEPT:
            oldest = f"{self._long}/HOB-{high - _KEPT:010d}"
            self._nodes.connection.client.delete_async(oldest, 0)  # it may have others in it
        return high

    def _numbered(self, folder: str) -> int | None:
        """Return the number of a new node; None where the folder's numbers are used up."""
        connection = self._nodes.connection
        while True:
            try:
                made = connection.ask(f"{folder}/ID-", "create", b"", ephemeral=True, sequence=True)
            except NoNodeError:
                self._nodes.make_folder(folder)
                continue
            break
        # Nobody waits for this, and where it fails the node goes with the session.
        connection.client.delete_async(made)
        number = int(made.removeprefix(f"{folder}/ID-"))
        return number if 0 <= number < _END_OF_SHORT else None
