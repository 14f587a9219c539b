r"""LAYOUT: which ledger manager a cluster has, in two lines of text without a last line feed.

The layout's own version, then the manager's factory class (version 1: a short name), a colon and
its version. Page: `docs/formats/zookeeper.md`. Source: `meta/LedgerLayout`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from bkstore.errors import CorruptionError

Manager = Literal["flat", "hierarchical", "longhierarchical"]
"""A ledger manager that bkstore supports, by its name in service URIs."""

NEWEST_VERSION = 2
_MANAGER_VERSION = 1

_CLASS_OF_MANAGER: dict[Manager, str] = {
    "flat": "org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
    "hierarchical": "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    "longhierarchical": "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
}
_MANAGER_OF_CLASS = {name: manager for manager, name in _CLASS_OF_MANAGER.items()}
_MANAGER_OF_TYPE: dict[str, Manager] = {"flat": "flat", "hierarchical": "hierarchical"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class LedgerLayout(NamedTuple):
    """LAYOUT: the factory class (version 1: type), its version, and the layout's version."""

    factory: str
    manager_version: int = _MANAGER_VERSION
    version: int = NEWEST_VERSION

    @property
    def manager(self) -> Manager | None:
        """The ledger manager, None for one that bkstore does not support.

        >>> LedgerLayout("org.apache.bookkeeper.meta.FlatLedgerManagerFactory").manager
        'flat'
        """
        managers = _MANAGER_OF_TYPE if self.version == 1 else _MANAGER_OF_CLASS
        return managers.get(self.factory) if self.manager_version == _MANAGER_VERSION else None

    @classmethod
    def of(cls, manager: Manager) -> LedgerLayout:
        """Return the layout that a new cluster with this manager has."""
        return cls(_CLASS_OF_MANAGER[manager])


def decode_layout(data: bytes) -> LedgerLayout:
    r"""Return the contents of a store's LAYOUT, which names the ledger manager, the class that
    decides the paths of ledgers. Raises `CorruptionError` unless version, class and the number of
    the class are valid. Lines after the second are ignored, as in BookKeeper.

    >>> decode_layout(b"1\nflat:1")
    LedgerLayout(factory='flat', manager_version=1, version=1)
    """
    version_line, *other_lines = data.decode("utf-8", "replace").split("\n")
    if not _NUMBER.fullmatch(version_line) or not 1 <= int(version_line) <= NEWEST_VERSION:
        reason = f"LAYOUT's version is {version_line[:40]!r}, supported are 1 and 2"
        raise CorruptionError(None, 0, reason)
    second_line = other_lines[0] if other_lines else ""
    class_name, separator, class_version = second_line.partition(":")
    if not separator or not _NUMBER.fullmatch(class_version):
        reason = "LAYOUT's second line is not a class and version with a colon between"
        raise CorruptionError(None, len(version_line) + 1, reason)
    return LedgerLayout(class_name, int(class_version), int(version_line))


def encode_layout(layout: LedgerLayout) -> bytes:
    r"""Return the bytes of LAYOUT.

    >>> encode_layout(LedgerLayout.of("flat"))
    b'2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1'
    """
    return f"{layout.version}\n{layout.factory}:{layout.manager_version}".encode()
