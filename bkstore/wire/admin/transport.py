"""Transport: the router's answers over aiohttp, and who may ask at all.

On loopback the `Host` header must name this machine: a page of a website whose name was made to
lead here (DNS rebinding) is refused. No answer lets another origin read it (no CORS).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from bkstore.wire.admin.guard import Connections, Guard, Limits
from bkstore.wire.admin.messages import Answer, Refused, Request, one_line
from bkstore.wire.admin.routes import Router

__all__ = ["Front", "names_this_machine"]

LOG = logging.getLogger("bkstore.wire.admin")

_ALWAYS = {"Server": "bkstore", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_THREADS = 4
_T = TypeVar("_T")


class Front:
    """Reads requests, has them answered in a few threads, writes the answers. Of one loop."""

    def __init__(self, router: Router, limits: Limits, loopback: bool) -> None:
        self._router = router
        self._limits = limits
        self._loopback = loopback
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bkstore-admin")
        self._streams = asyncio.Semaphore(limits.streams)
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
        self._threads.shutdown(wait=True)

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
        given = request.headers.get("Authorization")
        answer = await self._in_thread(partial(self._router.answer, asked, given))
        if isinstance(answer.body, bytes):
            return _response(answer)
        return await self._streamed(request, answer)

    async def _in_thread(self, call: partial[_T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _read(self, request: web.BaseRequest) -> Request:
        """Return the request, read whole."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise Refused(400, f"{len(hosts) or 'no'} Host header")
        if self._loopback and not names_this_machine(hosts[0]):
            raise Refused(403, f"Host {hosts[0]!r} is not this machine's loopback")
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

    async def _streamed(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        """Send an answer chunk by chunk; a client that reads nothing is cut off.

        So is one whose answer cannot be ended: it must not look whole.
        """
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._streams.acquire()
        except TimeoutError:
            return _response(Answer.text(503, "too many long answers are being sent"))
        response = web.StreamResponse(status=answer.status, headers=_headers(answer))
        response.force_close()
        try:
            assert not isinstance(answer.body, bytes)
            await response.prepare(request)
            await self._write(request, response, answer.body)
        except (TimeoutError, ConnectionError):  # nobody reads it
            _cut(request)
        except Exception:
            LOG.exception("an answer to %s ended early", request.path)
            _cut(request)
        finally:
            self._streams.release()
        return response

    async def _write(
        self, request: web.BaseRequest, response: web.StreamResponse, chunks: Iterator[bytes]
    ) -> None:
        if request.method == "HEAD":
            return
        while (chunk := await self._in_thread(partial(next, chunks, None))) is not None:
            async with asyncio.timeout(self._limits.seconds):
                await response.write(chunk)


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


def names_this_machine(host: str) -> bool:
    """Return whether a Host header names loopback: localhost, 127.0.0.0/8 or ::1; any port.

    >>> [names_this_machine(host) for host in ("localhost:8080", "[::1]", "example.org")]
    [True, True, False]
    """
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.netloc != host or parts.username is not None:
        return False
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
