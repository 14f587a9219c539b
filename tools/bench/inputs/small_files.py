"""Many index files of one entry each, written without a sync, and the loop that only reads them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE, IdxHeader, encode_header, index_path
from bkstore.ids import LedgerId

_READ = 16 << 10


def one_entry_files(top: Path, ledgers: int) -> list[str]:
    """Write ledgers 0..ledgers-1 of one entry, a page each; return the paths, in that order."""
    header = encode_header(IdxHeader(b"k" * 20))
    page = np.zeros(DEFAULT_PAGE_SIZE // 8, ">i8")
    paths = []
    for ledger in range(ledgers):
        path = os.path.join(top, "current", index_path(LedgerId(0, ledger)))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        page[:] = 0
        page[ledger % 7] = 1028 + ledger
        with open(path, "wb") as file:
            file.write(header + page.tobytes())
        paths.append(path)
    return paths


def bare_loop(paths: list[str]) -> None:
    """Open, read and close each file; nothing is made of the bytes."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, _READ)
        os.close(fd)


def walk_and_loop(top: Path) -> None:
    """Find the files first, two folders deep, as they lie there."""
    paths = []
    for upper in os.scandir(top / "current"):
        for lower in os.scandir(upper.path):
            paths += [file.path for file in os.scandir(lower.path)]
    bare_loop(paths)
