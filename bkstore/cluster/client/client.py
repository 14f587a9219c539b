"""Client: creates, opens and deletes ledgers of a cluster.

It needs a metadata store and a `BookieClient` for each bookie, wherever that runs. Source:
`client/BookKeeper`, `client/LedgerCreateOp`, `client/LedgerOpenOp`, `client/LedgerDeleteOp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bkstore.arguments import data, instance, interface, optional
from bkstore.cluster.client.appends.pipelined_writer import PipelinedWriter
from bkstore.cluster.client.appends.writer import LedgerWriter
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.handle import LedgerHandle
from bkstore.cluster.client.last_add_confirmed import ConfirmedRead
from bkstore.cluster.client.open_ledger import ClientContext, ClientOptions, LedgerAccess
from bkstore.cluster.client.recovery import recover
from bkstore.cluster.client.workers import Workers
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy, check_sizes
from bkstore.cluster.store.api import MetadataStore, Versioned, check_store
from bkstore.errors import InvalidArgument, UnauthorizedAccess
from bkstore.formats.entry import NO_ENTRY
from bkstore.formats.entry.digest import digest_name
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

_check_placement = optional(interface("PlacementPolicy", "new_ensemble", "replace"))
_check_options = optional(instance(ClientOptions))


class Client:
    """One client of a cluster. Stateless but for its settings; threads may share it.

    `bookies` may be a mapping that changes; bookies that it lacks count as unreachable. With
    `workers` bookies are asked side by side and appends are pipelined. `writable` tells which
    bookies may take ledgers of a scope; else those that are registered may.
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, BookieClient],
        placement: PlacementPolicy | None = None,
        options: ClientOptions | None = None,
        *,
        workers: Workers | None = None,
        writable: Callable[[int], frozenset[str]] | None = None,
    ) -> None:
        self.context = ClientContext(
            check_store("store", store),
            bookies,
            _check_placement("placement", placement) or DefaultPlacement(),
            _check_options("options", options) or ClientOptions(),
            workers,
            writable,
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
        """Make a ledger and return the handle that writes it.

        Without `ledger` the next id of the scope's counter is taken; an int is a ledger of
        `scope`. Raises `NotEnoughBookies` if fewer than E bookies are registered, `LedgerExists`,
        `InvalidArgument` for numbers or a digest type that do not fit. No bookie is asked.
        """
        store, numbers = self.context.store, (ensemble_size, write_quorum, ack_quorum)
        check_sizes(*numbers)
        digest_type, password = digest_name(digest_type), data("password", password)
        name = _name(ledger, scope)
        bookies = self.context.writable_bookies(scope if name is None else name.scope)
        ensemble = self.context.placement.new_ensemble(*numbers, bookies)
        metadata = LedgerMetadata(
            name or store.next_id(scope),
            *numbers,
            (Segment(0, tuple(ensemble)),),
            digest_type=digest_type,
            password=password,
            custom_metadata={} if custom_metadata is None else custom_metadata,
        ).checked()
        version = store.create(metadata)
        access = LedgerAccess(self.context, Versioned(metadata, version), password)
        return LedgerHandle(access, self._writer(access))

    def _writer(self, access: LedgerAccess) -> LedgerWriter:
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

        An open ledger is recovered (`cluster.client.recovery`): its writer is fenced and can
        acknowledge nothing any more. Raises `NoSuchLedger`, `UnauthorizedAccess` for another
        password, `InvalidArgument` for another digest type than the metadata has (None =
        whichever it has), `NotEnoughBookies` if the recovery needs more answers.
        """
        access = self._opened(ledger, digest_type, password, scope)
        metadata = recover(access)
        return LedgerHandle(access, confirmed=ConfirmedRead(metadata.last_entry_id, NO_ENTRY, []))

    def open_ledger_no_recovery(
        self,
        ledger: int | LedgerId,
        digest_type: str | None = None,
        password: bytes = b"",
        *,
        scope: int = 0,
    ) -> LedgerHandle:
        """Return a handle that reads up to the LAC, and follows it by `read_last_confirmed`.

        The writer is not disturbed. Raises as `open_ledger`.
        """
        return LedgerHandle(self._opened(ledger, digest_type, password, scope))

    def delete_ledger(self, ledger: int | LedgerId, *, scope: int = 0) -> None:
        """Take the ledger out of the metadata store; `NoSuchLedger` if it is not there.

        Its bookies drop it at their next garbage collection.
        """
        self.context.store.delete(_required(ledger, scope))

    def _opened(
        self, ledger: int | LedgerId, digest_type: str | None, password: bytes, scope: int
    ) -> LedgerAccess:
        password = data("password", password)
        versioned = self.context.store.read(_required(ledger, scope))
        metadata = versioned.metadata
        has = metadata.digest_type
        if metadata.password is not None and metadata.password != password:
            raise UnauthorizedAccess(f"ledger {metadata.ledger} has another password")
        if digest_type is not None and has not in (None, digest_name(digest_type)):
            raise InvalidArgument(f"ledger {metadata.ledger} has digest {has}, not {digest_type}")
        return LedgerAccess(self.context, versioned, password, digest_type)


def _required(ledger: int | LedgerId, scope: int) -> LedgerId:
    name = _name(ledger, scope)
    if name is None:
        raise InvalidArgument("no ledger given")
    return name


def _name(ledger: int | LedgerId | None, scope: int) -> LedgerId | None:
    """Return the ledger that is meant; `InvalidArgument` where id and scope contradict."""
    if ledger is None:
        return None
    if not isinstance(ledger, LedgerId):
        return LedgerId(scope, ledger)
    if scope not in (0, ledger.scope):
        raise InvalidArgument(f"ledger {ledger!r} is not of scope {scope}")
    return ledger
