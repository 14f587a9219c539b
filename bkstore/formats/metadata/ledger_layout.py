r"""LAYOUT: which ledger manager a cluster has, in two lines of text without a last line feed.

The layout's own version, then the manager's factory class and version with a colon between.
Version 1 has a short name where version 2 has the class. Page: `docs/formats/zookeeper.md`.
Source: `meta/LedgerLayout`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from bkstore.errors import CorruptionError

Manager = Literal["flat", "hierarchical", "longhierarchical"]
"""A ledger manager that bkstore has, by the name that service URIs give it."""

NEWEST_VERSION = 2
_MANAGER_VERSION = 1

_CLASSES: dict[Manager, str] = {
    "flat": "org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
    "hierarchical": "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    "longhierarchical": "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
}
_OF_CLASSES = {name: manager for manager, name in _CLASSES.items()}
_OF_TYPES: dict[str, Manager] = {"flat": "flat", "hierarchical": "hierarchical"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class LedgerLayout(NamedTuple):
    """What LAYOUT says: a factory class (version 1: a type), its version, the layout's version."""

    factory: str
    manager_version: int = _MANAGER_VERSION
    version: int = NEWEST_VERSION

    @property
    def manager(self) -> Manager | None:
        """The ledger manager that is meant; None for one that bkstore has not.

        >>> LedgerLayout("org.apache.bookkeeper.meta.FlatLedgerManagerFactory").manager
        'flat'
        """
        names = _OF_TYPES if self.version == 1 else _OF_CLASSES
        return names.get(self.factory) if self.manager_version == _MANAGER_VERSION else None

    @classmethod
    def of(cls, manager: Manager) -> LedgerLayout:
        """Return the layout that a new cluster with this manager has."""
        return cls(_CLASSES[manager])


def decode_layout(data: bytes) -> LedgerLayout:
    r"""Return what LAYOUT says; `CorruptionError` unless version, class and number are there.

    Lines behind the second are not looked at, as upstream does.

    >>> decode_layout(b"1\nflat:1")
    LedgerLayout(factory='flat', manager_version=1, version=1)
    """
    first, *others = data.decode("utf-8", "replace").split("\n")
    if not _NUMBER.fullmatch(first) or not 1 <= int(first) <= NEWEST_VERSION:
        raise CorruptionError(None, 0, f"LAYOUT's version is {first[:40]!r}, known are 1 and 2")
    parts = others[0].split(":") if others else []
    if len(parts) != 2 or not _NUMBER.fullmatch(parts[1]):
        reason = "LAYOUT's second line is no class and version with a colon between"
        raise CorruptionError(None, len(first) + 1, reason)
    return LedgerLayout(parts[0], int(parts[1]), int(first))


def encode_layout(layout: LedgerLayout) -> bytes:
    r"""Return the bytes of LAYOUT.

    >>> encode_layout(LedgerLayout.of("flat"))
    b'2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1'
    """
    return f"{layout.version}\n{layout.factory}:{layout.manager_version}".encode()
