"""Recorded conversations of real clients with real bookies: frames, and what was sent by hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.golden.data import GOLDEN, NO_GOLDEN, load_json

FILES = ("wire_v2.json.gz", "wire_v3.json.gz", "wire_auth.json")

needs_golden = pytest.mark.skipif(not (GOLDEN / "bookkeeper").is_dir(), reason=NO_GOLDEN)


class Connection(NamedTuple):
    """One connection: its conversation's name, and (from the client?, whole frame) in order."""

    name: str
    frames: list[tuple[bool, bytes]]
    rest: bytes
    """What the client sent that never became a frame."""


@cache
def conversations(file: str) -> list[dict[str, Any]]:
    """Return the conversations of a file."""
    found: list[dict[str, Any]] = load_json(GOLDEN / "bookkeeper" / file)["conversations"]
    return found


def connections(file: str) -> Iterator[Connection]:
    """Yield the connections of a file."""
    for conversation in conversations(file):
        for connection in conversation["connections"]:
            listed = connection["frames"]
            frames = [(f["dir"] == "c2s", bytes.fromhex(f["hex"])) for f in listed if "hex" in f]
            rest = "".join(f.get("incomplete_hex", "") for f in listed)
            yield Connection(conversation["name"], frames, bytes.fromhex(rest))
