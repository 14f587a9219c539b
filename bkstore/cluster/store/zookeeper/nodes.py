"""Versioned values in znodes, one node for each key, below two folders.

BookKeeper's own keys are below the ledgers root. Keys of scopes other than 0, and keys that only
bkstore uses, are below a folder beside it, ``<root>-scopes``, which BookKeeper does not read. A
scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from bkstore.cluster.store.api import Value
from bkstore.cluster.store.zookeeper.connection import RetriedRequest, ZooKeeperConnection
from bkstore.cluster.store.zookeeper.kazoo_client import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bkstore.errors import (
    BadVersion,
    CorruptionError,
    InvalidArgument,
    MetadataUnavailable,
    UnsupportedLayout,
)

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

MAX_VALUE_BYTES = (1 << 20) - 1024
"""Maximum bytes of a value: the server rejects requests of 1 MiB (jute.maxbuffer)."""

BKSTORE_KEYS_PREFIX = "/unavailable/"
_SCOPES_SUFFIX = "-scopes"
_MARKER = "BKSTORE-SCOPES"
_MARKER_VERSION = 1
_SCOPED_KEY = re.compile(r"/(?:underreplication/(?:ledgers|locks)/)?S[0-9a-f]{16}(?:/|$)")
_FIXED_FOLDERS = ("/available", "/cookies", "/idgen", "/idgen-long", "/underreplication")


class Nodes:
    """`KeyValues` over a connection. A call is one request, or more if it creates folders."""

    def __init__(self, connection: ZooKeeperConnection, root: str) -> None:
        self.connection = connection
        self.root = root
        self.scopes_root = root + _SCOPES_SUFFIX
        self._scopes_root_is_valid = False

    def location_of(self, key: str) -> str:
        """Return the path of the key's node."""
        if key.startswith(BKSTORE_KEYS_PREFIX) or _SCOPED_KEY.match(key):
            return self.scopes_root + key
        return self.root + key

    def get(self, key: str) -> Value | None:
        """As `KeyValues.get`; the value has the node's creation time."""
        path = self._check_path(key)
        try:
            return to_value(path, *self.connection.request(path, "get"))
        except NoNodeError:
            return None

    def read(self, key: str, decode: Callable[[bytes], _T]) -> _T | None:
        """Return a key's decoded value, None if there is none; its errors have the node's path."""
        value = self.get(key)
        try:
            return None if value is None else decode(value.data)
        except CorruptionError as error:
            raise error.relocate(self.location_of(key)) from None

    def get_many(self, keys: Iterable[str]) -> Iterator[Value | None]:
        """Yield the values of keys in order, by many concurrent requests."""
        for path, answer in self.connection.request_many(map(self._check_path, keys), "get"):
            if isinstance(answer, NoNodeError):
                yield None
            elif isinstance(answer, KazooException):
                raise answer
            else:
                yield to_value(path, *answer)

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Write a value and return its version. Raises `BadVersion` unless the stored version is
        `expected` (None: there is no value), `InvalidArgument` if the value is too large for a
        request."""
        if expected is None:
            self.create(key, data)
            return 0
        path = self._check_path(key, data)
        request = RetriedRequest(self.connection, path)
        try:
            return int(request("set", data, expected).version)
        except NoNodeError:
            raise BadVersion(f"{path} is not there, version {expected} was expected") from None
        except BadVersionError:
            current = self.get(key) if request.repeated else None
            # If the connection broke after an earlier attempt, that one may have succeeded.
            if current is not None and (current.version, current.data) == (expected + 1, data):
                return current.version
            raise BadVersion(f"{path} has another version, expected {expected}") from None

    def create(self, key: str, data: bytes, *, unique: bool = True) -> None:
        """Create a node and the folders above it; raises `BadVersion` if it exists. With `unique`,
        no other client writes the same bytes: if the connection broke, so that the request was
        repeated, a node with these bytes counts as created by this call."""
        path = self._check_path(key, data)
        request = RetriedRequest(self.connection, path)
        while True:
            try:
                request("create", data)
            except NodeExistsError:
                current = self.get(key) if request.repeated and unique else None
                if current is None or (current.version, current.data) != (0, data):
                    raise BadVersion(f"{path} already exists") from None
            except NoNodeError:
                self.make_folder(path.rpartition("/")[0])
                continue
            return

    def delete(self, key: str, expected: int | None) -> bool:
        """Remove a key's node and the folders that become empty; return whether it was there.
        Raises `BadVersion` unless the node's version is `expected` (None: any)."""
        path = self._check_path(key)
        request = RetriedRequest(self.connection, path)
        try:
            request("delete", -1 if expected is None else expected)
        except NoNodeError:
            if not request.repeated:  # else an earlier attempt may have deleted it
                return False
        except BadVersionError:
            raise BadVersion(f"{path} has another version, expected {expected}") from None
        except NotEmptyError:
            raise BadVersion(f"{path} has child nodes") from None
        self._remove_empty_folders(key)
        return True

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix`, sorted: those of nodes without children, below
        the root and in the folder beside it."""
        top = prefix.rpartition("/")[0]
        self.check_scopes_root()
        keys: set[str] = set()
        for folder in (self.root, self.scopes_root):
            keys.update(self._list_leaves_below(folder, top, enter=lambda _: True))
        return sorted(key for key in keys if key.startswith(prefix))

    def list_leaves(self, top: str, enter: Callable[[str], bool]) -> Iterator[str]:
        """Yield the keys below `top` in the root that are no folders, level by level. `enter`
        returns whether a key is a folder to descend into; an empty one is yielded. Raises
        `UnsupportedLayout` if there is no root, as that is not an empty cluster."""
        return self._list_leaves_below(self.root, top, enter, must_exist=True)

    def list_scope_leaves(self, enter: Callable[[str], bool]) -> Iterator[str]:
        """Yield keys as `list_leaves` does, of the folder beside the root."""
        self.check_scopes_root()
        return self._list_leaves_below(self.scopes_root, "", enter)

    def _list_leaves_below(
        self, folder: str, top: str, enter: Callable[[str], bool], *, must_exist: bool = False
    ) -> Iterator[str]:
        """Yield the leaves below the key `top` of a folder, level by level. `enter` returns whether
        a key is a folder, to be listed in the next level; one without children is a leaf too."""
        level = [folder + top]
        while level:
            # List all folders of this level, by concurrent requests.
            child_keys: list[str] = []
            for path, answer in self.connection.request_many(level, "get_children"):
                key = path.removeprefix(folder)
                if isinstance(answer, NoNodeError):
                    if must_exist and path == self.root:
                        raise self._no_cluster_error()
                    continue
                if isinstance(answer, KazooException):
                    raise answer
                if not answer and key != top:
                    yield key
                child_keys += [f"{key}/{child}" for child in sorted(answer)]
            level = []
            for key in child_keys:
                if enter(key):
                    level.append(folder + key)
                else:
                    yield key

    # -- folders

    def make_folder(self, path: str) -> None:
        """Create a folder and those above it, with empty values, as BookKeeper does."""
        # The root, and folders above it, are made with a new cluster only.
        if path == self.root or not path.startswith((f"{self.root}/", self.scopes_root)):
            raise self._no_cluster_error()
        data = self._scopes_marker() if path == self.scopes_root else b""
        while True:
            try:
                self.connection.request(path, "create", data)
            except NodeExistsError:
                pass
            except NoNodeError:
                self.make_folder(path.rpartition("/")[0])
                continue
            return

    def _no_cluster_error(self) -> UnsupportedLayout:
        return UnsupportedLayout(f"{self.root} does not exist: has the cluster been initialized?")

    def _remove_empty_folders(self, key: str) -> None:
        """Remove empty folders above a key; stops if ZooKeeper does not answer."""
        root_path = self.location_of(key).removesuffix(key)
        folder = key.rpartition("/")[0]
        # BookKeeper's own folders, such as /underreplication/ledgers, and the root stay.
        while folder.count("/") > (2 if folder.startswith(_FIXED_FOLDERS) else 0):
            try:
                self.connection.request(root_path + folder, "delete")
            except (NotEmptyError, NoNodeError):
                return
            except MetadataUnavailable as error:
                _log.info("an empty folder was not removed: %s", error)
                return
            folder = folder.rpartition("/")[0]

    # -- the folder beside the root

    def _check_path(self, key: str, data: bytes = b"") -> str:
        """Return the key's path; raises if the data are too large, or as `check_scopes_root`."""
        if len(data) > MAX_VALUE_BYTES:
            raise InvalidArgument(
                f"{self.location_of(key)}: {len(data)} bytes, ZooKeeper accepts at most "
                f"{MAX_VALUE_BYTES}"
            )
        path = self.location_of(key)
        if path.startswith(self.scopes_root):
            self.check_scopes_root()
        return path

    def check_scopes_root(self, *, of_any_cluster: bool = False) -> None:
        """Raise `CorruptionError` if the folder beside the root exists but is no folder of scopes,
        `UnsupportedLayout` if it is another cluster's, unless that is allowed by `of_any_cluster`.
        Sends no more requests once it has been found to be this cluster's."""
        if self._scopes_root_is_valid:
            return
        try:
            data, _ = self.connection.request(self.scopes_root, "get")
        except NoNodeError:
            return
        # The three lines of `_scopes_marker` (name, version, instance id), and nothing after them.
        lines = (data or b"").split(b"\n")
        if lines[0] != _MARKER.encode() or len(lines) != 4:
            reason = f"not a folder of scopes: {(data or b'')[:40]!r}"
            raise CorruptionError(self.scopes_root, 0, reason)
        if of_any_cluster:
            return
        if data != self._scopes_marker():
            raise UnsupportedLayout(
                f"{self.scopes_root} has the scopes of another cluster, or is of another version: "
                f"{lines[1:3]!r:.80}"
            )
        self._scopes_root_is_valid = True

    def _scopes_marker(self) -> bytes:
        """Return the data of the folder of this cluster's scopes."""
        value = self.get("/INSTANCEID")
        instance = b"" if value is None else value.data
        return b"%s\n%d\n%s\n" % (_MARKER.encode(), _MARKER_VERSION, instance)


def to_value(path: str, data: bytes | None, stat: Any) -> Value:
    """Return a node's data and stat as a value; null data become empty bytes."""
    return Value(data or b"", stat.version, path, 0, stat.ctime)
