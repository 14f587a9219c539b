"""Metadata from elsewhere: a JSON file, a folder dumped from ZooKeeper or etcd, a store.

A dump is a folder in which the path of a file is that of a node and its bytes are the node's
value. Ledger paths of every form are read (flat, short and long hierarchical, UUID, bkstore's
own for other scopes), whatever folders lie above the ledgers root. Nothing here is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bkstore.cluster.store.api import MetadataStore, Value
from bkstore.cluster.store.directory_values import VALUE_LIMIT, walk
from bkstore.cluster.store.key_value_store import (
    AVAILABLE,
    KeyValueStore,
    MemoryStore,
)
from bkstore.errors import (
    CorruptionError,
    InvalidArgument,
    ReadOnlyError,
    UnsupportedLayout,
)
from bkstore.files.opening import read_whole
from bkstore.files.os_errors import readable
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.metadata.json_file import ClusterMetadata
from bkstore.formats.metadata.store_paths import parse_path
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

# Where a ledger's path may begin, longest form first: a long path ends like a flat one.
_DEPTHS = (5, 3, 1)


class DumpValues:
    """Read-only `KeyValues` of a folder: each file is a value, its path below `top` the key."""

    def __init__(self, top: str | os.PathLike[str]) -> None:
        self.path = Path(top)

    def where(self, key: str) -> str:
        """Return the path of the key's file."""
        return f"{self.path}{key}"

    def get(self, key: str) -> Value | None:
        """As `KeyValues.get`; the version is always 0."""
        file = self.where(key)
        with readable(file):
            if os.path.isdir(file) and os.listdir(file):
                return None  # a node of which the dump has no value
            try:
                return Value(read_whole(file, VALUE_LIMIT), 0, file)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"{self.path} is a dump: nothing in it is changed")

    def delete(self, key: str, expected: int | None) -> bool:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"{self.path} is a dump: nothing in it is changed")

    def keys(self, prefix: str) -> list[str]:
        """As `KeyValues.keys`."""
        folder = prefix.rpartition("/")[0]
        found = (f"{folder}/{name}" for name in walk(f"{self.path}{folder}"))
        return sorted(key for key in found if key.startswith(prefix))


class DumpStore(KeyValueStore):
    """A read-only `MetadataStore` over a dumped folder; every version is 0.

    Bookies are told if there is an ``available`` folder beside the ledgers, marks if there is
    ``underreplication/ledgers``, bookies known to be unavailable never. `other_files` lists what
    was not taken for a ledger. The folder is walked once, at the start. Raises
    `UnsupportedLayout` where no ledger is found, `InvalidArgument` for ledgers of several trees
    and `CorruptionError` for one that is there twice.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.path.isdir(path):
            raise InvalidArgument(f"{os.fspath(path)} is no folder")
        names = sorted(f"/{name}" for name in walk(os.fspath(path)))
        found = [(name, *_ledger_at(name)) for name in names]
        tops = {top for _, top, ledger in found if ledger is not None}
        if not tops:
            raise UnsupportedLayout(f"{os.fspath(path)}: no path in it is that of a ledger")
        if len(tops) > 1:
            places = ", ".join(sorted(top or "/" for top in tops))
            raise InvalidArgument(f"{os.fspath(path)} holds several trees of ledgers: {places}")
        (top,) = tops
        self._keys: dict[LedgerId, str] = {}
        for name, _, ledger in found:
            if ledger in self._keys:
                raise CorruptionError(
                    f"{os.fspath(path)}{name}", None, f"ledger {ledger} is there twice"
                )
            if ledger is not None:
                self._keys[ledger] = name.removeprefix(top)
        self._names = {key: ledger for ledger, key in self._keys.items()}
        others = (name[1:] for name, _, ledger in found if ledger is None)
        self.other_files = tuple(name for name in others if not os.path.isdir(Path(path) / name))
        values = DumpValues(f"{os.fspath(path)}{top}")
        kinds = {"registered": AVAILABLE, "underreplicated": "/underreplication/ledgers"}
        tells = {kind for kind, folder in kinds.items() if os.path.isdir(values.where(folder))}
        super().__init__(values, tells=frozenset(tells))
        self.path = values.path
        self._folder = path

    def refuse_output(self, target: str | os.PathLike[str]) -> None:
        """Raise `InvalidArgument` if `target` lies in the folder."""
        refuse_inputs(target, [self._folder])

    def _key(self, ledger: LedgerId) -> str:
        return self._keys.get(ledger, "/")  # no file has this key

    def _ledger(self, key: str) -> LedgerId | None:
        return self._names.get(key)

    def _prefix(self, scope: int | None) -> str:
        return "/"


def _ledger_at(name: str) -> tuple[str, LedgerId | None]:
    """Return (folders above the ledgers root, ledger) of a file's path; None = no ledger's."""
    parts = name.split("/")[1:]
    if "underreplication" in parts:
        return "", None
    for depth in _DEPTHS:
        ledger = parse_path("/" + "/".join(parts[-depth:])) if len(parts) >= depth else None
        if ledger is not None:
            top = "".join(f"/{part}" for part in parts[:-depth])
            return (re.sub("/ledgers$", "", top) if "-" in parts[-1] else top), ledger
    return "", None


def store_of(metadata: ClusterMetadata) -> MemoryStore:
    """Return a store in memory with this content; what is not told there is not told here.

    Each ledger is kept in its own format version, which may have no place for all that it says.
    `InvalidArgument` for what no version holds, `LedgerExists` for a ledger that is there twice.
    """
    store = MemoryStore(tells=frozenset())
    for ledger in metadata.ledgers:
        store.create(ledger)
    lists = {
        "registered": metadata.registered_bookies,
        "unavailable": metadata.unavailable_bookies,
        "underreplicated": metadata.underreplicated,
    }
    store._tells.update(name for name, content in lists.items() if content is not None)
    for bookie in metadata.registered_bookies or ():
        store.register_bookie(bookie)
    for bookie in metadata.unavailable_bookies or ():
        store.set_unavailable(bookie)
    for name, mark in (metadata.underreplicated or {}).items():
        store.mark_underreplicated(name, mark)
    return store


def snapshot(store: MetadataStore) -> ClusterMetadata:
    """Return all that a store knows; ledgers in unsigned order. Raises as `read` does.

    Not of one moment if others change the store meanwhile: ledgers that go are left out.
    """
    return ClusterMetadata(
        tuple(_all_metadata(store)),
        store.registered_bookies(),
        store.unavailable_bookies(),
        store.underreplicated(),
    )


def _all_metadata(store: MetadataStore) -> Iterator[LedgerMetadata]:
    for _, found in store.read_many(store.ledgers()):
        if isinstance(found, CorruptionError):
            raise found
        yield found.metadata
