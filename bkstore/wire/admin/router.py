"""Routes: the endpoint of each path, and the answers to errors.

A wrong method is 404 with a line of text, or 405 or 403 where BookKeeper has that. Methods that
write need the bearer token. Every error is one line with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain

from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DataUnknown,
    IllegalOperation,
    InvalidArgument,
    MetadataUnavailable,
    NoSuchEntry,
    NoSuchLedger,
    ReadOnlyError,
    TooManyRequests,
)
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin.access_control import check_bearer
from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.admin.disk_endpoints import DiskEndpoints
from bkstore.wire.admin.entry_endpoints import EntryEndpoints
from bkstore.wire.admin.garbage_endpoints import BackgroundJobs, GarbageEndpoints
from bkstore.wire.admin.ledger_endpoints import LedgerEndpoints
from bkstore.wire.admin.messages import (
    TEXT_TYPE,
    HttpError,
    HttpRequest,
    HttpResponse,
    coalesce_chunks,
    one_line,
)
from bkstore.wire.admin.operator_endpoints.autorecovery import AutorecoveryEndpoints
from bkstore.wire.admin.operator_endpoints.bookies import BookieEndpoints
from bkstore.wire.admin.operator_endpoints.decommissions import Decommissions
from bkstore.wire.admin.operator_endpoints.health import HealthEndpoints
from bkstore.wire.admin.operator_endpoints.host_callbacks import Controls
from bkstore.wire.admin.operator_endpoints.settings import SettingsEndpoints
from bkstore.wire.admin.query_parameters import LEDGER_PARAMETER, SCOPE_PARAMETER

LOG = logging.getLogger("bkstore.wire.admin")

Endpoint = Callable[[HttpRequest], HttpResponse]

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATUSES: tuple[tuple[type[BkstoreError], int], ...] = (
    (CorruptionError, 500),
    (NoSuchLedger, 404),
    (NoSuchEntry, 404),
    (InvalidArgument, 400),
    (ReadOnlyError, 503),
    (IllegalOperation, 503),
    (TooManyRequests, 503),
    (DataUnknown, 503),
    (MetadataUnavailable, 503),
)


class WaitReason(Enum):
    """What an answer may have to wait for. Each has its own threads, so none delays another."""

    NOTHING = "nothing"
    DISK = "the disk"
    METADATA = "the metadata store"


@dataclass(frozen=True)
class _Route:
    """The endpoints of a path by method."""

    methods: Mapping[str, Endpoint]
    parameters: frozenset[str] | None = frozenset()
    """The names of the query parameters it may have; None: any."""

    wrong_method: int = 404
    """The status of an answer to another method."""

    writes: bool = True
    """Whether methods other than GET change something."""

    wait_reason: WaitReason = WaitReason.DISK


class Router:
    """Answers requests; never raises. Thread-safe."""

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore | None,
        collector: BackgroundCollector,
        token: str | None,
        counters: OperationCounters,
        background_jobs: BackgroundJobs,
        compat: bool,
        controls: Controls,
        decommissions: Decommissions,
    ) -> None:
        """Make the routes: a path and a method for each endpoint."""
        self._token = token
        self._counters = counters
        self._routes = {"/heartbeat": _heartbeat_route(), "/metrics": self._metrics_route()}
        self._routes |= _ledger_routes(bookie, metadata, compat)
        self._routes |= _bookie_routes(collector, background_jobs, DiskEndpoints(bookie, compat))
        self._routes |= _health_routes(bookie, controls)
        self._routes |= _cluster_routes(metadata, controls, decommissions)

    def wait_reason(self, request: HttpRequest) -> WaitReason:
        """Return what the answer to a request may have to wait for."""
        route = self._routes.get(request.path)
        return WaitReason.NOTHING if route is None else route.wait_reason

    def answer(self, request: HttpRequest, authorization: str | None = None) -> HttpResponse:
        """Return the answer to a request with this `Authorization` header, and count it."""
        answer = self._answer_or_error(request, authorization)
        path = request.path if request.path in self._routes else "other"
        self._counters.count_admin_request(path, answer.status)
        return answer

    def _answer_or_error(self, request: HttpRequest, authorization: str | None) -> HttpResponse:
        """Return the endpoint's response, or an error response by the kind of the exception."""
        try:
            endpoint = self._find_endpoint(request, authorization)
            return _with_first_chunks(endpoint(request))
        except HttpError as refused:
            headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
            return HttpResponse.error_text(refused.status, str(refused), headers)
        except BkstoreError as error:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
            return HttpResponse.error_text(status, str(error))
        except OSError as error:
            file_prefix = f"{error.filename}: " if error.filename else ""
            return HttpResponse.error_text(500, f"{file_prefix}{error.strerror or error}")
        except Exception as error:
            LOG.exception("%s %s", request.method, one_line(request.path))
            defect = type(error).__name__
            return HttpResponse.error_text(500, f"this is a defect of bkstore: {defect}")

    def _find_endpoint(self, request: HttpRequest, authorization: str | None) -> Endpoint:
        """Return the endpoint of a request. Raises `HttpError` if it is not allowed or unknown."""
        route = self._routes.get(request.path)
        if route is None:
            raise HttpError(404, f"no such path: {request.path}")
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = route.methods.get(method)
        if endpoint is None:
            allowed = " or ".join(sorted(route.methods))
            raise HttpError(route.wrong_method, f"{method} is not allowed here: use {allowed}")
        if method != "GET" and route.writes:
            check_bearer(authorization, self._token)
        unknown = () if route.parameters is None else {*request.parameters} - route.parameters
        for name in sorted(unknown):
            known = ", ".join(sorted(route.parameters or ())) or "it has none"
            raise HttpError(400, f"unknown parameter {name[:60]!r} (known: {known})")
        return endpoint

    def _metrics_route(self) -> _Route:
        def scrape(_request: HttpRequest) -> HttpResponse:
            return HttpResponse(200, self._counters.exposition(), _METRICS_TYPE)

        # any parameters; another method is 403, as in BookKeeper
        return _Route({"GET": scrape}, None, 403, wait_reason=WaitReason.NOTHING)


