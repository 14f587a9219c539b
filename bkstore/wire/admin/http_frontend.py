"""Transport: serves the router by aiohttp. Answers allow no other origin to read them (no CORS)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from bkstore.wire.admin.connection_limits import (
    LimitedConnection,
    Limits,
    OpenConnections,
    StreamSlots,
)
from bkstore.wire.admin.messages import HttpError, HttpRequest, HttpResponse, one_line
from bkstore.wire.admin.router import Router, WaitReason

LOG = logging.getLogger("bkstore.wire.admin")

_HEADERS = {"Server": "bkstore", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_THREAD_COUNTS = {WaitReason.NOTHING: 1, WaitReason.DISK: 4, WaitReason.METADATA: 4}
_T = TypeVar("_T")


class HttpFrontend:
    """Reads requests, has them answered in a few threads, writes the answers. Used in one loop.
    `is_own_host` returns whether a Host header names this machine."""

    def __init__(self, router: Router, limits: Limits, is_own_host: Callable[[str], bool]) -> None:
        """Answer requests in threads, a pool for each reason to wait."""
        self._router = router
        self._limits = limits
        self._is_own = is_own_host
        pool = partial(ThreadPoolExecutor, thread_name_prefix="bkstore-admin")
        self._threads = {reason: pool(count) for reason, count in _THREAD_COUNTS.items()}
        self._waiting_counts: Counter[WaitReason] = Counter()
        self._streams = StreamSlots(limits)
        self._connections = OpenConnections()
        self._server = web.Server(self._handle_request)

    def make_protocol(self) -> LimitedConnection:
        """Return the protocol of a new connection."""
        http = _Http(
            self._server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None: no access log
            logger=LOG,
            lingering_time=0,  # after an answer, do not wait for the rest of a body
            auto_decompress=False,  # a small body could expand to gigabytes
        )
        return LimitedConnection(http, self._connections, self._limits)

    async def close(self, seconds: float) -> None:
        """Give requests `seconds` to end, then abort them and end the threads."""
        await self._server.shutdown(seconds)
        for transport in [*self._connections.served, *self._connections.closing]:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        for pool in self._threads.values():
            pool.shutdown(wait=True)

    def descriptors(self) -> Iterator[int]:
        """Yield the file descriptors of all connections."""
        for transport in [*self._connections.served, *self._connections.closing]:
            sock = transport.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                yield sock.fileno()

    async def _handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. The client's timeout is stopped meanwhile, because it limits the time
        to send a request and to take the answer, not the server's work."""
        served = self._connections.served
        connection = served.get(request.transport) if request.transport is not None else None
        if connection is None:  # it is closed
            return web.Response(status=503)
        connection.stop_timeout()
        try:
            return await self._answer_request(request)
        finally:
            connection.start_timeout()

    async def _answer_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request in a thread, or refuse it if too many wait for the same reason, such as
        the disk: so a stalled disk does not take the threads of requests that do not need it."""
        try:
            parsed = await self._parse_request(request)
        except HttpError as refused:
            return _to_web_response(HttpResponse.error_text(refused.status, str(refused)))
        reason = self._router.wait_reason(parsed)
        # answers that wait for nothing are never refused: they free their thread at once
        is_full = self._waiting_counts[reason] >= self._limits.waiting
        if is_full and reason is not WaitReason.NOTHING:
            text = f"too many requests are waiting for {reason.value}"
            return _to_web_response(HttpResponse.error_text(503, text))
        self._waiting_counts[reason] += 1
        try:
            token = request.headers.get("Authorization")
            answer = await self._in_thread(reason, partial(self._router.answer, parsed, token))
            if isinstance(answer.body, bytes):
                return _to_web_response(answer)
            return await self._stream_answer(request, answer, reason)
        finally:
            self._waiting_counts[reason] -= 1

    async def _in_thread(self, reason: WaitReason, call: partial[_T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[reason], call)

    async def _parse_request(self, request: web.BaseRequest) -> HttpRequest:
        """Return the whole request. Raises `HttpError` for a bad header, query or body."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise HttpError(400, f"{len(hosts) or 'no'} Host header")
        if not self._is_own(hosts[0]):
            raise HttpError(403, f"Host {hosts[0]!r} is not a known name of this machine")
        query = request.rel_url.query
        if len(set(query)) < len(query):
            raise HttpError(400, "a parameter is given twice")
        try:
            async with asyncio.timeout(self._limits.seconds):
                body = await self._read_body(request)
        except TimeoutError:
            reason = f"the body did not arrive within {self._limits.seconds:g} seconds"
            raise HttpError(408, reason) from None
        return HttpRequest(request.method, request.path, dict(query), body)

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        """Return the body of a request. Raises `HttpError` if it is too long or malformed."""
        if request.method in ("GET", "HEAD", "OPTIONS") or not request.can_read_body:
            return b""
        body = b""
        too_long = HttpError(413, f"a body may have at most {self._limits.body} bytes")
        if (request.content_length or 0) > self._limits.body:
            raise too_long
        try:
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > self._limits.body:
                    raise too_long
        except web.RequestPayloadError as error:
            raise HttpError(400, f"the body does not match its header: {error}") from None
        return body

    async def _stream_answer(
        self, request: web.BaseRequest, answer: HttpResponse, reason: WaitReason
    ) -> web.StreamResponse:
        """Send an answer chunk by chunk; abort the connection if the client does not read, or a
        later chunk fails, so that the answer does not look complete."""
        try:
            stream = await self._streams.acquire(request.transport)
        except TimeoutError:
            return _to_web_response(
                HttpResponse.error_text(503, "too many long answers are being sent")
            )
        response = web.StreamResponse(status=answer.status, headers=_response_headers(answer))
        response.force_close()
        try:
            assert not isinstance(answer.body, bytes)
            await response.prepare(request)
            next_chunk = partial(next, answer.body, None)
            while request.method != "HEAD" and (chunk := await self._in_thread(reason, next_chunk)):
                stream.is_writing = True
                async with asyncio.timeout(self._limits.seconds):
                    await response.write(chunk)
                stream.end_chunk()
        except (TimeoutError, ConnectionError):  # the client does not read
            _abort_connection(request)
        except Exception:
            LOG.exception("an answer to %s ended early", request.path)
            _abort_connection(request)
        finally:
            self._streams.release(stream)
        return response


class _Http(RequestHandler):
    """aiohttp's protocol, with errors like the router's: one line, no traceback."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to an invalid request, or to one whose handler failed."""
        if request.writer.output_size > 0:  # as in aiohttp, which then closes the connection
            raise ConnectionError("an answer has already begun")
        if status >= 500:
            path = one_line(request.path)
            LOG.error("%s %s failed unexpectedly", request.method, path, exc_info=exc)
        return _to_web_response(
            HttpResponse.error_text(status, message or HTTPStatus(status).phrase)
        )


def _abort_connection(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _response_headers(answer: HttpResponse) -> dict[str, str]:
    return {**_HEADERS, "Content-Type": answer.content_type, **answer.headers}


def _to_web_response(answer: HttpResponse) -> web.Response:
    assert isinstance(answer.body, bytes)
    response = web.Response(
        status=answer.status, body=answer.body, headers=_response_headers(answer)
    )
    response.force_close()
    return response
