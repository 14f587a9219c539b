"""ZooKeeperStore: the metadata store of a real cluster, shared with BookKeeper's processes.

A scope is the upper half of a 128-bit ledger id; BookKeeper's own ids, of 64 bits, are scope 0.
Ledgers of scope 0, registrations, cookies and marks are BookKeeper's own nodes, byte for byte;
ledgers of other scopes are beside the root, which BookKeeper does not read. Source:
`meta/AbstractZkLedgerManager`, `discover/ZKRegistrationManager`. Page: `docs/zookeeper.md`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from bkstore.arguments import boolean, number
from bkstore.cluster.store.api import Value, ValuesOrErrors, Versioned
from bkstore.cluster.store.key_value_store import KeyValueStore
from bkstore.cluster.store.zookeeper.connection import ZooKeeperConnection
from bkstore.cluster.store.zookeeper.events import EventThread
from bkstore.cluster.store.zookeeper.id_generator import IdGenerator
from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.ledger_tree import LedgerTree, is_scope_folder
from bkstore.cluster.store.zookeeper.new_cluster import clear_cluster, create_cluster, create_layout
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.cluster.store.zookeeper.registration import Registration
from bkstore.cluster.store.zookeeper.service_uri import ServiceUri, parse_service_uri
from bkstore.cluster.store.zookeeper.underreplication import Underreplication
from bkstore.cluster.store.zookeeper.watches import (
    BookiesWatcher,
    BookieWatch,
    LedgerWatch,
    LedgerWatcher,
)
from bkstore.errors import (
    BadVersion,
    CorruptionError,
    IllegalOperation,
    LedgerExists,
    UnsupportedLayout,
)
from bkstore.formats import cookie as cookies
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.bookie_ids import READ_ONLY, check_bookie_id
from bkstore.formats.metadata.ledger_layout import decode_layout
from bkstore.formats.metadata.serialized import encode
from bkstore.formats.metadata.service_info import ServiceInfo, decode_service_info
from bkstore.formats.metadata.store_paths import tree_path
from bkstore.formats.metadata.underreplication import UnderreplicatedMark, decode_mark, mark_path
from bkstore.ids import LedgerId, check_scope
from bkstore.index.api import Closeable
from bkstore.ledger_metadata import NEWEST_VERSION, LedgerMetadata

_TIMEOUT = 30.0
SESSION_TIMEOUT_SECONDS = 10.0
_MAX_TOKEN = 2**63 - 1
_NO_ADDRESS = ServiceInfo((), {"address": "none"})
_check_seconds = number(0.0, 3600.0)


class StoredCookie(NamedTuple):
    """A bookie's cookie, and its version in the store."""

    cookie: Cookie
    version: int


