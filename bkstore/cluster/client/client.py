"""Client: creates, opens and deletes ledgers of a cluster.

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0. Source:
`client/BookKeeper`; `LedgerCreateOp`, `LedgerOpenOp` and `LedgerDeleteOp` beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bkstore.arguments import bytes_like, instance, interface, optional
from bkstore.cluster.client.appends.pipelined_writer import PipelinedWriter
from bkstore.cluster.client.appends.writer import LedgerWriter
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.last_add_confirmed import LacRead
from bkstore.cluster.client.ledger_access import ClientContext, LedgerAccess
from bkstore.cluster.client.ledger_handle import LedgerHandle
from bkstore.cluster.client.options import ClientOptions
from bkstore.cluster.client.recovery import recover_ledger
from bkstore.cluster.client.workers import Workers
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy, check_quorum_sizes
from bkstore.cluster.store.api import MetadataStore, Versioned, check_store
from bkstore.errors import InvalidArgument, UnauthorizedAccess
from bkstore.formats.entry import NO_ENTRY
from bkstore.formats.entry.digest import digest_name
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

_check_placement = optional(interface("PlacementPolicy", "new_ensemble", "replace"))
_check_options = optional(instance(ClientOptions))


class Client:
    """One client of a cluster. It has no state but its settings; threads may share it.

    `bookies` has a `BookieClient` for each bookie and may change; one that is not in it counts as
    unreachable. With `workers` requests to several bookies are concurrent, and appends pipelined.
    `list_writable` returns the bookies that may take ledgers of a scope (default: registered ones).
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, BookieClient],
        placement: PlacementPolicy | None = None,
        options: ClientOptions | None = None,
        *,
        workers: Workers | None = None,
        list_writable: Callable[[int], frozenset[str]] | None = None,
    ) -> None:
        self.context = ClientContext(
            check_store("store", store),
            bookies,
            _check_placement("placement", placement) or DefaultPlacement(),
            _check_options("options", options) or ClientOptions(),
            workers,
            list_writable,
        )

    def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        *,
        digest_type: str = "CRC32C",
        password: bytes = b"",
        scope: int = 0,
        ledger: int | LedgerId | None = None,
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> LedgerHandle:
        """Create a ledger and return the handle that writes it; sends nothing to bookies.

        Without `ledger` it gets the next id of the scope's counter; an int is a ledger id in
        `scope`. Raises `NotEnoughBookies` if fewer than E bookies are registered, `LedgerExists`,
        or `InvalidArgument` for quorum sizes or a digest type that are not valid.
        """
        # Refuse bad arguments before an id is taken from the counter.
        store, quorum_sizes = self.context.store, (ensemble_size, write_quorum, ack_quorum)
        check_quorum_sizes(*quorum_sizes)
        digest_type, password = digest_name(digest_type), bytes_like("password", password)
        ledger_id = _ledger_id(ledger, scope)
        bookies = self.context.writable_bookies(scope if ledger_id is None else ledger_id.scope)
        ensemble = self.context.placement.new_ensemble(*quorum_sizes, bookies)
        metadata = LedgerMetadata(
            ledger_id or store.next_id(scope),
            *quorum_sizes,
            (Segment(0, tuple(ensemble)),),
            digest_type=digest_type,
            password=password,
            custom_metadata={} if custom_metadata is None else custom_metadata,
        ).validate()
        version = store.create(metadata)
        access = LedgerAccess(self.context, Versioned(metadata, version), password)
        return LedgerHandle(access, self._new_writer(access))

    def _new_writer(self, access: LedgerAccess) -> LedgerWriter:
        workers = self.context.workers
        return LedgerWriter(access) if workers is None else PipelinedWriter(access, workers)

    def open_ledger(
        self,
        ledger: int | LedgerId,
        digest_type: str | None = None,
        password: bytes = b"",
        *,
        scope: int = 0,
    ) -> LedgerHandle:
        """Close the ledger, whoever writes it, and return a handle that reads it.

        An open ledger is recovered (`cluster.client.recovery`): its writer is fenced, and no append
        of it succeeds any more. Raises `NoSuchLedger`, `UnauthorizedAccess` for another password,
        `InvalidArgument` if the metadata have another digest type (None accepts any),
        `NotEnoughBookies` if too few bookies answer for a recovery.
        """
        access = self._open_access(ledger, digest_type, password, scope)
        metadata = recover_ledger(access)
        return LedgerHandle(access, lac_read=LacRead(metadata.last_entry_id, NO_ENTRY, []))

    def open_ledger_no_recovery(
        self,
        ledger: int | LedgerId,
        digest_type: str | None = None,
        password: bytes = b"",
        *,
        scope: int = 0,
    ) -> LedgerHandle:
        """Return a handle that reads up to the LAC; `read_last_confirmed` advances it. The writer
        is not affected. Raises as `open_ledger`."""
        return LedgerHandle(self._open_access(ledger, digest_type, password, scope))

    def delete_ledger(self, ledger: int | LedgerId, *, scope: int = 0) -> None:
        """Delete the ledger from the metadata store; raises `NoSuchLedger` if it is not there. Its
        bookies delete their entries at their next garbage collection."""
        self.context.store.delete(_require_ledger_id(ledger, scope))

    def _open_access(
        self, ledger: int | LedgerId, digest_type: str | None, password: bytes, scope: int
    ) -> LedgerAccess:
        """Return access to a ledger; raises for another password or digest type than its metadata
        have."""
        password = bytes_like("password", password)
        versioned = self.context.store.read(_require_ledger_id(ledger, scope))
        metadata = versioned.metadata
        stored_digest_type = metadata.digest_type
        if metadata.password is not None and metadata.password != password:
            raise UnauthorizedAccess(f"ledger {metadata.ledger} has another password")
        if digest_type is not None and stored_digest_type not in (None, digest_name(digest_type)):
            message = f"ledger {metadata.ledger} has digest {stored_digest_type}, not {digest_type}"
            raise InvalidArgument(message)
        return LedgerAccess(self.context, versioned, password, digest_type)


def _require_ledger_id(ledger: int | LedgerId, scope: int) -> LedgerId:
    ledger_id = _ledger_id(ledger, scope)
    if ledger_id is None:
        raise InvalidArgument("no ledger given")
    return ledger_id


def _ledger_id(ledger: int | LedgerId | None, scope: int) -> LedgerId | None:
    """Return the 128-bit id of an id in a scope, None for None. Raises `InvalidArgument` if the id
    has another scope already; the default scope 0 contradicts none."""
    if ledger is None:
        return None
    if not isinstance(ledger, LedgerId):
        return LedgerId(scope, ledger)
    if scope not in (0, ledger.scope):
        raise InvalidArgument(f"ledger {ledger!r} is not of scope {scope}")
    return ledger
