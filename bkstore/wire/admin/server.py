"""AdminServer: the HTTP admin of one bookie, in a thread of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Literal, Self

from bkstore import forks
from bkstore.arguments import check_compat, host_name, instance, integer, optional
from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.store.api import MetadataStore, check_store
from bkstore.errors import IllegalOperation, MissingDependency
from bkstore.index.api import Closeable
from bkstore.storage.bookie import Bookie
from bkstore.wire.admin.access_control import (
    check_token,
    is_loopback_host,
    make_host_predicate,
)
from bkstore.wire.admin.connection_limits import Limits
from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.admin.garbage_endpoints import BackgroundJobs
from bkstore.wire.admin.operator_endpoints.decommissions import Decommissions
from bkstore.wire.admin.operator_endpoints.host_callbacks import Controls
from bkstore.wire.admin.router import Router
from bkstore.wire.listening import Listener

if TYPE_CHECKING:
    from bkstore.wire.admin.http_frontend import HttpFrontend

LOG = logging.getLogger("bkstore.wire.admin")

_check_port = integer(0, 65535)
_BACKLOG = 128
_STOP_SECONDS = 5.0


class AdminServer(Closeable):
    """The HTTP admin of a bookie: `docs/http-admin.md` has its endpoints.

    `port` 0 takes a free one; `url` has it. `metadata` is the store for ``ledger/list``,
    ``metadata`` and ``delete``, and decides what is garbage; without one, the bookie's own ledgers
    are listed and deleted. Requests that write need `token` (``Authorization: Bearer``), and are
    refused if there is none. Reading needs none: on a `host` other than loopback, anybody who
    reaches it can read all payloads in the clear. There the ``Host`` header must be an address,
    `host`, the machine's own name, or one of `names`. ``compat="bookkeeper"`` reproduces
    BookKeeper's oddities, such as passwords in metadata.

    `collector` is the bookie's garbage collector, controlled here; without one, garbage is
    collected only on request here. `metrics` has the counters; give it to a bookie server as its
    observer. `close` aborts a garbage collection that was started here, and waits for compactions
    of entry locations; close the bookie after it. Threads: one for the network, one for answers
    that wait for nothing, four each for those that wait for the disk and for the store, three for
    background jobs. Fork: closed in the child. Raises `MissingDependency` without aiohttp and
    prometheus_client (extra "serve"), `IllegalOperation` if the port cannot be bound.

    >>> import tempfile, urllib.request
    >>> from bkstore import Bookie
    >>> with tempfile.TemporaryDirectory() as top, Bookie.open(top) as bookie:
    ...     with AdminServer(bookie) as admin:
    ...         urllib.request.urlopen(f"{admin.url}/heartbeat").read()
    b'OK\\n'
    """

    def __init__(
        self,
        bookie: Bookie,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        metadata: MetadataStore | None = None,
        collector: BackgroundCollector | None = None,
        metrics: OperationCounters | None = None,
        compat: Literal["bookkeeper"] | None = None,
        limits: Limits | None = None,
        names: Iterable[str] = (),
    ) -> None:
        """Check the settings; `start`, or the ``with`` block, starts to listen."""
        instance(Bookie)("bookie", bookie)
        self._host, self._port = host_name("host", host), _check_port("port", port)
        check_token(token), check_compat("compat", compat)
        optional(instance(OperationCounters))("metrics", metrics)
        optional(check_store)("metadata", metadata)
        optional(instance(BackgroundCollector))("collector", collector)
        self._limits = optional(instance(Limits))("limits", limits) or Limits()
        _check_aiohttp()
        self._host_names = frozenset(host_name("names", name) for name in names)
        self.counters = OperationCounters() if metrics is None else metrics
        self._background_jobs = BackgroundJobs()
        self._decommissions = Decommissions()
        # for passes on request: without a given collector, its own, whose schedule never starts
        self._own_collector = BackgroundCollector(bookie, metadata)
        collector = collector or self._own_collector
        self.counters.register_garbage_metrics(collector)
        self.controls = Controls()
        """Callbacks into the host process, for the endpoints and metrics."""
        # looked up at each call, because the attribute may be assigned later
        self.counters.watch_read_only(lambda: self.controls.read_only())
        self._router = Router(
            bookie,
            metadata,
            collector,
            token,
            self.counters,
            self._background_jobs,
            compat is not None,
            self.controls,
            self._decommissions,
        )
        self._socket: socket.socket | None = None
        self._front: HttpFrontend | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread: Thread | None = None
        self._closed = False
        forks.register(self)

    @property
    def address(self) -> tuple[str, int]:
        """Its address and port. Raises `IllegalOperation` if it does not listen."""
        if self._socket is None:
            raise IllegalOperation("this admin is not listening")
        host, port = self._socket.getsockname()[:2]
        return host, port

    @property
    def url(self) -> str:
        """Its URL: ``http://127.0.0.1:8080``. Raises `IllegalOperation` if it does not listen."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def is_on_loopback(self) -> bool:
        """Whether it listens on loopback only. Raises `IllegalOperation` if it does not listen."""
        return _is_loopback(self.address[0])

    def start(self) -> Self:
        """Start to listen and answer, in a thread; do nothing if it does already. Raises an error
        that this thread meets before it accepts requests."""
        if self._closed:
            raise forks.closed_error("this admin")
        if self._thread is None:
            self._socket = _open_socket(self._host, self._port)
            ready: Future[None] = Future()
            arguments = (self._socket, ready)
            self._thread = Thread(
                None, self._run_event_loop, "bkstore-admin", arguments, daemon=True
            )
            self._thread.start()
            try:
                ready.result()
            except BaseException:
                self._thread = None
                self._socket.close()
                self._socket = None
                raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def close(self) -> None:
        """Refuse requests, end running ones within seconds, and background jobs. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            assert self._loop is not None
            with suppress(RuntimeError):  # the loop has failed and is closed
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._decommissions.close()
        self._own_collector.close()
        self._background_jobs.close()

    def _run_event_loop(self, listening: socket.socket, ready: Future[None]) -> None:
        """Serve in this thread, in an event loop of its own; `ready` gets an error of the start."""
        try:
            asyncio.run(self._serve(listening, ready))
        except Exception as error:
            if ready.done():  # otherwise `start` raises it
                LOG.exception("the admin failed unexpectedly")
            else:
                ready.set_exception(error)

    async def _serve(self, listening: socket.socket, ready: Future[None]) -> None:
        """Serve until `close`; set the result of `ready` once requests are accepted."""
        from bkstore.wire.admin.http_frontend import HttpFrontend  # aiohttp

        self._loop = asyncio.get_running_loop()
        is_remote, names = not _is_loopback(listening.getsockname()[0]), self._host_names
        # which Host headers to accept
        is_own = make_host_predicate(self._host, names) if is_remote else is_loopback_host
        front = self._front = HttpFrontend(self._router, self._limits, is_own)
        listener = Listener([listening], front.make_protocol)
        listener.start()
        ready.set_result(None)
        await self._stop.wait()
        await listener.stop()
        listener.close()
        await front.close(_STOP_SECONDS)

    def _forked(self) -> None:
        """Close the sockets in a forked child, so that port and connections end with the parent."""
        self._closed = True
        if self._front is not None:
            forks.drop_descriptors(self._front.descriptors())
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __repr__(self) -> str:
        return f"<AdminServer {self.url if self._socket is not None else '(closed)'}>"


def _check_aiohttp() -> None:
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingDependency.of("aiohttp", "serve", "the HTTP admin") from error


def _open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `IllegalOperation` if the address cannot be bound."""
    try:
        # An empty host means all addresses of the machine. The first result is the preferred one.
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        family, *_, address = socket.getaddrinfo(host or None, port, type=kind, flags=flags)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise IllegalOperation(f"cannot listen on {host}:{port}: {reason}") from error


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback
