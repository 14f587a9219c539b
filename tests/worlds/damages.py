"""Damages as disks and people make them: to one file below a folder, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

__all__ = ["DAMAGES", "damage"]


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for at in rng.sample(range(len(data)), min(len(data), rng.randrange(1, 4))):
        data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _truncate(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def _zero(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    size = min(rng.choice([4, 64, 512]), len(data) - at)
    data[at : at + size] = bytes(size)
    path.write_bytes(data)


def _swap(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    size = rng.choice([32, 512])
    if len(data) >= 2 * size:
        one, other = (rng.randrange(len(data) // size) * size for _ in range(2))
        first, second = data[one : one + size], data[other : other + size]
        if len(first) == len(second):
            data[one : one + size], data[other : other + size] = second, first
    path.write_bytes(data)


def _delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def _lie(path: Path, rng: random.Random) -> None:
    """Put another number where a length or a count may stand: any aligned or unaligned word."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(max(len(data) - 4, 1))
    lies = [0, 1, 31, 32, 1000, 2**31 - 1, -1, -256, len(data)]
    data[at : at + 4] = rng.choice(lies).to_bytes(4, "big", signed=True)
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flip": _flip,
    "truncate": _truncate,
    "zero": _zero,
    "swap": _swap,
    "delete": _delete,
    "lie": _lie,
}


def damage(files: list[Path], seed: int) -> tuple[str, Path]:
    """Damage one of these files; return how, and which."""
    rng = random.Random(seed)
    kind, path = rng.choice(list(DAMAGES)), rng.choice(sorted(files))
    DAMAGES[kind](path, rng)
    return kind, path
