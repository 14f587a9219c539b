"""Routes: which path is which endpoint, who may use it, and what an error looks like.

A wrong method is 404 with a line of text, as upstream answers (405 and 403 where it does). Paths
that write need the token. Every error is one line that names the reason.
"""

from __future__ import annotations

import hmac
import logging
import re
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
from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.admin.disk import DiskEndpoints
from bkstore.wire.admin.entries import EntryEndpoints
from bkstore.wire.admin.garbage import Background, GarbageEndpoints
from bkstore.wire.admin.ledgers import LedgerEndpoints
from bkstore.wire.admin.messages import TEXT, Answer, Refused, Request, chunked, one_line
from bkstore.wire.admin.operations.autorecovery import AutorecoveryEndpoints
from bkstore.wire.admin.operations.bookies import BookieEndpoints
from bkstore.wire.admin.operations.condition import ConditionEndpoints
from bkstore.wire.admin.operations.controls import Controls
from bkstore.wire.admin.operations.decommissions import Decommissions
from bkstore.wire.admin.operations.settings import SettingsEndpoints
from bkstore.wire.admin.parameters import LEDGER, SCOPE

LOG = logging.getLogger("bkstore.wire.admin")

Endpoint = Callable[[Request], Answer]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,1024}=*")
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_STATUS: tuple[tuple[type[BkstoreError], int], ...] = (
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


class WaitsFor(Enum):
    """What an answer may have to wait for. Each has threads of its own: none delays another."""

    NOTHING = "nothing"
    DISK = "the disk"
    METADATA = "the metadata store"


@dataclass(frozen=True)
class _Route:
    """What a path offers by method, the parameters it knows, its status for other methods."""

    methods: Mapping[str, Endpoint]
    parameters: frozenset[str] | None = frozenset()
    other: int = 404
    writes: bool = True
    """Whether methods other than GET change something."""

    waits_for: WaitsFor = WaitsFor.DISK


def check_token(token: str | None) -> str | None:
    """Return a token; `InvalidArgument` for one that a header cannot carry, or a short one.

    The forms of RFC 6750, of 16 characters at least.
    """
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        what = "16 to 1024 letters, digits and -._~+/, and = at the end"
        raise InvalidArgument(f"a token has {what}")
    return token


class Router:
    """Answers requests; never raises. Threads: any."""

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore | None,
        collector: BackgroundCollector,
        token: str | None,
        counters: OperationCounters,
        background: Background,
        compat: bool,
        controls: Controls,
        decommissions: Decommissions,
    ) -> None:
        self._token = None if token is None else token.encode("ascii")
        self._counters = counters
        self._routes = {"/heartbeat": _heartbeat(), "/metrics": self._metrics()}
        self._routes |= _about_ledgers(bookie, metadata, compat)
        self._routes |= _about_the_bookie(collector, background, DiskEndpoints(bookie, compat))
        self._routes |= _about_its_condition(bookie, controls)
        self._routes |= _about_the_cluster(metadata, controls, decommissions)

    def waits_for(self, request: Request) -> WaitsFor:
        """Return what the answer to a request may have to wait for."""
        route = self._routes.get(request.path)
        return WaitsFor.NOTHING if route is None else route.waits_for

    def answer(self, request: Request, authorization: str | None = None) -> Answer:
        """Return the answer to a request that came with this `Authorization` header."""
        answer = self._safely(request, authorization)
        path = request.path if request.path in self._routes else "other"
        self._counters.answered(path, answer.status)
        return answer

    def _safely(self, request: Request, authorization: str | None) -> Answer:
        try:
            endpoint = self._endpoint(request, authorization)
            return _begun(endpoint(request))
        except Refused as refused:
            more = {"WWW_Authenticate": "Bearer"} if refused.status == 401 else {}
            return Answer.text(refused.status, str(refused), **more)
        except BkstoreError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            return Answer.text(status, str(error))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return Answer.text(500, f"{where}{error.strerror or error}")
        except Exception as error:
            LOG.exception("%s %s", request.method, one_line(request.path))
            return Answer.text(500, f"this is a defect of bkstore: {type(error).__name__}")

    def _endpoint(self, request: Request, authorization: str | None) -> Endpoint:
        route = self._routes.get(request.path)
        if route is None:
            raise Refused(404, f"there is nothing at {request.path}")
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = route.methods.get(method)
        if endpoint is None:
            raise Refused(route.other, f"{method} is not for this path: use {_or(route.methods)}")
        if method != "GET" and route.writes:
            self._authorize(authorization)
        unknown = () if route.parameters is None else {*request.parameters} - route.parameters
        for name in sorted(unknown):
            known = ", ".join(sorted(route.parameters or ())) or "it has none"
            raise Refused(400, f"unknown parameter {name[:60]!r} (known: {known})")
        return endpoint

    def _authorize(self, authorization: str | None) -> None:
        if self._token is None:
            raise Refused(403, "writes are not enabled: this admin was started without a token")
        scheme, _, given = (authorization or "").partition(" ")
        told = given.strip().encode("utf-8", "replace")
        if not hmac.compare_digest(told, self._token) or scheme.lower() != "bearer":
            raise Refused(401, "this needs the header Authorization: Bearer, with the right token")

    def _metrics(self) -> _Route:
        def scrape(_request: Request) -> Answer:
            return Answer(200, self._counters.exposition(), _METRICS)

        return _Route({"GET": scrape}, None, 403, waits_for=WaitsFor.NOTHING)


