"""ZooKeeperStore: the metadata store of a real cluster, shared with real BookKeeper processes.

Ledgers of scope 0, registrations, cookies and marks are BookKeeper's own nodes, byte for byte;
ledgers of other scopes lie beside the root, where no real client looks. Source:
`meta/AbstractZkLedgerManager`, `discover/ZKRegistrationManager`. Page: `docs/zookeeper.md`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import NamedTuple

from bkstore.arguments import number, truth
from bkstore.cluster.store.api import Value, Versioned
from bkstore.cluster.store.key_value_store import KeyValueStore
from bkstore.cluster.store.zookeeper.connection import Connection
from bkstore.cluster.store.zookeeper.events import Events
from bkstore.cluster.store.zookeeper.formatting import add_layout, empty_cluster, make_cluster
from bkstore.cluster.store.zookeeper.id_generator import IdGenerator
from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.ledger_tree import LedgerTree, is_scope_folder
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
from bkstore.formats.metadata.ledger_layout import decode_layout
from bkstore.formats.metadata.serialized import Mark, decode_mark, encode
from bkstore.formats.metadata.service_info import (
    READ_ONLY,
    ServiceInfo,
    check_bookie_id,
    decode_service_info,
)
from bkstore.formats.metadata.store_paths import mark_path, tree_path
from bkstore.ids import LedgerId, check_scope
from bkstore.ledger_metadata import NEWEST_VERSION, LedgerMetadata

_TIMEOUT = 30.0
SESSION_TIMEOUT = 10.0
_END_OF_TOKENS = 2**63 - 1
_NO_ADDRESS = ServiceInfo((), {"address": "none"})
_TELLS = frozenset({"registered", "unavailable", "underreplicated"})
_seconds = number(0.0, 3600.0)


class StoredCookie(NamedTuple):
    """A bookie's cookie, and its version in the store."""

    cookie: Cookie
    version: int