class ZooKeeperStore(KeyValueStore, Closeable):
    """A `MetadataStore` in ZooKeeper, by service URI. Threads may share it; close it.

    `timeout` is how long each call waits for an answer. Registrations and locks end
    `session_timeout` seconds after the connection is lost (the server has limits of its own). If
    the cluster has no LAYOUT but a folder for registrations, opening writes it, for the URI's
    ledger manager (hierarchical by default), as every BookKeeper process does, unless `make_layout`
    is off. Raises `InvalidArgument` if the URI is not ZooKeeper's, `UnsupportedLayout` if there is
    no cluster or one with another manager, `MetadataUnavailable` without an answer,
    `UnauthorizedAccess` by access control lists, and `MissingDependency` without kazoo.

    Metadata have the node's creation time and token, which `create` writes and the next `write`
    sets to 0, as BookKeeper's clients do. Only bkstore records bookies known to be unavailable.
    """

    def __init__(
        self,
        uri: str | ServiceUri,
        *,
        timeout: float = _TIMEOUT,
        session_timeout: float = SESSION_TIMEOUT_SECONDS,
        make_layout: bool = True,
    ) -> None:
        boolean("make_layout", make_layout)
        self.uri = parse_service_uri(uri) if isinstance(uri, str) else uri
        self._connection = ZooKeeperConnection(
            self.uri.servers,
            timeout=_check_seconds("timeout", timeout),
            session_timeout=_check_seconds("session_timeout", session_timeout),
        )
        nodes = Nodes(self._connection, self.uri.root)
        super().__init__(nodes)
        self._nodes = nodes
        self._events = EventThread(f"bkstore {self.uri}")
        self._registrations: dict[str, Registration] = {}
        try:
            self._tree = self._read_ledger_tree(make_layout)
        except BaseException:
            self._connection.close()
            raise
        self.underreplication = Underreplication(nodes)
        self._generators: dict[int, IdGenerator] = {}

    @classmethod
    def format(
        cls,
        uri: str | ServiceUri,
        *,
        instance_id: str | None = None,
        force: bool = False,
        timeout: float = _TIMEOUT,
        session_timeout: float = SESSION_TIMEOUT_SECONDS,
    ) -> ZooKeeperStore:
        """Create a new cluster at a URI, with the folders above its root, and open it.

        The ledger manager is the URI's, hierarchical by default. Raises `IllegalOperation` if the
        root exists, and as opening does. With `force` an existing cluster is emptied instead, as by
        ``metaformat -force``: **all its ledgers, ids, cookies and marks are deleted**, in all
        scopes; with its new instance id bookies refuse to start with their old data.
        """
        service_uri = parse_service_uri(uri) if isinstance(uri, str) else uri
        timeouts = {"timeout": timeout, "session_timeout": session_timeout}
        connection = ZooKeeperConnection(service_uri.servers, **timeouts)
        manager = service_uri.manager or "hierarchical"
        try:
            if force and connection.request(service_uri.root, "exists") is not None:
                clear_cluster(Nodes(connection, service_uri.root), manager, instance_id)
            else:
                create_cluster(connection, service_uri.root, manager, instance_id)
        finally:
            connection.close()
        return cls(service_uri, timeout=timeout, session_timeout=session_timeout)

    def _read_ledger_tree(self, make_layout: bool) -> LedgerTree:
        """Return the ledger tree of the cluster's LAYOUT, which is written if allowed."""
        value = self._nodes.get("/LAYOUT")
        if value is None and make_layout:
            value = create_layout(self._nodes, self.uri.manager or "hierarchical")
        layout_path = self._nodes.location_of("/LAYOUT")
        if value is None:
            message = f"{layout_path} does not exist: has the cluster been initialized?"
            raise UnsupportedLayout(message)
        try:
            layout = decode_layout(value.data)
        except CorruptionError as error:
            raise error.relocate(layout_path) from None
        if layout.manager is None:
            message = f"{layout_path}: the ledger manager {layout.factory} is not supported"
            raise UnsupportedLayout(message)
        if self.uri.manager not in (None, layout.manager):
            raise UnsupportedLayout(
                f"{layout_path} has {layout.manager}, the service URI has {self.uri.manager}"
            )
        return LedgerTree(layout.manager)

    def finish_within(self, seconds: float) -> None:
        """Limit the wait of all calls for ZooKeeper to `seconds` from now, also of running ones.
        After that they raise `MetadataUnavailable`. Call it before `close`, which then does not
        wait for a stalled ZooKeeper: registrations end when the session expires. Thread-safe."""
        self._connection.finish_within(_check_seconds("seconds", seconds))

    def close(self) -> None:
        """End the session, and with it its registrations and locks."""
        for registration in list(self._registrations.values()):
            registration.forget()
        self._events.close()
        self._connection.close()

    @property
    def session(self) -> int | None:
        """The id of the session, None while there is no connection."""
        return self._connection.session

    # -- ledgers

    @property
    def manager(self) -> str:
        """The ledger manager: ``flat``, ``hierarchical`` or ``longhierarchical``."""
        return self._tree.manager

    def create(self, metadata: LedgerMetadata) -> int:
        """Add a ledger and return its version, 0; raises `LedgerExists`. Metadata of the newest
        format get a random token, unless they have one: if the connection breaks, it shows whether
        this call created the node. In older formats that cannot be known, and the call raises
        `LedgerExists`, as BookKeeper does."""
        if metadata.version >= NEWEST_VERSION and not metadata.c_token:
            metadata = replace(metadata, c_token=secrets.randbelow(_MAX_TOKEN - 1) + 1)
        key = self._key_of(metadata.ledger)
        data = encode(metadata, incomplete=True)
        try:
            self._nodes.create(key, data, unique=metadata.version >= NEWEST_VERSION)
        except BadVersion:
            raise LedgerExists(f"ledger {metadata.ledger} already exists") from None
        self._notify_watchers(metadata.ledger)
        return 0

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """As `MetadataStore.write`; sets the creation token to 0."""
        return super().write(replace(metadata, c_token=0), version)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers of a scope (None: all) in unsigned order. Sends one request for each
        folder, many concurrently. A missing ledgers root raises `UnsupportedLayout` instead of
        giving an empty list, on which garbage collection would delete all ledgers."""
        scope = check_scope(scope)
        ledger_ids: list[LedgerId | None] = []
        if scope in (None, 0):  # below the root; other scopes are in a folder beside it
            # ZooKeeper's reads may be stale: wait until this server has all earlier changes.
            self._connection.request(self._nodes.root, "sync")
            paths = self._nodes.list_leaves("", self._tree.is_folder)
            ledger_ids += map(self._tree.parse_path, paths)
        if scope != 0:
            keys = self._nodes.list_scope_leaves(partial(is_scope_folder, scope))
            ledger_ids += map(self._parse_key, keys)
        return sorted({ledger_id for ledger_id in ledger_ids if ledger_id is not None})

    def read_many(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[Versioned]:
        """Yield (ledger, metadata and version) in order, or an error for metadata that cannot be
        read; leave out ledgers that are not there. Sends many concurrent requests."""
        ledger_ids = list(map(LedgerId.of, ledgers))
        for ledger_id, value in zip(
            ledger_ids, self._nodes.get_many(map(self._key_of, ledger_ids))
        ):
            if value is None:
                continue
            try:
                yield ledger_id, Versioned(self._decode_metadata(ledger_id, value), value.version)
            except CorruptionError as error:
                yield ledger_id, error

    def next_id(self, scope: int = 0) -> LedgerId:
        """Return the next unused id of a scope, from the numbers of sequential nodes, as in
        BookKeeper. Ids in use are skipped: a client may have created them without a generator."""
        valid_scope = LedgerId(scope, 0).scope  # raises `InvalidArgument` for any other
        generator = self._id_generator_of(valid_scope)
        while True:
            ledger_id = LedgerId(valid_scope, generator.next())
            if self._nodes.get(self._key_of(ledger_id)) is None:
                return ledger_id

    def _id_generator_of(self, scope: int) -> IdGenerator:
        """Return the generator of a scope's ledger ids, the same one at each call."""
        generator = self._generators.get(scope)
        if generator is None:
            folder = f"{self._nodes.scopes_root}/S{scope:016x}" if scope else self._nodes.root
            # The flat manager has no nodes for ids above 31 bits; scopes are never flat.
            is_flat = self._tree.manager == "flat" and scope == 0
            generator = IdGenerator(self._nodes, folder, short_only=is_flat)
            self._generators[scope] = generator
        return generator

    def watch_ledger(self, ledger: int | LedgerId, callback: LedgerWatcher) -> Callable[[], None]:
        """Call `callback` with a ledger's metadata, now and after each change; None = deleted.
        Changes by all clients are seen. Calls are made one by one in a thread of the store, with
        growing versions, perhaps one for several changes. Returns a function that ends it."""
        ledger_id = LedgerId.of(ledger)

        def decode(value: Value) -> Versioned:
            return Versioned(self._decode_metadata(ledger_id, value), value.version)

        path = self._nodes.location_of(self._key_of(ledger_id))
        return LedgerWatch(self._nodes, self._events, path, decode, callback).end

    # -- bookies

    def register(self, bookie: str, info: ServiceInfo, *, read_only: bool = False) -> Registration:
        """Register a bookie, and keep it registered until the store or the result is closed, also
        when the session expires. Raises `InvalidArgument` for an id that BookKeeper's clients
        refuse, `IllegalOperation` if another session keeps it for over the session timeout."""
        current = self._registrations.get(check_bookie_id(bookie))
        if current is not None and not current.closed:
            raise IllegalOperation(f"bookie {bookie} is already registered through this store")
        registration = Registration(self._nodes, self._events, bookie, info, read_only)
        self._registrations[bookie] = registration
        return registration

    def register_bookie(self, bookie: str) -> None:
        """Register a bookie through this store, if it is not, with the address in its id; if the id
        is no address, clients list the bookie, but cannot reach it. Raises what `register`
        raises."""
        current = self._registrations.get(bookie)
        if current is None or current.closed:
            # Without data, the address of a registration is the id, if that is host:port.
            address = decode_service_info(b"", check_bookie_id(bookie)).address
            self.register(bookie, _NO_ADDRESS if address is None else ServiceInfo.at(*address))

    def unregister_bookie(self, bookie: str) -> None:
        """As `MetadataStore.unregister_bookie`; bookies of other sessions stay."""
        registration = self._registrations.pop(bookie, None)
        if registration is not None:
            registration.close()

    def registered_bookies(self) -> frozenset[str]:
        """As `MetadataStore.registered_bookies`; read-only bookies are registered too."""
        return self.writable_bookies() | self.read_only_bookies()

    def writable_bookies(self) -> frozenset[str]:
        """Return the bookies that take new ledgers."""
        return self._list_children("/available") - {READ_ONLY}

    def read_only_bookies(self) -> frozenset[str]:
        """Return the bookies that are read only."""
        return self._list_children(f"/available/{READ_ONLY}")

    def _list_children(self, key: str) -> frozenset[str]:
        try:
            return frozenset(self._connection.request(self._nodes.location_of(key), "get_children"))
        except NoNodeError:
            return frozenset()

    def unavailable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.unavailable_bookies`; None if no bookie was ever recorded."""
        return super().unavailable_bookies() or None

    def service_info(self, bookie: str) -> ServiceInfo | None:
        """Return the service info of a bookie's registration, None if it is not registered. Raises
        `CorruptionError` if it cannot be read (BookKeeper's clients then wait forever)."""
        for key in (f"/available/{bookie}", f"/available/{READ_ONLY}/{bookie}"):
            info = self._nodes.read(key, decode=lambda data: decode_service_info(data, bookie))
            if info is not None:
                return info
        return None

    def watch_bookies(self, callback: BookiesWatcher) -> Callable[[], None]:
        """Call `callback` with (writable, read only), now and at each change, in a thread of the
        store; returns a function that ends it."""
        return BookieWatch(self._nodes, self._events, callback).end

    def instance_id(self) -> str | None:
        """Return the cluster's instance id, None if it has none."""
        return self._nodes.read("/INSTANCEID", decode=lambda data: data.decode("utf-8", "replace"))

    def cookies(self) -> frozenset[str]:
        """Return all bookies that have a cookie, registered or not."""
        return self._list_children("/cookies")

    def cookie(self, bookie: str) -> StoredCookie | None:
        """Return a bookie's cookie, None if there is none; raises `CorruptionError`."""
        key = f"/cookies/{check_bookie_id(bookie)}"
        value = self._nodes.get(key)
        if value is None:
            return None
        try:
            return StoredCookie(cookies.decode(value.data), value.version)
        except CorruptionError as error:
            raise error.relocate(self._nodes.location_of(key)) from None

    def write_cookie(self, bookie: str, cookie: Cookie, version: int | None = None) -> int:
        """Write a cookie and return its version; `version` None = there must be none. Raises
        `BadVersion` if the stored version differs."""
        key = f"/cookies/{check_bookie_id(bookie)}"
        return self._nodes.put(key, cookies.encode(cookie), version)

    def delete_cookie(self, bookie: str, version: int | None = None) -> bool:
        """Remove a cookie (None = of any version); return whether it was there."""
        return self._nodes.delete(f"/cookies/{check_bookie_id(bookie)}", version)

    # -- marks

    def marks_of(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[UnderreplicatedMark]:
        """Yield (ledger, mark) of those that have one, in order, or an error for a damaged mark.
        Sends many concurrent requests."""
        ledger_ids = list(map(LedgerId.of, ledgers))
        for ledger_id, value in zip(ledger_ids, self._nodes.get_many(map(mark_path, ledger_ids))):
            if value is not None:
                try:
                    yield ledger_id, decode_mark(value.data)
                except CorruptionError as error:
                    yield ledger_id, self._relocate_error(error, value, mark_path(ledger_id))

    def mark_underreplicated(self, ledger: int | LedgerId, mark: UnderreplicatedMark) -> None:
        """As `MetadataStore.mark_underreplicated`; auditors use `underreplication.mark`."""
        self.underreplication.create_layout()
        super().mark_underreplicated(ledger, mark)

    def checked_at(self) -> float | None:
        """As `MetadataStore.checked_at`."""
        milliseconds = self.underreplication.check_time("replicascheckctime")
        return None if milliseconds < 0 else milliseconds / 1000

    def set_checked_at(self, seconds: float) -> None:
        """As `MetadataStore.set_checked_at`."""
        self.underreplication.set_check_time("replicascheckctime", round(seconds * 1000))

    # -- keys

    def _key_of(self, ledger: LedgerId) -> str:
        return tree_path(ledger) if ledger.scope else self._tree.path_of(ledger)
