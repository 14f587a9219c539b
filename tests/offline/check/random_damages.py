"""Random damage to one file of a directory: bits flipped, ends cut, stretches zeroed or swapped."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

Random = np.random.Generator


def damage(top: Path, random: Random) -> str:
    """Damage one file of a tree in one way; return what was done, in words."""
    path = _chosen(top, random)
    kind = random.choice(sorted(_WAYS))
    if kind == "delete":
        path.unlink()
        return f"delete {path.name}"
    data = bytearray(path.read_bytes())
    told = _WAYS[kind](data, random) if data else "nothing"
    path.write_bytes(data)
    return f"{kind} {path.relative_to(top)}: {told}"


def _chosen(top: Path, random: Random) -> Path:
    """Return a file: each kind of files is as likely as the others."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(top.rglob("*")):
        if path.is_file() and path.name not in _UNREAD and not path.name.startswith("OPTIONS"):
            kinds.setdefault(_kind(path), []).append(path)
    files = kinds[random.choice(sorted(kinds))]
    return files[random.integers(len(files))]


_UNREAD = ("LOCK", "LOG", "IDENTITY", "rocksdict-config.json", "bkstore.lock", "lastId")
"""What no answer comes from."""


def _kind(path: Path) -> str:
    return path.suffix or path.name.split("-")[0]


def _flip(data: bytearray, random: Random) -> str:
    at = int(random.integers(len(data)))
    data[at] ^= 1 << int(random.integers(8))
    return f"a bit at {at}"


def _truncate(data: bytearray, random: Random) -> str:
    at = int(random.integers(len(data)))
    del data[at:]
    return f"at {at}"


def _zero(data: bytearray, random: Random) -> str:
    at, count = _stretch(data, random)
    data[at : at + count] = bytes(len(data[at : at + count]))
    return f"{count} bytes at {at}"


def _swap(data: bytearray, random: Random) -> str:
    (one, count), (other, _) = _stretch(data, random), _stretch(data, random)
    count = min(count, len(data) - one, len(data) - other, abs(one - other))
    data[one : one + count], data[other : other + count] = (
        data[other : other + count],
        data[one : one + count],
    )
    return f"{count} bytes at {one} and {other}"


def _lie(data: bytearray, random: Random) -> str:
    """Let four bytes that may be a length or a count say something else."""
    places = [at for at in range(len(data) - 3) if 0 < _number(data, at) < 1 << 16]
    at = int(places[random.integers(len(places))]) if places else 0
    value = _number(data, at) + int(random.choice([-1, 1, 16, 1000])) if places else 1
    data[at : at + 4] = struct.pack(">i", max(value, 0))
    return f"{value} at {at}"


def _number(data: bytearray, at: int) -> int:
    number: int = struct.unpack_from(">i", data, at)[0]
    return number


def _stretch(data: bytearray, random: Random) -> tuple[int, int]:
    return int(random.integers(len(data))), int(random.integers(1, 65))


_WAYS: dict[str, Callable[[bytearray, Random], str]] = {
    "delete": _flip,
    "flip": _flip,
    "truncate": _truncate,
    "zero": _zero,
    "swap": _swap,
    "lie": _lie,
}