class ZooKeeperStore(KeyValueStore):
    """A `MetadataStore` in ZooKeeper, by service URI. Threads may share it; close it.

    `timeout` is how long each call waits for an answer, `session_timeout` after how many seconds
    without a sign of life registrations and locks go (the server has limits of its own). Opening
    writes LAYOUT, for the URI's ledger manager (hierarchical where it names none), if the cluster
    has none but has a folder for registrations: so does whatever process of BookKeeper comes
    first. Without `make_layout` it writes nothing. Raises `InvalidArgument` for what is no URI of
    ZooKeeper, `UnsupportedLayout` where there is no cluster or one with another ledger manager,
    `MetadataUnavailable` where nobody answers, `UnauthorizedAccess` for what an access list
    forbids, and `MissingDependency` without kazoo.

    Metadata are told with the node's time of creation and token, which `create` writes and the
    next `write` sets to 0, as real clients do. Bookies known to be unavailable are bkstore's own.
    """

    def __init__(
        self,
        uri: str | ServiceUri,
        *,
        timeout: float = _TIMEOUT,
        session_timeout: float = SESSION_TIMEOUT,
        make_layout: bool = True,
    ) -> None:
        truth("make_layout", make_layout)
        self.uri = parse_service_uri(uri) if isinstance(uri, str) else uri
        self._connection = Connection(
            self.uri.servers,
            timeout=_seconds("timeout", timeout),
            session_timeout=_seconds("session_timeout", session_timeout),
        )
        nodes = Nodes(self._connection, self.uri.root)
        super().__init__(nodes, tells=_TELLS)
        self._nodes = nodes
        self._events = Events(f"bkstore {self.uri}")
        self._registrations: dict[str, Registration] = {}
        try:
            self._tree = self._found_tree(make_layout)
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
        session_timeout: float = SESSION_TIMEOUT,
    ) -> ZooKeeperStore:
        """Make a new cluster at a URI and open it; the folders above its root are made too.

        The ledger manager is the URI's, hierarchical where it names none. Raises
        `IllegalOperation` if the root is there already, and as opening does. With `force` a
        cluster that is there is emptied instead, as by ``metaformat -force``: **all its ledgers,
        ids, cookies and marks go**, those of all scopes, and its instance id, so that its
        bookies refuse to start with what they have.
        """
        where = parse_service_uri(uri) if isinstance(uri, str) else uri
        connection = Connection(where.servers, timeout=timeout, session_timeout=session_timeout)
        manager = where.manager or "hierarchical"
        try:
            if force and connection.ask(where.root, "exists") is not None:
                empty_cluster(Nodes(connection, where.root), manager, instance_id)
            else:
                make_cluster(connection, where.root, manager, instance_id)
        finally:
            connection.close()
        return cls(where, timeout=timeout, session_timeout=session_timeout)

    def _found_tree(self, make_layout: bool) -> LedgerTree:
        value = self._nodes.get("/LAYOUT")
        if value is None and make_layout:
            value = add_layout(self._nodes, self.uri.manager or "hierarchical")
        place = self._nodes.where("/LAYOUT")
        if value is None:
            raise UnsupportedLayout(f"{place} is not there: has the cluster been initialized?")
        try:
            layout = decode_layout(value.data)
        except CorruptionError as error:
            raise error.within(place) from None
        if layout.manager is None:
            raise UnsupportedLayout(
                f"{place}: the ledger manager {layout.factory} is not supported"
            )
        if self.uri.manager not in (None, layout.manager):
            raise UnsupportedLayout(
                f"{place} says {layout.manager}, the service URI says {self.uri.manager}"
            )
        return LedgerTree(layout.manager)

    def finish_within(self, seconds: float) -> None:
        """Let no call wait for ZooKeeper longer than so many seconds from now, those that are
        under way included: then they raise `MetadataUnavailable`. For who is about to `close`,
        which does not wait for a ZooKeeper that is stalled then: what was registered goes when
        the session expires. Threads: any.
        """
        self._connection.finish_within(_seconds("seconds", seconds))

    def close(self) -> None:
        """End the session; registrations and locks made through it go at once."""
        for registration in list(self._registrations.values()):
            registration.forget()
        self._events.close()
        self._connection.close()

    def __enter__(self) -> ZooKeeperStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
        """As `MetadataStore.create`; format 3 gets a random token, unless it has one.

        After a broken connection the token tells whether this call made the node. The older
        formats have none: then it is `LedgerExists`, as for a real client.
        """
        if metadata.version >= NEWEST_VERSION and not metadata.c_token:
            metadata = replace(metadata, c_token=secrets.randbelow(_END_OF_TOKENS - 1) + 1)
        key = self._key(metadata.ledger)
        data = encode(metadata, incomplete=True)
        try:
            self._nodes.create(key, data, unique=metadata.version >= NEWEST_VERSION)
        except BadVersion:
            raise LedgerExists(f"ledger {metadata.ledger} exists already") from None
        self._changed(metadata.ledger)
        return 0

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """As `MetadataStore.write`; the token of creation is not kept."""
        return super().write(replace(metadata, c_token=0), version)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """As `MetadataStore.ledgers`; a request a folder, many under way.

        `UnsupportedLayout` where the ledgers root is gone: garbage collection takes what is not
        listed for deleted.
        """
        scope = check_scope(scope)
        found: list[LedgerId | None] = []
        if scope in (None, 0):
            self._connection.ask(self._nodes.root, "sync")
            found += map(self._tree.ledger, self._nodes.leaves("", self._tree.is_folder))
        if scope != 0:
            found += map(self._ledger, self._nodes.leaves_beside(partial(is_scope_folder, scope)))
        return sorted({name for name in found if name is not None})

    def read_many(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Versioned | CorruptionError]]:
        """As `MetadataStore.read_many`, with many requests under way."""
        names = list(map(LedgerId.of, ledgers))
        for name, value in zip(names, self._nodes.get_many(map(self._key, names))):
            if value is None:
                continue
            try:
                yield name, Versioned(self._decoded(name, value), value.version)
            except CorruptionError as error:
                yield name, error

    def next_id(self, scope: int = 0) -> LedgerId:
        """As `MetadataStore.next_id`: from the numbers of sequential nodes, as upstream."""
        name = LedgerId(scope, 0)
        generator = self._generators.get(name.scope)
        if generator is None:
            flat = self._tree.manager == "flat" and name.scope == 0
            folder = self._nodes.root
            if name.scope:
                folder = f"{self._nodes.beside}/S{name.scope:016x}"
            generator = IdGenerator(self._nodes, folder, short_only=flat)
            self._generators[name.scope] = generator
        while True:
            name = LedgerId(scope, generator.next())
            if self._nodes.get(self._key(name)) is None:
                return name

    def watch_ledger(self, ledger: int | LedgerId, tell: LedgerWatcher) -> Callable[[], None]:
        """Have `tell` called with a ledger's metadata, now and when it is newer; None = deleted.

        Whoever changed it. Calls come on a thread of the store's, in turn, and versions only
        grow; several changes may be told as one. Call what is returned to end it.
        """
        name = LedgerId.of(ledger)

        def decoded(value: Value) -> Versioned:
            return Versioned(self._decoded(name, value), value.version)

        path = self._nodes.where(self._key(name))
        return LedgerWatch(self._nodes, self._events, path, decoded, tell).end

    # -- bookies

    def register(self, bookie: str, info: ServiceInfo, *, read_only: bool = False) -> Registration:
        """Register a bookie, and keep it registered until the store or the result is closed.

        A session that expires is made anew, and the bookie is registered again. Raises
        `InvalidArgument` for an id that real clients refuse, and `IllegalOperation` if another
        session keeps it registered for longer than the session timeout.
        """
        there = self._registrations.get(check_bookie_id(bookie))
        if there is not None and not there.closed:
            raise IllegalOperation(f"bookie {bookie} is registered through this store already")
        made = Registration(self._nodes, self._events, bookie, info, read_only)
        self._registrations[bookie] = made
        return made

    def register_bookie(self, bookie: str) -> None:
        """As `MetadataStore.register_bookie`, with the address that the id tells.

        Where it tells none the registration has no address: real clients list the bookie, and
        cannot reach it. Raises as `register`.
        """
        there = self._registrations.get(bookie)
        if there is None or there.closed:
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
        return self._names("/available") - {READ_ONLY}

    def read_only_bookies(self) -> frozenset[str]:
        """Return the bookies that are read only."""
        return self._names(f"/available/{READ_ONLY}")

    def _names(self, key: str) -> frozenset[str]:
        try:
            return frozenset(self._connection.ask(self._nodes.where(key), "get_children"))
        except NoNodeError:
            return frozenset()

    def unavailable_bookies(self) -> frozenset[str] | None:
        """As `MetadataStore.unavailable_bookies`; None where none was ever said to be."""
        return super().unavailable_bookies() or None

    def service_info(self, bookie: str) -> ServiceInfo | None:
        """Return what a bookie's registration says, None if it is not registered.

        `CorruptionError` if it cannot be read: real clients wait for ever there.
        """
        for key in (f"/available/{bookie}", f"/available/{READ_ONLY}/{bookie}"):
            value = self._nodes.get(key)
            if value is not None:
                try:
                    return decode_service_info(value.data, bookie)
                except CorruptionError as error:
                    raise error.within(self._nodes.where(key)) from None
        return None

    def watch_bookies(self, tell: BookiesWatcher) -> Callable[[], None]:
        """Have `tell` called with (writable, read only), now and when either changes.

        Calls come on a thread of the store's. Call what is returned to end it.
        """
        return BookieWatch(self._nodes, self._events, tell).end

    def instance_id(self) -> str | None:
        """Return the cluster's instance id, None where it has none."""
        value = self._nodes.get("/INSTANCEID")
        return None if value is None else value.data.decode("utf-8", "replace")

    def cookies(self) -> frozenset[str]:
        """Return all bookies that ever had a cookie, those that are gone too."""
        return self._names("/cookies")

    def cookie(self, bookie: str) -> StoredCookie | None:
        """Return a bookie's cookie, None if there is none; `CorruptionError` as its decoder."""
        key = f"/cookies/{check_bookie_id(bookie)}"
        value = self._nodes.get(key)
        try:
            return (
                None if value is None else StoredCookie(cookies.decode(value.data), value.version)
            )
        except CorruptionError as error:
            raise error.within(self._nodes.where(key)) from None

    def write_cookie(self, bookie: str, made: Cookie, version: int | None = None) -> int:
        """Write a cookie and return its version; `version` None = there must be none.

        `BadVersion` if there is another one than that.
        """
        key = f"/cookies/{check_bookie_id(bookie)}"
        return self._nodes.put(key, cookies.encode(made), version)

    def delete_cookie(self, bookie: str, version: int | None = None) -> bool:
        """Remove a cookie (None = of any version); return whether it was there."""
        return self._nodes.delete(f"/cookies/{check_bookie_id(bookie)}", version)

    # -- marks

    def underreplicated(self) -> Mapping[LedgerId, Mark]:
        """As `MetadataStore.underreplicated`, with many requests under way."""
        found = {}
        for name, mark in self.marks_of(sorted(self.marked() or ())):
            if isinstance(mark, CorruptionError):
                raise mark
            found[name] = mark
        return found

    def marks_of(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Mark | CorruptionError]]:
        """As `MetadataStore.marks_of`, with many requests under way."""
        names = list(map(LedgerId.of, ledgers))
        for name, value in zip(names, self._nodes.get_many(map(mark_path, names))):
            if value is not None:
                try:
                    yield name, decode_mark(value.data)
                except CorruptionError as error:
                    yield name, self._placed(error, value, mark_path(name))

    def mark_underreplicated(self, ledger: int | LedgerId, mark: Mark) -> None:
        """As `MetadataStore.mark_underreplicated`; auditors add to marks by `underreplication`."""
        self.underreplication.prepare()
        super().mark_underreplicated(ledger, mark)

    def checked_at(self) -> float | None:
        """As `MetadataStore.checked_at`."""
        found = self.underreplication.check_time("replicascheckctime")
        return None if found < 0 else found / 1000

    def set_checked_at(self, seconds: float) -> None:
        """As `MetadataStore.set_checked_at`."""
        self.underreplication.set_check_time("replicascheckctime", round(seconds * 1000))

    # -- keys

    def _key(self, ledger: LedgerId) -> str:
        return tree_path(ledger) if ledger.scope else self._tree.path(ledger)