def _or(methods: Mapping[str, Endpoint]) -> str:
    return " or ".join(sorted(methods))


def _begun(answer: Answer) -> Answer:
    """Return an answer whose first pieces are there, so that what is wrong with them is told."""
    if isinstance(answer.body, bytes):
        return answer
    chunks = chunked(answer.body)
    first, second = next(chunks, b""), next(chunks, None)
    if second is None:
        return replace(answer, body=first)
    return replace(answer, body=chain((first, second), chunks))


def _heartbeat() -> _Route:
    def beat(_request: Request) -> Answer:
        return Answer(200, b"OK\n", TEXT)

    methods = dict.fromkeys(("GET", "PUT", "POST", "DELETE"), beat)
    return _Route(methods, None, writes=False, waits_for=WaitsFor.NOTHING)


def _about_ledgers(
    bookie: Bookie, metadata: MetadataStore | None, compat: bool
) -> dict[str, _Route]:
    """Return the routes below ``/api/v1/ledger``."""
    ledgers = LedgerEndpoints(bookie, metadata, compat)
    entries = EntryEndpoints(bookie, metadata)
    one = frozenset({LEDGER, SCOPE})
    shown = {SCOPE, "print_metadata", "decode_meta", "page"}
    span = one | {"start_entry_id", "end_entry_id", "page", "digest_type"}
    source = WaitsFor.DISK if metadata is None else WaitsFor.METADATA
    routes = {
        "list": _Route({"GET": ledgers.listed}, frozenset(shown), waits_for=source),
        "metadata": _Route({"GET": ledgers.metadata}, one, waits_for=source),
        "read": _Route({"GET": entries.read}, span, waits_for=source),
        "delete": _Route({"DELETE": entries.delete}, one, waits_for=source),
        "availability": _Route({"GET": entries.availability}, one | {"encoding"}),
    }
    return {f"/api/v1/ledger/{name}": route for name, route in routes.items()}


def _about_the_bookie(
    collector: BackgroundCollector, background: Background, disk: DiskEndpoints
) -> dict[str, _Route]:
    """Return the routes below ``/api/v1/bookie``."""
    garbage = GarbageEndpoints(collector, background)
    compaction = {"GET": garbage.compacting, "PUT": garbage.compact}
    suspension = {"GET": garbage.suspended, "PUT": garbage.suspend}
    routes = {
        "list_disk_file": _Route({"GET": disk.list_disk_file}, frozenset({"file_type"})),
        "last_log_mark": _Route({"GET": disk.last_log_mark}),
        "info": _Route({"GET": disk.info}),
        "gc": _Route({"GET": garbage.collecting, "PUT": garbage.collect}, other=405),
        "gc/suspend_compaction": _Route(suspension),
        "gc/resume_compaction": _Route({"PUT": garbage.resume}),
        "gc_details": _Route({"GET": garbage.details}),
        "entry_location_compact": _Route(compaction, other=405),
    }
    return {f"/api/v1/bookie/{name}": route for name, route in routes.items()}


def _about_its_condition(bookie: Bookie, controls: Controls) -> dict[str, _Route]:
    """Return the routes that probes and operators of one bookie use."""
    condition, settings = ConditionEndpoints(bookie, controls), SettingsEndpoints(bookie, controls)
    read_only = {"GET": condition.read_only, "PUT": condition.set_read_only}
    metadata = WaitsFor.METADATA
    return {
        "/api/v1/bookie/is_ready": _Route({"GET": condition.is_ready}),
        "/api/v1/bookie/state": _Route({"GET": condition.state}),
        "/api/v1/bookie/state/readonly": _Route(read_only, waits_for=metadata),
        "/api/v1/bookie/sanity": _Route({"GET": condition.sanity}, waits_for=metadata),
        "/api/v1/config/server_config": _Route({"GET": settings.shown}),
    }


def _about_the_cluster(
    metadata: MetadataStore | None, controls: Controls, decommissions: Decommissions
) -> dict[str, _Route]:
    """Return the routes about other bookies, auditors and replication workers."""
    bookies = BookieEndpoints(metadata, controls)
    repair = AutorecoveryEndpoints(metadata, decommissions)
    marked = {SCOPE, "missingreplica", "excludingmissingreplica", "printmissingreplica"}

    def route(parameters: Iterable[str] = (), **methods: Endpoint) -> _Route:
        return _Route(methods, frozenset(parameters), waits_for=WaitsFor.METADATA)

    return {
        "/api/v1/bookie/list_bookies": route(("type", "print_hostnames"), GET=bookies.listed),
        "/api/v1/bookie/list_bookie_info": route(GET=bookies.disks),
        "/api/v1/bookie/cluster_info": route(GET=bookies.summary),
        **{
            f"/api/v1/autorecovery/{name}": each
            for name, each in {
                "status": route(("enabled",), GET=repair.status, PUT=repair.set_status),
                "bookie": route(PUT=repair.recover),
                "list_under_replicated_ledger": route(marked, GET=repair.marked),
                "who_is_auditor": route(GET=repair.auditor),
                "trigger_audit": route(PUT=repair.trigger_audit),
                "lost_bookie_recovery_delay": route(GET=repair.delay, PUT=repair.set_delay),
                "decommission": route(PUT=repair.decommission),
            }.items()
        },
    }
