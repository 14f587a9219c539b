"""Versioned values over znodes, a key a node, below two folders.

Keys of BookKeeper's own lie below the ledgers root. What has a scope other than 0, and what only
bkstore knows, lies below a folder beside it, ``<root>-scopes``: no real client looks there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bkstore.cluster.store.api import Value
from bkstore.cluster.store.zookeeper.connection import Connection, Request
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

_log = logging.getLogger(__name__)

VALUE_LIMIT = (1 << 20) - 1024
"""Bytes of a value: for a request of 1 MiB the server drops the connection (jute.maxbuffer)."""

OWN = "/unavailable/"
_BESIDE = "-scopes"
_MARKER = "BKSTORE-SCOPES"
_MARKER_VERSION = 1
_SCOPED = re.compile(r"/(?:underreplication/(?:ledgers|locks)/)?S[0-9a-f]{16}(?:/|$)")
_FIXED = ("/available", "/cookies", "/idgen", "/idgen-long", "/underreplication")


class Nodes:
    """`KeyValues` over a connection. A call is one request, more where folders are made."""

    def __init__(self, connection: Connection, root: str) -> None:
        self.connection = connection
        self.root = root
        self.beside = root + _BESIDE
        self._beside_is_ours = False

    def where(self, key: str) -> str:
        """Return the path of the key's node."""
        if key.startswith(OWN) or _SCOPED.match(key):
            return self.beside + key
        return self.root + key

    def get(self, key: str) -> Value | None:
        """As `KeyValues.get`; the value has the node's time of creation."""
        path = self._checked(key)
        try:
            return value_of(path, *self.connection.ask(path, "get"))
        except NoNodeError:
            return None

    def get_many(self, keys: Iterable[str]) -> Iterator[Value | None]:
        """Yield the values of keys in order, many requests under way."""
        for path, answer in self.connection.ask_many(map(self._checked, keys), "get"):
            if isinstance(answer, NoNodeError):
                yield None
            elif isinstance(answer, KazooException):
                raise answer
            else:
                yield value_of(path, *answer)

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """As `KeyValues.put`; `InvalidArgument` for more bytes than a request may have."""
        if expected is None:
            self.create(key, data)
            return 0
        path = self._checked(key, data)
        request = Request(self.connection, path)
        try:
            return int(request("set", data, expected).version)
        except NoNodeError:
            raise BadVersion(f"{path} is not there, version {expected} was meant") from None
        except BadVersionError:
            there = self.get(key) if request.repeated else None
            # The connection broke after an earlier try: what is there may be of that one.
            if there is not None and (there.version, there.data) == (expected + 1, data):
                return there.version
            raise BadVersion(f"{path} has another version, {expected} was meant") from None

    def create(self, key: str, data: bytes, *, unique: bool = True) -> None:
        """Make a node, and folders above it; `BadVersion` if it is there.

        After a broken connection a node with the same bytes counts as made by this call, but
        only where they are `unique`.
        """
        path = self._checked(key, data)
        request = Request(self.connection, path)
        while True:
            try:
                request("create", data)
            except NodeExistsError:
                there = self.get(key) if request.repeated and unique else None
                if there is None or (there.version, there.data) != (0, data):
                    raise BadVersion(f"{path} is there already") from None
            except NoNodeError:
                self.make_folder(path.rpartition("/")[0])
                continue
            return

    def delete(self, key: str, expected: int | None) -> bool:
        """As `KeyValues.delete`; folders that are empty then go too."""
        path = self._checked(key)
        request = Request(self.connection, path)
        try:
            request("delete", -1 if expected is None else expected)
        except NoNodeError:
            if not request.repeated:
                return False
        except BadVersionError:
            raise BadVersion(f"{path} has another version, {expected} was meant") from None
        except NotEmptyError:
            raise BadVersion(f"{path} has others below it") from None
        self._tidy(key)
        return True

    def keys(self, prefix: str) -> list[str]:
        """As `KeyValues.keys`: nodes that have none below them, in both folders."""
        top = prefix.rpartition("/")[0]
        if not self._beside_is_ours:
            self.check_beside()
        found: set[str] = set()
        for folder in (self.root, self.beside):
            found.update(self._leaves(folder, top, lambda _: True))
        return sorted(key for key in found if key.startswith(prefix))

    def leaves(self, top: str, enter: Callable[[str], bool]) -> Iterator[str]:
        """Yield the keys below `top`, below the root, that are not entered, level by level.

        `enter` is asked for each key. A folder that is empty counts as one that is not.
        `UnsupportedLayout` where the root is not there: that is not the same as nothing in it.
        """
        return self._leaves(self.root, top, enter, there=True)

    def leaves_beside(self, enter: Callable[[str], bool]) -> Iterator[str]:
        """Yield keys as `leaves`, of the folder beside the root."""
        if not self._beside_is_ours:
            self.check_beside()
        return self._leaves(self.beside, "", enter)

    def _leaves(
        self, folder: str, top: str, enter: Callable[[str], bool], *, there: bool = False
    ) -> Iterator[str]:
        level = [folder + top]
        while level:
            below: list[str] = []
            for path, answer in self.connection.ask_many(level, "get_children"):
                key = path.removeprefix(folder)
                if isinstance(answer, NoNodeError):
                    if there and path == self.root:
                        raise self._no_cluster()
                    continue
                if isinstance(answer, KazooException):
                    raise answer
                if not answer and key != top:
                    yield key
                below += [f"{key}/{name}" for name in sorted(answer)]
            level = []
            for key in below:
                if enter(key):
                    level.append(folder + key)
                else:
                    yield key

    # -- folders

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, with no value, as real clients do."""
        if path == self.root or not path.startswith((f"{self.root}/", self.beside)):
            raise self._no_cluster()
        data = self._marker() if path == self.beside else b""
        while True:
            try:
                self.connection.ask(path, "create", data)
            except NodeExistsError:
                pass
            except NoNodeError:
                self.make_folder(path.rpartition("/")[0])
                continue
            return

    def _no_cluster(self) -> UnsupportedLayout:
        return UnsupportedLayout(f"{self.root} is not there: has the cluster been initialized?")

    def _tidy(self, key: str) -> None:
        """Remove the folders above a key that are empty; what cannot be asked stays."""
        base = self.where(key).removesuffix(key)
        above = key.rpartition("/")[0]
        while above.count("/") > (2 if above.startswith(_FIXED) else 0):
            try:
                self.connection.ask(base + above, "delete")
            except (NotEmptyError, NoNodeError):
                return
            except MetadataUnavailable as error:
                _log.info("an empty folder stays: %s", error)
                return
            above = above.rpartition("/")[0]

    # -- what only bkstore knows

    def _checked(self, key: str, data: bytes = b"") -> str:
        """Return the key's path; the folder beside the root must be this cluster's."""
        if len(data) > VALUE_LIMIT:
            raise InvalidArgument(
                f"{self.where(key)}: {len(data)} bytes, ZooKeeper takes {VALUE_LIMIT}"
            )
        path = self.where(key)
        if path.startswith(self.beside) and not self._beside_is_ours:
            self.check_beside()
        return path

    def check_beside(self, *, of_any_cluster: bool = False) -> None:
        """Raise for what is no folder of scopes, or (`UnsupportedLayout`) another cluster's."""
        try:
            data, _ = self.connection.ask(self.beside, "get")
        except NoNodeError:
            return
        lines = (data or b"").split(b"\n")
        if lines[:1] != [_MARKER.encode()] or len(lines) != 4:
            raise CorruptionError(self.beside, 0, f"no folder of scopes: {(data or b'')[:40]!r}")
        if of_any_cluster:
            return
        if data != self._marker():
            raise UnsupportedLayout(
                f"{self.beside} has the scopes of another cluster, or is of another version: "
                f"{lines[1:3]!r:.80}"
            )
        self._beside_is_ours = True

    def _marker(self) -> bytes:
        value = self.get("/INSTANCEID")
        instance = b"" if value is None else value.data
        return b"%s\n%d\n%s\n" % (_MARKER.encode(), _MARKER_VERSION, instance)


def value_of(path: str, data: bytes | None, stat: Any) -> Value:
    """Return a node as a value: null is read as no bytes."""
    return Value(data or b"", stat.version, path, 0, stat.ctime)
