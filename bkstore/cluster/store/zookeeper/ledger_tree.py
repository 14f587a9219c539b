"""Where each ledger manager keeps ledgers of scope 0, and which folders hold them.

Source: `meta/FlatLedgerManager`, `meta/HierarchicalLedgerManager`,
`meta/LongHierarchicalLedgerManager`, `meta/AbstractZkLedgerManager.isSpecialZnode`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bkstore.errors import InvalidArgument
from bkstore.formats.metadata.ledger_layout import Manager
from bkstore.formats.metadata.store_paths import (
    flat_path,
    hierarchical_path,
    long_path,
    parse_path,
)
from bkstore.ids import LedgerId

FLAT_MAX = 10**10 - 1
"""The last ledger of a flat cluster: longer names are not listed by real clients."""

_PATHS: dict[Manager, Callable[[LedgerId], str]] = {
    "flat": flat_path,
    "hierarchical": hierarchical_path,
    "longhierarchical": long_path,
}
_FIRST_FOLDERS = {
    "flat": re.compile(r"(?!)"),
    "hierarchical": re.compile(r"[0-9]{2,3}"),
    "longhierarchical": re.compile(r"[0-9]{3}"),
}
_OTHER_FOLDERS = re.compile(r"[0-9]{4}")
_DEPTH = {2: 2, 3: 4}  # folders above a ledger, by the digits of the first


_SCOPE_FOLDER = re.compile(r"/S([0-9a-f]{16})(?:/[0-9a-f]{4}){0,3}")


def is_scope_folder(scope: int | None, path: str) -> bool:
    """Return whether ledgers of a scope (None = of any) may lie below a path beside the root.

    >>> is_scope_folder(1, "/S0000000000000001/0000"), is_scope_folder(2, "/S0000000000000001")
    (True, False)
    """
    found = _SCOPE_FOLDER.fullmatch(path)
    return found is not None and scope in (None, int(found[1], 16))


class LedgerTree:
    """Paths below the ledgers root, by a manager's name.

    >>> LedgerTree("hierarchical").path(LedgerId(0, 2**31))
    '/000/0000/0021/4748/L3648'
    """

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._path = _PATHS[manager]
        self._first = _FIRST_FOLDERS[manager]

    def path(self, ledger: LedgerId) -> str:
        """Return the path of a ledger of scope 0; `InvalidArgument` where it has none."""
        if self.manager == "flat" and ledger.ledger > FLAT_MAX:
            raise InvalidArgument(f"ledger {ledger.ledger} has more digits than a flat path")
        return self._path(ledger)

    def ledger(self, path: str) -> LedgerId | None:
        """Return the ledger that has this path, None if it is no ledger's."""
        found = parse_path(path)
        if found is None or found.scope or (self.manager == "flat" and found.ledger > FLAT_MAX):
            return None
        return found if self._path(found) == path else None

    def is_folder(self, path: str) -> bool:
        """Return whether ledgers may lie below this path.

        >>> [LedgerTree("flat").is_folder("/00"), LedgerTree("hierarchical").is_folder("/00")]
        [False, True]
        """
        first, *others = path[1:].split("/")
        if not self._first.fullmatch(first):
            return False
        below = len(others) < _DEPTH[len(first)]
        return below and all(map(_OTHER_FOLDERS.fullmatch, others))
