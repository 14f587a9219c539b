"""Query parameters: numbers, ledgers, pages, choices, and JSON bodies; raises `HttpError`.

A missing parameter is 404, as in BookKeeper; an invalid one, where its handler fails, is 400.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.json_text import parse_json
from bkstore.ids import LedgerId
from bkstore.wire.admin.messages import HttpError, HttpRequest

LEDGER_PARAMETER = "ledger_id"
SCOPE_PARAMETER = "ledger_scope_id"

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}")


def parse_integer(request: HttpRequest, name: str, default: int) -> int:
    """Return an integer, decimal or hex. Raises `HttpError` for anything else."""
    text = request.parameters.get(name)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text):
        raise HttpError(400, f"{name}={text[:60]!r} is not a whole number")
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


def parse_scope(request: HttpRequest) -> int:
    """Return the requested scope, unsigned; 0 by default."""
    number = parse_integer(request, SCOPE_PARAMETER, 0)
    try:
        return LedgerId(number, 0).scope
    except InvalidArgument as error:
        raise HttpError(400, str(error)) from None


def parse_ledger_id(request: HttpRequest) -> LedgerId:
    """Return the requested ledger id. Raises `HttpError` with 404 if it is missing."""
    if LEDGER_PARAMETER not in request.parameters:
        raise HttpError(404, f"missing parameter: {LEDGER_PARAMETER}=<id>")
    number = parse_integer(request, LEDGER_PARAMETER, 0)
    try:
        return LedgerId(parse_scope(request), number)
    except InvalidArgument as error:
        raise HttpError(400, str(error)) from None


def parse_page(request: HttpRequest) -> int | None:
    """Return the requested page, from 1 on; None if missing or below 1, as in BookKeeper."""
    number = parse_integer(request, "page", 0)
    return number if number > 0 else None


def parse_choice(request: HttpRequest, name: str, choices: Sequence[str]) -> str | None:
    """Return a parameter that must be one of `choices`, or None if it is missing."""
    word = request.parameters.get(name)
    if word is not None and word not in choices:
        raise HttpError(400, f"{name}={word[:60]!r} is not one of {', '.join(choices)}")
    return word


def parse_json_body(request: HttpRequest) -> dict[str, Any] | None:
    """Return the JSON object in a body, or None if blank. Raises `HttpError` with 400 otherwise."""
    if not request.body.strip():
        return None
    try:
        value = parse_json(request.body, None, "the body")
    except CorruptionError as error:
        raise HttpError(400, str(error)) from None
    if not isinstance(value, dict):
        raise HttpError(400, "the body is not a JSON object")
    return value
