"""Responses to AUTH in both protocols, and to v3 requests before authentication.

In v3 these have an exact copy of their request's header, priority included, as in BookKeeper; all
other responses have a fresh header. Source: `proto/AuthHandler.ServerSideHandler`.
"""

from __future__ import annotations

from typing import Any

from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.server.requests.operations import ImmediateOperation
from bkstore.wire.status_codes import Status


def answer_v2(plugin: bytes, token: bytes, version: int) -> ImmediateOperation:
    """Return the operation that answers a step of an authentication by a plugin."""
    response = frame(*v2.AuthResponse(plugin, token, version).parts())
    return ImmediateOperation("AUTH", protocol=2, encode_response=lambda _status: response)


def answer_v3(request: Any, plugin: bytes, token: bytes) -> ImmediateOperation:
    """Return the operation that answers a step of an authentication by a plugin."""
    body = {"authPluginName": plugin, "payload": token}
    return _answer_with_header_of(request, Status.EOK, body)


def refuse_v3(request: Any) -> ImmediateOperation:
    """Return the operation that refuses a v3 request before authentication, with EUA."""
    return _answer_with_header_of(request, Status.EUA)


def _answer_with_header_of(
    request: Any, status: Status, body: v3.Body | None = None
) -> ImmediateOperation:
    """Return an operation that answers at once, with a copy of the request's header."""

    def encode_response(status: Status) -> bytes:
        response = v3.new_response(request, status, body)
        response.header.CopyFrom(request.header)
        return frame(v3.encode(response))

    name = v3.OperationType(request.header.operation).name
    return ImmediateOperation(name, protocol=3, encode_response=encode_response, status=status)
