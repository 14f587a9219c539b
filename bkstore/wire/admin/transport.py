"""Transport: the router's answers over aiohttp, and who may ask at all.

The `Host` header must name this machine: a page of a website whose name was made to lead here
(DNS rebinding) is refused. No answer lets another origin read it (no CORS).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from bkstore.wire.admin.guard import Connections, Guard, Limits, Streams
from bkstore.wire.admin.messages import Answer, Refused, Request, one_line
from bkstore.wire.admin.routes import Router, WaitsFor

LOG = logging.getLogger("bkstore.wire.admin")

_ALWAYS = {"Server": "bkstore", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_THREADS = {WaitsFor.NOTHING: 1, WaitsFor.DISK: 4, WaitsFor.METADATA: 4}
_T = TypeVar("_T")


class Front:
    """Reads requests, has them answered in a few threads, writes the answers. Of one loop.

    `is_own` says whether a Host header names this machine.
    """

    def __init__(self, router: Router, limits: Limits, is_own: Callable[[str], bool]) -> None:
        self._router = router
        self._limits = limits
        self._is_own = is_own
        self._threads = {
            reason: ThreadPoolExecutor(count, thread_name_prefix="bkstore-admin")
            for reason, count in _THREADS.items()
        }
        self._waiting: Counter[WaitsFor] = Counter()
        self._streams = Streams(limits)
        self._known = Connections()
        self._server = web.Server(self._handle)

    def connection(self) -> Guard:
        """Return the protocol of a new connection."""
        http = _Http(
            self._server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None is: no log of requests
            logger=LOG,
            lingering_time=0,
            auto_decompress=False,  # a few bytes could become gigabytes
        )
        return Guard(http, self._known, self._limits)

    async def close(self, seconds: float) -> None:
        """Let requests end for some seconds, then cut them off."""
        await self._server.shutdown(seconds)
        for transport in [*self._known.served, *self._known.leaving]:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        for pool in self._threads.values():
            pool.shutdown(wait=True)

    def descriptors(self) -> Iterator[int]:
        """Yield the numbers of the sockets of all connections."""
        for transport in [*self._known.served, *self._known.leaving]:
            held = transport.get_extra_info("socket")
            if held is not None and held.fileno() >= 0:
                yield held.fileno()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        served = self._known.served
        guard = served.get(request.transport) if request.transport is not None else None
        if guard is None:  # the connection is gone
            return web.Response(status=503)
        guard.go_on()
        try:
            return await self._answered(request)
        finally:
            guard.wait()

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            asked = await self._read(request)
        except Refused as refused:
            return _response(Answer.text(refused.status, str(refused)))
        reason = self._router.waits_for(asked)
        if reason is not WaitsFor.NOTHING and self._waiting[reason] >= self._limits.waiting:
            return _response(Answer.text(503, f"too many requests wait for {reason.value}"))
        self._waiting[reason] += 1
        try:
            given = request.headers.get("Authorization")
            answer = await self._in_thread(reason, partial(self._router.answer, asked, given))
            if isinstance(answer.body, bytes):
                return _response(answer)
            return await self._streamed(request, answer, reason)
        finally:
            self._waiting[reason] -= 1

    async def _in_thread(self, reason: WaitsFor, call: partial[_T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[reason], call)

    async def _read(self, request: web.BaseRequest) -> Request:
        """Return the request, read whole."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise Refused(400, f"{len(hosts) or 'no'} Host header")
        if not self._is_own(hosts[0]):
            raise Refused(403, f"Host {hosts[0]!r} is no name of this machine that is known here")
        query = request.rel_url.query
        if len(set(query)) < len(query):
            raise Refused(400, "a parameter is given twice")
        try:
            async with asyncio.timeout(self._limits.seconds):
                body = await self._body(request)
        except TimeoutError:
            what = f"the body did not come within {self._limits.seconds:g} seconds"
            raise Refused(408, what) from None
        return Request(request.method, request.path, dict(query), body)

    async def _body(self, request: web.BaseRequest) -> bytes:
        if request.method in ("GET", "HEAD", "OPTIONS") or not request.can_read_body:
            return b""
        body = b""
        too_long = Refused(413, f"a body has at most {self._limits.body} bytes")
        if (request.content_length or 0) > self._limits.body:
            raise too_long
        try:
            async for part in request.content.iter_any():
                body += part
                if len(body) > self._limits.body:
                    raise too_long
        except web.RequestPayloadError as error:
            raise Refused(400, f"the body is not what its header says: {error}") from None
        return body

    async def _streamed(
        self, request: web.BaseRequest, answer: Answer, reason: WaitsFor
    ) -> web.StreamResponse:
        """Send an answer chunk by chunk; a client that reads nothing is cut off.

        So is one whose answer cannot be ended: it must not look whole.
        """
        try:
            stream = await self._streams.begin(request.transport)
        except TimeoutError:
            return _response(Answer.text(503, "too many long answers are being sent"))
        response = web.StreamResponse(status=answer.status, headers=_headers(answer))
        response.force_close()
        try:
            assert not isinstance(answer.body, bytes)
            await response.prepare(request)
            chunks = partial(next, answer.body, None)
            while request.method != "HEAD" and (chunk := await self._in_thread(reason, chunks)):
                stream.begin_chunk()
                async with asyncio.timeout(self._limits.seconds):
                    await response.write(chunk)
                stream.end_chunk()
        except (TimeoutError, ConnectionError):  # nobody reads it
            _cut(request)
        except Exception:
            LOG.exception("an answer to %s ended early", request.path)
            _cut(request)
        finally:
            self._streams.end(stream)
        return response


class _Http(RequestHandler):
    """aiohttp's protocol, with errors that read like the router's: a line, and no traceback."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to bytes that are no request, or to one that broke the handler."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: there is no room for another")
        if status >= 500:
            LOG.error("%s %s broke down", request.method, one_line(request.path), exc_info=exc)
        return _response(Answer.text(status, message or HTTPStatus(status).phrase))


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _headers(answer: Answer) -> dict[str, str]:
    return {**_ALWAYS, "Content-Type": answer.content_type, **answer.headers}


def _response(answer: Answer) -> web.Response:
    assert isinstance(answer.body, bytes)
    response = web.Response(status=answer.status, body=answer.body, headers=_headers(answer))
    response.force_close()
    return response


def names_of(host: str, names: Collection[str]) -> Callable[[str], bool]:
    """Return what tells whether a Host header names a machine that listens beyond loopback.

    Addresses do, as no website has one for its name; so do localhost, `host` where it listens,
    the machine's own name, and `names`.
    """
    known = {_plain(name) for name in (host, socket.gethostname(), "localhost", *names) if name}

    def is_own(header: str) -> bool:
        name = _host_name(header)
        return name is not None and (_plain(name) in known or _is_address(name))

    return is_own


def names_this_machine(host: str) -> bool:
    """Return whether a Host header names loopback: localhost, 127.0.0.0/8 or ::1; any port.

    >>> [names_this_machine(host) for host in ("localhost:8080", "[::1]", "example.org")]
    [True, True, False]
    """
    name = _host_name(host)
    if name is None:
        return False
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _host_name(header: str) -> str | None:
    """Return the host in a Host header, in lower case; None if it has none, or more than that."""
    try:
        parts = urlsplit(f"//{header}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return None
    return name if name and parts.netloc == header and parts.username is None else None


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