def _with_first_chunks(answer: HttpResponse) -> HttpResponse:
    """Return an answer with its first two chunks computed: an error in them still sets the status,
    while a later one can only end the connection."""
    if isinstance(answer.body, bytes):
        return answer
    chunks = coalesce_chunks(answer.body)
    first, second = next(chunks, b""), next(chunks, None)
    if second is None:  # the body is complete
        return replace(answer, body=first)
    return replace(answer, body=chain((first, second), chunks))


def _heartbeat_route() -> _Route:
    def beat(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"OK\n", TEXT_TYPE)

    methods = dict.fromkeys(("GET", "PUT", "POST", "DELETE"), beat)
    return _Route(methods, None, writes=False, wait_reason=WaitReason.NOTHING)


def _ledger_routes(bookie: Bookie, store: MetadataStore | None, compat: bool) -> dict[str, _Route]:
    """Return the routes below /api/v1/ledger. Without a metadata store they read the disk."""
    ledgers, entries = LedgerEndpoints(bookie, store, compat), EntryEndpoints(bookie, store)
    ledger_parameters = frozenset({LEDGER_PARAMETER, SCOPE_PARAMETER})
    list_parameters = frozenset({SCOPE_PARAMETER, "print_metadata", "decode_meta", "page"})
    read_parameters = ledger_parameters | {"start_entry_id", "end_entry_id", "page", "digest_type"}
    availability_parameters = ledger_parameters | {"encoding"}
    reason = WaitReason.DISK if store is None else WaitReason.METADATA
    routes = {
        "list": _Route({"GET": ledgers.list_ledgers}, list_parameters, wait_reason=reason),
        "metadata": _Route({"GET": ledgers.show_metadata}, ledger_parameters, wait_reason=reason),
        "read": _Route({"GET": entries.read_entries}, read_parameters, wait_reason=reason),
        "delete": _Route({"DELETE": ledgers.delete_ledger}, ledger_parameters, wait_reason=reason),
        "availability": _Route({"GET": entries.show_availability}, availability_parameters),
    }
    return {f"/api/v1/ledger/{name}": route for name, route in routes.items()}


