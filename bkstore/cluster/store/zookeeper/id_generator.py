"""Generate ids of new ledgers from the numbers of ZooKeeper's sequential nodes.

Short ids are numbers of ``idgen/ID-`` nodes. Once ``idgen-long`` exists, or short ids are used up,
an id has a folder's number (``HOB-``) as high bits and that of a node in it as low bits. No number
is used twice; a lost request leaves a gap. Source: `meta/[Long]ZkLedgerIdGenerator`.
"""

from __future__ import annotations

import re

from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import InvalidArgument

_END_OF_SHORT = 2**31 - 1
_FOLDER_PATTERN = re.compile(r"HOB-([0-9]{10})")
_KEPT_FOLDERS = 3  # folders of high bits


class IdGenerator:
    """Generates ids from the numbers of sequential nodes below `folder`. With `short_only`, as for
    the flat manager, all ids have 31 bits and the nodes are in `folder` itself."""

    def __init__(self, nodes: Nodes, folder: str, *, short_only: bool = False) -> None:
        self._nodes = nodes
        self._short_folder = folder if short_only else f"{folder}/idgen"
        self._long_folder = f"{folder}/idgen-long"
        self._short_only = short_only
        self._is_long: bool | None = None

    def next(self) -> int:
        """Return the next id; raises `InvalidArgument` when none is left. Short ids have 31 bits;
        when they are used up, the folder of long ids is made, and from then on ids are long."""
        request = self._nodes.connection.request
        if self._is_long is None:  # not known yet
            has_long_ids = not self._short_only and request(self._long_folder, "exists")
            self._is_long = bool(has_long_ids)
        if not self._is_long:
            number = self._next_number(self._short_folder)
            if number is not None:
                return number
            if self._short_only:
                raise InvalidArgument(f"{self._short_folder}: no short ledger ids are left")
            self._nodes.make_folder(self._long_folder)
            self._is_long = True
        return self._next_long()

    def _next_long(self) -> int:
        """Return the next id above 31 bits: a folder has the high half, a node in it the low half.
        A folder whose low numbers are used up gives None, and the next one is made."""
        high = self._find_highest_folder() or self._make_high_folder(1)
        while (low := self._next_number(f"{self._long_folder}/HOB-{high:010d}")) is None:
            high = self._make_high_folder(max(high + 1, self._find_highest_folder()))
        return high << 32 | low

    def _find_highest_folder(self) -> int:
        """Return the highest number of a folder of high bits, 0 if there is none."""
        names = self._nodes.connection.request(self._long_folder, "get_children")
        numbers = sorted(int(match[1]) for match in map(_FOLDER_PATTERN.fullmatch, names) if match)
        return numbers[-1] if numbers else 0

    def _make_high_folder(self, high: int) -> int:
        """Create the folder for ids with these high bits, and return them. Removes the folder
        `_KEPT_FOLDERS` before it: ids are made in the highest one, or, by a client that has not
        noticed a new folder yet, in one just before it."""
        self._nodes.make_folder(f"{self._long_folder}/HOB-{high:010d}")
        if high > _KEPT_FOLDERS:
            oldest = f"{self._long_folder}/HOB-{high - _KEPT_FOLDERS:010d}"
            # Fails if the folder still has nodes.
            self._nodes.connection.client.delete_async(oldest, version=0)
        return high

    def _next_number(self, folder: str) -> int | None:
        """Create a sequential node, make the folder if it is missing, and return the node's number;
        None if the folder's numbers are used up."""
        request = self._nodes.connection.request
        while True:
            try:
                path = request(f"{folder}/ID-", "create", b"", ephemeral=True, sequence=True)
                break
            except NoNodeError:
                self._nodes.make_folder(folder)
        # Not waited for: if it fails, the ephemeral node ends with the session.
        self._nodes.connection.client.delete_async(path)
        number = int(path.removeprefix(f"{folder}/ID-"))
        return number if 0 <= number < _END_OF_SHORT else None
