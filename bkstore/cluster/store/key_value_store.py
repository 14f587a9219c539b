"""The metadata store: serialized ledger metadata, bookies and marks under keys.

`KeyValueStore` keeps them in anything that has versioned values (`KeyValues`); `MemoryStore` and
`DirectoryStore` bring the two that are here. Two layouts: "tree" (the long hierarchical paths
for scope 0, bkstore's hexadecimal ones for others) and "keys" (a ledger's UUID, as proposal
BP-35 has it for etcd). Page: `docs/formats/ledgermetadata.md`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from bkstore.cluster.store.api import KeyValues, MetadataStore, Value, Versioned, Watcher
from bkstore.cluster.store.directory_values import DirectoryValues
from bkstore.cluster.store.memory_values import MemoryValues
from bkstore.errors import BadVersion, CorruptionError, InvalidArgument, LedgerExists, NoSuchLedger
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.metadata.serialized import Mark, decode, decode_mark, encode, encode_mark
from bkstore.formats.metadata.store_paths import (
    mark_path,
    parse_mark_path,
    parse_path,
    tree_path,
    uuid_path,
)
from bkstore.ids import LedgerId, check_scope
from bkstore.ledger_metadata import LedgerMetadata

__all__ = [
    "AVAILABLE",
    "DirectoryStore",
    "KeyValueStore",
    "KeyValues",
    "Layout",
    "MemoryStore",
    "MetadataStore",
    "Value",
    "Versioned",
    "Watcher",
    "uuid_ledger_id",
]

Layout = Literal["tree", "keys"]

AVAILABLE = "/available/"
UNAVAILABLE = "/unavailable/"
MARKS = "/underreplication/ledgers/"
CHECKED_AT = "/underreplication/replicascheckctime"
COUNTERS = "/idgen/"
READ_ONLY = "readonly"


def uuid_ledger_id() -> LedgerId:
    """Return a new id from a random UUID: its first 64 bits are the scope, never 0.

    >>> uuid_ledger_id().scope > 0
    True
    """
    return LedgerId.from_uuid(uuid.uuid4())


class KeyValueStore:
    """A `MetadataStore` over versioned values.

    `tells` names what the store knows beside ledgers ("registered", "unavailable",
    "underreplicated"); what is not named is answered with None until it is first set. Watchers
    hear of changes made through this object, in the thread that makes them, after they are made.
    """

    def __init__(
        self,
        values: KeyValues,
        layout: Layout = "tree",
        tells: frozenset[str] = frozenset({"registered", "unavailable", "underreplicated"}),
    ) -> None:
        if layout not in ("tree", "keys"):
            raise InvalidArgument(f"unknown layout {layout!r}: tree or keys")
        self._values = values
        self._layout = layout
        self._tells = set(tells)
        self._watchers: list[Watcher] = []
        self._lock = threading.Lock()

    # -- ledgers

    def create(self, metadata: LedgerMetadata) -> int:
        """As `MetadataStore.create`; also `InvalidArgument` for what bytes cannot hold."""
        key = self._key(metadata.ledger)
        try:
            version = self._values.put(key, encode(metadata, incomplete=True), None)
        except BadVersion:
            raise LedgerExists(f"ledger {metadata.ledger} exists already") from None
        self._changed(metadata.ledger)
        return version

    def read(self, ledger: int | LedgerId) -> Versioned:
        """As `MetadataStore.read`."""
        name = LedgerId.of(ledger)
        value = self._values.get(self._key(name))
        if value is None:
            raise NoSuchLedger(f"no metadata of ledger {name}")
        return Versioned(self._decoded(name, value), value.version)

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """As `MetadataStore.write`."""
        key = self._key(metadata.ledger)
        try:
            now = self._values.put(key, encode(metadata, incomplete=True), version)
        except BadVersion:
            if self._values.get(key) is None:
                raise NoSuchLedger(f"no metadata of ledger {metadata.ledger}") from None
            raise
        self._changed(metadata.ledger)
        return now

    def delete(self, ledger: int | LedgerId, version: int | None = None) -> None:
        """As `MetadataStore.delete`."""
        name = LedgerId.of(ledger)
        if not self._values.delete(self._key(name), version):
            raise NoSuchLedger(f"no metadata of ledger {name}")
        self._changed(name)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """As `MetadataStore.ledgers`."""
        scope = check_scope(scope)
        found = map(self._ledger, self._values.keys(self._prefix(scope)))
        return sorted(name for name in found if name is not None and scope in (None, name.scope))

    def read_many(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Versioned | CorruptionError]]:
        """As `MetadataStore.read_many`."""
        for ledger in ledgers:
            name = LedgerId.of(ledger)
            try:
                yield name, self.read(name)
            except CorruptionError as error:
                yield name, error
            except NoSuchLedger:
                continue

    def next_id(self, scope: int = 0) -> LedgerId:
        """As `MetadataStore.next_id`; `InvalidArgument` when the scope is used up."""
        scope = LedgerId(scope, 0).scope
        key = f"{COUNTERS}{scope:016x}"
        while True:
            value = self._values.get(key)
            number = 0 if value is None else self._number(value, key)
            name = LedgerId(scope, number)
            while self._values.get(self._key(name)) is not None:
                name = LedgerId(scope, name.ledger + 1)
            try:
                self._values.put(key, b"%d\n" % (name.ledger + 1), value and value.version)
            except BadVersion:
                continue
            return name

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """As `MetadataStore.watch`."""
        with self._lock:
            self._watchers.append(watcher)

        def end() -> None:
            with self._lock:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

        return end

    # -- bookies and marks

    def registered_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.registered_bookies`; read-only bookies are registered too."""
        return self._bookies(AVAILABLE) if "registered" in self._tells else None

    def writable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.writable_bookies`."""
        if "registered" not in self._tells:
            return None
        return self._bookies(AVAILABLE) - self._bookies(f"{AVAILABLE}{READ_ONLY}/")

    def unavailable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.unavailable_bookies`."""
        return self._bookies(UNAVAILABLE) if "unavailable" in self._tells else None

    def register_bookie(self, bookie: str) -> None:
        """As `MetadataStore.register_bookie`."""
        self._set(_bookie_key(AVAILABLE, bookie), b"")
        self._tells.add("registered")

    def unregister_bookie(self, bookie: str) -> None:
        """As `MetadataStore.unregister_bookie`."""
        self._values.delete(_bookie_key(AVAILABLE, bookie), None)
        self._tells.add("registered")

    def set_unavailable(self, bookie: str, unavailable: bool = True) -> None:
        """As `MetadataStore.set_unavailable`."""
        key = _bookie_key(UNAVAILABLE, bookie)
        if unavailable:
            self._set(key, b"")
        else:
            self._values.delete(key, None)
        self._tells.add("unavailable")

    def underreplicated(self) -> Mapping[LedgerId, Mark] | None:
        """As `MetadataStore.underreplicated`."""
        if "underreplicated" not in self._tells:
            return None
        names = map(parse_mark_path, self._values.keys(MARKS))
        marks = {name: self.mark_of(name) for name in names if name is not None}
        return {name: mark for name, mark in marks.items() if mark is not None}

    def marked(self) -> frozenset[LedgerId] | None:
        """As `MetadataStore.marked`."""
        if "underreplicated" not in self._tells:
            return None
        names = map(parse_mark_path, self._values.keys(MARKS))
        return frozenset(name for name in names if name is not None)

    def marks_of(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Mark | CorruptionError]]:
        """As `MetadataStore.marks_of`."""
        for name in map(LedgerId.of, ledgers):
            try:
                mark = self.mark_of(name)
            except CorruptionError as error:
                yield name, error
            else:
                if mark is not None:
                    yield name, mark

    def mark_of(self, ledger: int | LedgerId) -> Mark | None:
        """As `MetadataStore.mark_of`."""
        key = mark_path(ledger)
        value = self._values.get(key) if "underreplicated" in self._tells else None
        try:
            return None if value is None else decode_mark(value.data)
        except CorruptionError as error:
            raise self._placed(error, value, key) from None

    def mark_underreplicated(self, ledger: int | LedgerId, mark: Mark) -> None:
        """As `MetadataStore.mark_underreplicated`."""
        self._set(mark_path(ledger), encode_mark(mark))
        self._tells.add("underreplicated")
        self._changed(LedgerId.of(ledger))

    def clear_mark(self, ledger: int | LedgerId) -> None:
        """As `MetadataStore.clear_mark`."""
        self._tells.add("underreplicated")
        if self._values.delete(mark_path(ledger), None):
            self._changed(LedgerId.of(ledger))

    def checked_at(self) -> float | None:
        """As `MetadataStore.checked_at`."""
        value = self._values.get(CHECKED_AT)
        return None if value is None else self._number(value, CHECKED_AT) / 1000

    def set_checked_at(self, seconds: float) -> None:
        """As `MetadataStore.set_checked_at`."""
        self._set(CHECKED_AT, b"replicasCheckCtime: %d\n" % round(seconds * 1000))

    # -- keys and values

    def _key(self, ledger: LedgerId) -> str:
        return tree_path(ledger) if self._layout == "tree" else f"/ledgers{uuid_path(ledger)}"

    def _ledger(self, key: str) -> LedgerId | None:
        name = parse_path(key if self._layout == "tree" else key.removeprefix("/ledgers"))
        return name if name is not None and self._key(name) == key else None

    def _prefix(self, scope: int | None) -> str:
        if self._layout == "keys":
            return "/ledgers/"
        return f"/S{scope:016x}/" if scope else "/"

    def _decoded(self, ledger: LedgerId, value: Value) -> LedgerMetadata:
        try:
            return decode(value.data, ledger, value.ctime)
        except CorruptionError as error:
            raise self._placed(error, value, self._key(ledger)) from None

    def _placed(self, error: CorruptionError, value: Value | None, key: str) -> CorruptionError:
        return error.within(self._values.where(key), 0 if value is None else value.base)

    def _number(self, value: Value, key: str) -> int:
        digits = value.data.rpartition(b" ")[2].removesuffix(b"\n")
        if not digits.isdigit() or len(digits) > 20:
            raise CorruptionError(self._values.where(key), value.base, "value is no number")
        return int(digits)

    def _bookies(self, folder: str) -> frozenset[str]:
        keys = (key.removeprefix(folder) for key in self._values.keys(folder))
        names = (key.removeprefix(f"{READ_ONLY}/") for key in keys)
        return frozenset(unquote(name) for name in names if name != READ_ONLY)

    def _set(self, key: str, data: bytes) -> None:
        while True:
            value = self._values.get(key)
            try:
                self._values.put(key, data, value and value.version)
            except BadVersion:
                continue
            return

    def _changed(self, ledger: LedgerId) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher(ledger)


def _bookie_key(folder: str, bookie: str) -> str:
    if not bookie or bookie.lower() == READ_ONLY:
        raise InvalidArgument(f"{bookie!r} is no bookie id")
    try:
        name = quote(bookie, safe=":@")
    except UnicodeEncodeError:
        raise InvalidArgument(f"{bookie!r} is no bookie id") from None
    # These would be other names than a file's own.
    return folder + (name.replace(".", "%2E") if name.endswith((".", ".tmp")) else name)


class MemoryStore(KeyValueStore):
    """A metadata store in memory. Not shared between processes; threads may share it.

    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> store = MemoryStore()
    >>> store.create(LedgerMetadata(store.next_id(), 1, 1, 1, [(0, ["b1"])]))
    0
    >>> store.ledgers()
    [LedgerId(scope=0, ledger=0)]
    """

    def __init__(
        self,
        layout: Layout = "tree",
        tells: frozenset[str] = frozenset({"registered", "unavailable", "underreplicated"}),
    ) -> None:
        super().__init__(MemoryValues(), layout, tells)


class DirectoryStore(KeyValueStore):
    """A metadata store kept in a directory: a file a ledger, which many processes may share.

    Changes are atomic, and durable at return unless `sync` is off. A directory that is empty
    or not there is made one, unless `read_only`. Raises `UnsupportedLayout` for a directory
    that is none or has another layout (`layout` None = whichever it has, "tree" for a new one).
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout | None = None,
        *,
        sync: bool = True,
        read_only: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        values = DirectoryValues(path, layout, sync=sync, read_only=read_only, files=files)
        super().__init__(values, "keys" if values.kind == "keys" else "tree")
        self.path = values.path

    def refuse_output(self, target: StrPath) -> None:
        """Raise `InvalidArgument` if `target` lies in the directory."""
        refuse_inputs(target, [self.path])