def _bookie_routes(
    collector: BackgroundCollector, background_jobs: BackgroundJobs, disk: DiskEndpoints
) -> dict[str, _Route]:
    """Return the routes below /api/v1/bookie for its files and its garbage collection."""
    garbage = GarbageEndpoints(collector, background_jobs)
    show, trigger = garbage.show_location_compactions, garbage.trigger_location_compaction
    compaction = {"GET": show, "PUT": trigger}
    suspension = {"GET": garbage.show_suspended, "PUT": garbage.suspend}
    routes = {
        "list_disk_file": _Route({"GET": disk.list_disk_file}, frozenset({"file_type"})),
        "last_log_mark": _Route({"GET": disk.show_log_marks}),
        "info": _Route({"GET": disk.show_disk_space}),
        "gc": _Route({"GET": garbage.show_gc_state, "PUT": garbage.trigger_gc}, wrong_method=405),
        "gc/suspend_compaction": _Route(suspension),
        "gc/resume_compaction": _Route({"PUT": garbage.resume}),
        "gc_details": _Route({"GET": garbage.show_gc_details}),
        "entry_location_compact": _Route(compaction, wrong_method=405),
    }
    return {f"/api/v1/bookie/{name}": route for name, route in routes.items()}


def _health_routes(bookie: Bookie, controls: Controls) -> dict[str, _Route]:
    """Return the routes for the bookie's state and settings."""
    health, settings = HealthEndpoints(bookie, controls), SettingsEndpoints(bookie, controls)
    read_only = {"GET": health.show_read_only, "PUT": health.set_read_only}
    metadata = WaitReason.METADATA  # a registration changes, or a test ledger is created
    return {
        "/api/v1/bookie/is_ready": _Route({"GET": health.check_ready}),
        "/api/v1/bookie/state": _Route({"GET": health.show_state}),
        "/api/v1/bookie/state/readonly": _Route(read_only, wait_reason=metadata),
        "/api/v1/bookie/sanity": _Route({"GET": health.run_sanity_test}, wait_reason=metadata),
        "/api/v1/config/server_config": _Route({"GET": settings.show_settings}),
    }


def _cluster_routes(
    metadata: MetadataStore | None, controls: Controls, decommissions: Decommissions
) -> dict[str, _Route]:
    """Return the routes for the cluster's bookies and its autorecovery; all need the metadata."""
    bookies = BookieEndpoints(metadata, controls)
    repair = AutorecoveryEndpoints(metadata, decommissions)
    show_delay, set_delay = repair.show_recovery_delay, repair.set_recovery_delay
    # the query parameters of the list of underreplicated ledgers
    marks = ("missingreplica", "excludingmissingreplica", "printmissingreplica", SCOPE_PARAMETER)

    def route(parameters: Iterable[str] = (), **methods: Endpoint) -> _Route:
        return _Route(methods, frozenset(parameters), wait_reason=WaitReason.METADATA)

    routes = {
        "bookie/list_bookies": route(("type", "print_hostnames"), GET=bookies.list_bookies),
        "bookie/list_bookie_info": route(GET=bookies.list_bookie_info),
        "bookie/cluster_info": route(GET=bookies.show_cluster_info),
        "autorecovery/status": route(("enabled",), GET=repair.show_status, PUT=repair.set_status),
        "autorecovery/bookie": route(PUT=repair.refuse_recovery),
        "autorecovery/list_under_replicated_ledger": route(marks, GET=repair.list_underreplicated),
        "autorecovery/who_is_auditor": route(GET=repair.show_auditor),
        "autorecovery/trigger_audit": route(PUT=repair.trigger_audit),
        "autorecovery/lost_bookie_recovery_delay": route(GET=show_delay, PUT=set_delay),
        "autorecovery/decommission": route(PUT=repair.decommission),
    }
    return {f"/api/v1/{path}": route for path, route in routes.items()}
