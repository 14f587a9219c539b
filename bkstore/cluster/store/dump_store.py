"""Read-only metadata: a folder dumped from ZooKeeper or etcd, the content of a JSON file.

In a dump, a file's path is a node's path and its content the node's value. All forms of ledger
paths are recognized (flat, short and long hierarchical, UUID, bkstore's own for other scopes),
whatever folders are above the ledgers root. A scope is the upper 64 bits of a 128-bit ledger id;
BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bkstore.cluster.store.api import MetadataStore, Value
from bkstore.cluster.store.directory_values import MAX_VALUE_BYTES, walk_files
from bkstore.cluster.store.key_value_store import AVAILABLE_PREFIX, KeyValueStore, MemoryStore
from bkstore.errors import CorruptionError, InvalidArgument, ReadOnlyError, UnsupportedLayout
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.metadata.json_file import ClusterMetadata
from bkstore.formats.metadata.store_paths import parse_path
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

# Path components of a ledger, longest form first: a long path ends like a flat one.
_DEPTHS = (5, 3, 1)


class DumpValues:
    """Read-only `KeyValues` of a folder: each file is a value, its path below `top` the key."""

    def __init__(self, top: str | os.PathLike[str]) -> None:
        self.path = Path(top)

    def location_of(self, key: str) -> str:
        """Return the path of the key's file."""
        return f"{self.path}{key}"

    def get(self, key: str) -> Value | None:
        """Return the dumped value of a key, None if there is none. Its version is always 0, as the
        dump has none."""
        file = self.location_of(key)
        with convert_read_errors(file):
            if os.path.isdir(file) and os.listdir(file):
                return None  # a node with children, whose own value is not in the dump
            try:
                return Value(read_file(file, MAX_VALUE_BYTES), 0, file)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"{self.path} is a dump and cannot be changed")

    def delete(self, key: str, expected: int | None) -> bool:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"{self.path} is a dump and cannot be changed")

    def keys(self, prefix: str) -> list[str]:
        """As `KeyValues.keys`."""
        folder = prefix.rpartition("/")[0]
        all_keys = (f"{folder}/{file_path}" for file_path in walk_files(f"{self.path}{folder}"))
        return sorted(key for key in all_keys if key.startswith(prefix))


class DumpStore(KeyValueStore):
    """A read-only `MetadataStore` over a dumped folder; every version is 0.

    It has registered bookies if there is an ``available`` folder beside the ledgers, marks if there
    is ``underreplication/ledgers``, and never unavailable bookies. `other_files` hold no ledger.
    The folder is walked once, at the start. Raises `UnsupportedLayout` without any ledger,
    `InvalidArgument` for several trees of them, `CorruptionError` if one appears twice.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """List the files, and find the ledgers among them by their paths; values are read on
        demand."""
        folder = os.fspath(path)
        if not os.path.isdir(folder):
            raise InvalidArgument(f"{folder} is not a directory")
        file_paths = sorted(f"/{file_path}" for file_path in walk_files(folder))
        # (path, folders above the ledgers root, ledger or None)
        parsed_paths = [(file_path, *_parse_file_path(file_path)) for file_path in file_paths]
        tops = {top for _, top, ledger in parsed_paths if ledger is not None}
        if not tops:
            raise UnsupportedLayout(f"{folder}: contains no ledger's path")
        if len(tops) > 1:
            tree_roots = ", ".join(sorted(top or "/" for top in tops))
            raise InvalidArgument(f"{folder} holds several trees of ledgers: {tree_roots}")
        # Map ledgers to keys, relative to the folder that has the ledgers root.
        (top,) = tops
        self._keys: dict[LedgerId, str] = {}
        for file_path, _, ledger in parsed_paths:
            if ledger in self._keys:
                file = f"{folder}{file_path}"
                raise CorruptionError(file, None, f"ledger {ledger} appears twice")
            if ledger is not None:
                self._keys[ledger] = file_path.removeprefix(top)
        self._ledgers_by_key = {key: ledger for ledger, key in self._keys.items()}
        # `walk_files` also yields empty folders.
        others = (file_path[1:] for file_path, _, ledger in parsed_paths if ledger is None)
        self.other_files = tuple(name for name in others if not os.path.isdir(Path(folder) / name))
        values = DumpValues(f"{folder}{top}")
        keys = {"registered": AVAILABLE_PREFIX, "underreplicated": "/underreplication/ledgers"}
        known_lists = (name for name, key in keys.items() if os.path.isdir(values.location_of(key)))
        super().__init__(values, known_lists=frozenset(known_lists))
        self.path = values.path
        self._folder = folder

    def refuse_output(self, target: str | os.PathLike[str]) -> None:
        """Raise `InvalidArgument` if `target` lies in the folder."""
        refuse_inputs(target, [self._folder])

    def _key_of(self, ledger: LedgerId) -> str:
        return self._keys.get(ledger, "/")  # no file has this key

    def _parse_key(self, key: str) -> LedgerId | None:
        return self._ledgers_by_key.get(key)

    def _key_prefix(self, scope: int | None) -> str:
        return "/"


def _parse_file_path(file_path: str) -> tuple[str, LedgerId | None]:
    """Return (folders above the ledgers root, ledger) of a file's path; None = not a ledger."""
    parts = file_path.split("/")[1:]
    if "underreplication" in parts:  # the path of a mark ends like its ledger's
        return "", None
    for depth in _DEPTHS:
        ledger = parse_path("/" + "/".join(parts[-depth:])) if len(parts) >= depth else None
        if ledger is not None:
            top = "".join(f"/{part}" for part in parts[:-depth])
            # Only UUIDs have dashes: etcd's keys, in a folder ``ledgers`` of their own.
            return (top.removesuffix("/ledgers") if "-" in parts[-1] else top), ledger
    return "", None


def make_memory_store(metadata: ClusterMetadata) -> MemoryStore:
    """Return a store in memory with a dump's content. A list that is None was not dumped: the store
    does not know it either. Each ledger is stored in its own format version, which may not hold all
    fields. Raises `InvalidArgument` for values that no version can hold, `LedgerExists` for a
    duplicate ledger."""
    store = MemoryStore(known_lists=frozenset())
    for ledger in metadata.ledgers:
        store.create(ledger)
    lists = {
        "registered": metadata.registered_bookies,
        "unavailable": metadata.unavailable_bookies,
        "underreplicated": metadata.underreplicated,
    }
    store._known_lists.update(name for name, content in lists.items() if content is not None)
    for bookie in metadata.registered_bookies or ():
        store.register_bookie(bookie)
    for bookie in metadata.unavailable_bookies or ():
        store.set_unavailable(bookie)
    for ledger_id, mark in (metadata.underreplicated or {}).items():
        store.mark_underreplicated(ledger_id, mark)
    return store


def snapshot(store: MetadataStore) -> ClusterMetadata:
    """Return the whole content of a store, ledgers in unsigned order. Raises as `read` does. Not
    atomic: ledgers deleted meanwhile are left out."""
    return ClusterMetadata(
        tuple(_all_metadata(store)),
        store.registered_bookies(),
        store.unavailable_bookies(),
        store.underreplicated(),
    )


def _all_metadata(store: MetadataStore) -> Iterator[LedgerMetadata]:
    for _, versioned in store.read_many(store.ledgers()):
        if isinstance(versioned, CorruptionError):
            raise versioned
        yield versioned.metadata
