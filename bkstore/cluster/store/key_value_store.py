"""The metadata store: serialized ledger metadata, bookies and marks under keys.

Two layouts: "tree" (the long hierarchical paths for scope 0, bkstore's hexadecimal ones for others)
and "keys" (a ledger's UUID, as BP-35 defines it for etcd). A scope is the upper 64 bits of a
128-bit ledger id; BookKeeper's ledgers are in scope 0. Page: `docs/formats/ledgermetadata.md`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from bkstore.cluster.store.api import KeyValues, Value, ValuesOrErrors, Versioned, Watcher
from bkstore.cluster.store.directory_values import DirectoryValues
from bkstore.cluster.store.memory_values import MemoryValues
from bkstore.errors import BadVersion, CorruptionError, InvalidArgument, LedgerExists, NoSuchLedger
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.metadata.serialized import decode, encode
from bkstore.formats.metadata.store_paths import parse_path, tree_path, uuid_path
from bkstore.formats.metadata.underreplication import (
    UnderreplicatedMark,
    decode_mark,
    encode_mark,
    mark_path,
    parse_mark_path,
)
from bkstore.ids import LedgerId, check_scope
from bkstore.ledger_metadata import LedgerMetadata

Layout = Literal["tree", "keys"]

_ALL_LISTS = frozenset({"registered", "unavailable", "underreplicated"})

AVAILABLE_PREFIX = "/available/"
UNAVAILABLE_PREFIX = "/unavailable/"
MARKS_PREFIX = "/underreplication/ledgers/"
CHECKED_AT_KEY = "/underreplication/replicascheckctime"
COUNTERS_PREFIX = "/idgen/"
READ_ONLY_FOLDER = "readonly"


def uuid_ledger_id() -> LedgerId:
    """Return a new id from a random UUID: its first 64 bits are the scope, never 0.

    >>> uuid_ledger_id().scope > 0
    True
    """
    return LedgerId.from_uuid(uuid.uuid4())


class KeyValueStore:
    """A `MetadataStore` over versioned values.

    `known_lists` are the lists that the store has besides ledgers; another is None until it is
    first set. Watchers are called after each change through this object, in the same thread.
    """

    def __init__(
        self, values: KeyValues, layout: Layout = "tree", known_lists: frozenset[str] = _ALL_LISTS
    ) -> None:
        if layout not in ("tree", "keys"):
            raise InvalidArgument(f"unknown layout {layout!r}: tree or keys")
        self._values = values
        self._layout = layout
        self._known_lists = set(known_lists)
        self._watchers: list[Watcher] = []
        self._lock = threading.Lock()

    # -- ledgers

    def create(self, metadata: LedgerMetadata) -> int:
        """Add a ledger, also without digest type or password, and return its version, 0. Raises
        `LedgerExists`, and `InvalidArgument` for metadata that their format version cannot hold."""
        key = self._key_of(metadata.ledger)
        try:
            version = self._values.put(key, encode(metadata, incomplete=True), None)
        except BadVersion:
            raise LedgerExists(f"ledger {metadata.ledger} already exists") from None
        self._notify_watchers(metadata.ledger)
        return version

    def read(self, ledger: int | LedgerId) -> Versioned:
        """As `MetadataStore.read`."""
        ledger_id = LedgerId.of(ledger)
        value = self._values.get(self._key_of(ledger_id))
        if value is None:
            raise NoSuchLedger(f"no metadata of ledger {ledger_id}")
        return Versioned(self._decode_metadata(ledger_id, value), value.version)

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """Replace a ledger's metadata and return the new version. Raises `NoSuchLedger`, or
        `BadVersion` if the stored version is not `version`."""
        key = self._key_of(metadata.ledger)
        try:
            new_version = self._values.put(key, encode(metadata, incomplete=True), version)
        except BadVersion:
            if self._values.get(key) is None:
                raise NoSuchLedger(f"no metadata of ledger {metadata.ledger}") from None
            raise
        self._notify_watchers(metadata.ledger)
        return new_version

    def delete(self, ledger: int | LedgerId, version: int | None = None) -> None:
        """As `MetadataStore.delete`."""
        ledger_id = LedgerId.of(ledger)
        if not self._values.delete(self._key_of(ledger_id), version):
            raise NoSuchLedger(f"no metadata of ledger {ledger_id}")
        self._notify_watchers(ledger_id)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers of a scope (None: all), sorted; see `MetadataStore.ledgers`."""
        scope = check_scope(scope)
        ledger_ids = map(self._parse_key, self._values.keys(self._key_prefix(scope)))
        return sorted(
            ledger_id
            for ledger_id in ledger_ids
            if ledger_id is not None and scope in (None, ledger_id.scope)
        )

    def read_many(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[Versioned]:
        """Yield (ledger, metadata and version) in order, or an error for metadata that cannot be
        read; leave out ledgers that are not there."""
        for ledger in ledgers:
            ledger_id = LedgerId.of(ledger)
            try:
                yield ledger_id, self.read(ledger_id)
            except CorruptionError as error:
                yield ledger_id, error
            except NoSuchLedger:
                continue

    def next_id(self, scope: int = 0) -> LedgerId:
        """Return the next unused id of the scope's counter, a value with the number to try next.
        Never returns an id twice. Raises `InvalidArgument` when the scope is used up."""
        scope = LedgerId(scope, 0).scope
        key = f"{COUNTERS_PREFIX}{scope:016x}"
        while True:
            value = self._values.get(key)
            number = 0 if value is None else self._parse_number(value, key)
            ledger_id = LedgerId(scope, number)
            while self._values.get(self._key_of(ledger_id)) is not None:
                ledger_id = LedgerId(scope, ledger_id.ledger + 1)
            try:
                # without a value the expected version is None: it must still be absent
                self._values.put(key, b"%d\n" % (ledger_id.ledger + 1), value and value.version)
            except BadVersion:  # another client has taken an id meanwhile
                continue
            return ledger_id

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` after each change made through this object; return a call that ends it."""
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
        return self._list_bookies(AVAILABLE_PREFIX) if "registered" in self._known_lists else None

    def writable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.writable_bookies`."""
        if "registered" not in self._known_lists:
            return None
        registered = self._list_bookies(AVAILABLE_PREFIX)
        return registered - self._list_bookies(f"{AVAILABLE_PREFIX}{READ_ONLY_FOLDER}/")

    def unavailable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.unavailable_bookies`."""
        is_known = "unavailable" in self._known_lists
        return self._list_bookies(UNAVAILABLE_PREFIX) if is_known else None

    def register_bookie(self, bookie: str) -> None:
        """As `MetadataStore.register_bookie`."""
        self._overwrite(_bookie_key(AVAILABLE_PREFIX, bookie), b"")
        self._known_lists.add("registered")

    def unregister_bookie(self, bookie: str) -> None:
        """As `MetadataStore.unregister_bookie`."""
        self._values.delete(_bookie_key(AVAILABLE_PREFIX, bookie), None)
        self._known_lists.add("registered")

    def set_unavailable(self, bookie: str, unavailable: bool = True) -> None:
        """Record that a bookie is known to be unavailable, or no longer."""
        key = _bookie_key(UNAVAILABLE_PREFIX, bookie)
        if unavailable:
            self._overwrite(key, b"")
        else:
            self._values.delete(key, None)
        self._known_lists.add("unavailable")  # no longer None, even if it is empty

    def underreplicated(self) -> Mapping[LedgerId, UnderreplicatedMark] | None:
        """Return all underreplicated marks, None if the store has no list of them. Raises the error
        of a mark that cannot be read."""
        marked = self.marked()
        if marked is None:
            return None
        marks = {}
        for ledger_id, mark in self.marks_of(sorted(marked)):
            if isinstance(mark, CorruptionError):
                raise mark
            marks[ledger_id] = mark
        return marks

    def marked(self) -> frozenset[LedgerId] | None:
        """As `MetadataStore.marked`."""
        if "underreplicated" not in self._known_lists:
            return None
        ledger_ids = map(parse_mark_path, self._values.keys(MARKS_PREFIX))
        return frozenset(ledger_id for ledger_id in ledger_ids if ledger_id is not None)

    def marks_of(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[UnderreplicatedMark]:
        """Yield (ledger, underreplicated mark) in order, or an error for a mark that cannot be
        read; leave out ledgers without one."""
        for ledger_id in map(LedgerId.of, ledgers):
            try:
                mark = self.mark_of(ledger_id)
            except CorruptionError as error:
                yield ledger_id, error
            else:
                if mark is not None:
                    yield ledger_id, mark

    def mark_of(self, ledger: int | LedgerId) -> UnderreplicatedMark | None:
        """Return a ledger's underreplicated mark, None if it has none or the store has no list of
        them."""
        key = mark_path(ledger)
        value = self._values.get(key) if "underreplicated" in self._known_lists else None
        try:
            return None if value is None else decode_mark(value.data)
        except CorruptionError as error:
            raise self._relocate_error(error, value, key) from None

    def mark_underreplicated(self, ledger: int | LedgerId, mark: UnderreplicatedMark) -> None:
        """As `MetadataStore.mark_underreplicated`."""
        self._overwrite(mark_path(ledger), encode_mark(mark))
        self._known_lists.add("underreplicated")
        self._notify_watchers(LedgerId.of(ledger))

    def clear_mark(self, ledger: int | LedgerId) -> None:
        """As `MetadataStore.clear_mark`."""
        self._known_lists.add("underreplicated")
        if self._values.delete(mark_path(ledger), None):
            self._notify_watchers(LedgerId.of(ledger))

    def checked_at(self) -> float | None:
        """As `MetadataStore.checked_at`."""
        value = self._values.get(CHECKED_AT_KEY)
        return None if value is None else self._parse_number(value, CHECKED_AT_KEY) / 1000

    def set_checked_at(self, seconds: float) -> None:
        """As `MetadataStore.set_checked_at`."""
        self._overwrite(CHECKED_AT_KEY, b"replicasCheckCtime: %d\n" % round(seconds * 1000))

    # -- keys and values

    def _key_of(self, ledger: LedgerId) -> str:
        return tree_path(ledger) if self._layout == "tree" else f"/ledgers{uuid_path(ledger)}"

    def _parse_key(self, key: str) -> LedgerId | None:
        ledger_id = parse_path(key if self._layout == "tree" else key.removeprefix("/ledgers"))
        return ledger_id if ledger_id is not None and self._key_of(ledger_id) == key else None

    def _key_prefix(self, scope: int | None) -> str:
        if self._layout == "keys":
            return "/ledgers/"
        return f"/S{scope:016x}/" if scope else "/"

    def _decode_metadata(self, ledger: LedgerId, value: Value) -> LedgerMetadata:
        """Decode a ledger's metadata; errors name its place in the store."""
        try:
            return decode(value.data, ledger, value.ctime)
        except CorruptionError as error:
            raise self._relocate_error(error, value, self._key_of(ledger)) from None

    def _relocate_error(
        self, error: CorruptionError, value: Value | None, key: str
    ) -> CorruptionError:
        """Return the error with the place of the value in the store instead of in its bytes."""
        data_offset = 0 if value is None else value.data_offset
        return error.relocate(self._values.location_of(key), data_offset)

    def _parse_number(self, value: Value, key: str) -> int:
        """Return the decimal number that a value ends with, after a space if there is other text;
        raises `CorruptionError` if there is none, or a longer one than any 64-bit number."""
        digits = value.data.rpartition(b" ")[2].removesuffix(b"\n")
        if not digits.isdigit() or len(digits) > 20:
            reason = "value is not a number"
            raise CorruptionError(self._values.location_of(key), value.data_offset, reason)
        return int(digits)

    def _list_bookies(self, folder: str) -> frozenset[str]:
        keys = (key.removeprefix(folder) for key in self._values.keys(folder))
        bookies = (key.removeprefix(f"{READ_ONLY_FOLDER}/") for key in keys)
        return frozenset(unquote(bookie) for bookie in bookies if bookie != READ_ONLY_FOLDER)

    def _overwrite(self, key: str, data: bytes) -> None:
        """Write a value whatever the key holds: put it over the present version (None: absent), and
        again if another client has changed that meanwhile."""
        while True:
            value = self._values.get(key)
            try:
                self._values.put(key, data, value and value.version)
            except BadVersion:
                continue
            return

    def _notify_watchers(self, ledger: LedgerId) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher(ledger)


def _bookie_key(folder: str, bookie: str) -> str:
    """Return the key of a bookie in a folder: its id, quoted so that it can be a file name. Raises
    `InvalidArgument` for an id that no bookie can have."""
    if not bookie or bookie.lower() == READ_ONLY_FOLDER:
        raise InvalidArgument(f"{bookie!r} is not a bookie id")
    try:
        quoted = quote(bookie, safe=":@")
    except UnicodeEncodeError:
        raise InvalidArgument(f"{bookie!r} is not a bookie id") from None
    # As file names these would be "." and "..", or a temporary file's.
    return folder + (quoted.replace(".", "%2E") if quoted.endswith((".", ".tmp")) else quoted)


class MemoryStore(KeyValueStore):
    """A metadata store in memory. Not shared between processes; threads may share it.

    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> store = MemoryStore()
    >>> store.create(LedgerMetadata(store.next_id(), 1, 1, 1, [(0, ["b1"])]))
    0
    >>> store.ledgers()
    [LedgerId(scope=0, ledger=0)]
    """

    def __init__(self, layout: Layout = "tree", known_lists: frozenset[str] = _ALL_LISTS) -> None:
        super().__init__(MemoryValues(), layout, known_lists)


class DirectoryStore(KeyValueStore):
    """A metadata store in a directory, with a file for each ledger; processes may share it.

    Changes are atomic, and durable at return if `sync`. An empty or missing directory becomes a new
    store, unless `read_only`. Raises `UnsupportedLayout` if the directory is no store or has
    another layout (`layout` None = any, "tree" for a new one).
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
        super().__init__(values, layout="keys" if values.layout == "keys" else "tree")
        self.path = values.path

    def refuse_output(self, target: StrPath) -> None:
        """Raise `InvalidArgument` if `target` lies in the directory."""
        refuse_inputs(target, [self.path])
