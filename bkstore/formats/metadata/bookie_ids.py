"""Bookie ids: which ones BookKeeper's clients accept, and the address that an id may contain."""

from __future__ import annotations

import re

from bkstore.errors import InvalidArgument

READ_ONLY = "readonly"
"""The folder of read-only bookies among the registrations, so not the id of a bookie."""

# The class of BookKeeper's pattern has the range from ":" to "_", so ; < = > ? @ [ \ ] ^ are in it.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")
_PORT = re.compile(r"[0-9]{1,5}")


def check_bookie_id(bookie_id: str) -> str:
    """Return a bookie's id; raise `InvalidArgument` for one that BookKeeper's clients refuse. If a
    registered bookie has such an id, none of these clients can start (`net/BookieId`).

    >>> check_bookie_id("10.0.0.1:3181")
    '10.0.0.1:3181'
    """
    if not _BOOKIE_ID.fullmatch(bookie_id) or bookie_id.lower() in (READ_ONLY, ".", ".."):
        raise InvalidArgument(
            f"{bookie_id!r} is not a bookie id: letters, digits and : ; < = > ? @ [ \\ ] ^ _ . - "
            f"are allowed, and it must not be {READ_ONLY!r}"
        )
    return bookie_id


def parse_address(bookie_id: str) -> tuple[str, int] | None:
    """Return the host and port that an id consists of; None if it is not an address."""
    host, _, port_and_more = bookie_id.partition(":")
    port = port_and_more.split(":")[0]
    if not host or not _PORT.fullmatch(port) or int(port) > 0xFFFF:
        return None
    return host, int(port)
