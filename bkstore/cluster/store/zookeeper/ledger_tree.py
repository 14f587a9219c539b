"""The paths of ledgers of scope 0 for each ledger manager, and the folders that hold them.

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0. Source:
`meta/FlatLedgerManager`, `meta/HierarchicalLedgerManager`, `meta/LongHierarchicalLedgerManager`,
`meta/AbstractZkLedgerManager.isSpecialZnode`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bkstore.errors import InvalidArgument
from bkstore.formats.metadata.ledger_layout import Manager
from bkstore.formats.metadata.store_paths import flat_path, hierarchical_path, long_path, parse_path
from bkstore.ids import LedgerId

MAX_FLAT_ID = 10**10 - 1
"""The highest ledger id of a flat cluster: BookKeeper does not list longer names."""

_PATHS: dict[Manager, Callable[[LedgerId], str]] = {
    "flat": flat_path,
    "hierarchical": hierarchical_path,
    "longhierarchical": long_path,
}
_FIRST_FOLDER_PATTERNS = {
    "flat": re.compile(r"(?!)"),
    "hierarchical": re.compile(r"[0-9]{2,3}"),
    "longhierarchical": re.compile(r"[0-9]{3}"),
}
_OTHER_FOLDER_PATTERN = re.compile(r"[0-9]{4}")
_FOLDER_DEPTHS = {2: 2, 3: 4}  # folders above a ledger, by the digits of the first folder's name
_SCOPE_FOLDER = re.compile(r"/S([0-9a-f]{16})(?:/[0-9a-f]{4}){0,3}")


def is_scope_folder(scope: int | None, path: str) -> bool:
    """Return whether a path beside the root may hold ledgers of a scope (None = any).

    >>> is_scope_folder(1, "/S0000000000000001/0000"), is_scope_folder(2, "/S0000000000000001")
    (True, False)
    """
    match = _SCOPE_FOLDER.fullmatch(path)
    return match is not None and scope in (None, int(match[1], 16))


class LedgerTree:
    """The ledger paths of one ledger manager, relative to the ledgers root.

    >>> LedgerTree("hierarchical").path_of(LedgerId(0, 2**31))
    '/000/0000/0021/4748/L3648'
    """

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._path = _PATHS[manager]
        self._first_folder_pattern = _FIRST_FOLDER_PATTERNS[manager]

    def path_of(self, ledger: LedgerId) -> str:
        """Return the path of a ledger of scope 0; raises `InvalidArgument` if it has none."""
        if self._is_too_long(ledger):
            raise InvalidArgument(f"ledger {ledger.ledger} has more digits than a flat path")
        return self._path(ledger)

    def parse_path(self, path: str) -> LedgerId | None:
        """Return the ledger with this path, None if it is not a ledger's path."""
        ledger_id = parse_path(path)
        if ledger_id is None or ledger_id.scope or self._is_too_long(ledger_id):
            return None
        return ledger_id if self._path(ledger_id) == path else None

    def _is_too_long(self, ledger: LedgerId) -> bool:
        return self.manager == "flat" and ledger.ledger > MAX_FLAT_ID

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder that may hold ledgers.

        >>> [LedgerTree("flat").is_folder("/00"), LedgerTree("hierarchical").is_folder("/00")]
        [False, True]
        """
        # A ledger is at /00/0012/L3456 or /000/0000/0000/0012/L3456: the first name shows which.
        first, *others = path[1:].split("/")
        if not self._first_folder_pattern.fullmatch(first):
            return False
        is_above_leaf = len(others) < _FOLDER_DEPTHS[len(first)]
        return is_above_leaf and all(map(_OTHER_FOLDER_PATTERN.fullmatch, others))
