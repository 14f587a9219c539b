"""Memory that is freed and asked for again with each batch stays with the process."""

from __future__ import annotations

import numpy as np

KEPT = 31 << 20
"""Bytes of the block that is freed: glibc learns from none of 32 MiB or more."""


def keep_freed_memory() -> None:
    """Let the allocator keep what is freed, instead of giving it back to the system.

    glibc gives back blocks above a threshold, and the free top of its heap above twice that. The
    arrays of a batch are above both at first, so that each batch has its memory anew, zeroed page
    by page, which takes about as long as the work on it. Freeing one large block raises the
    threshold to its size (mallopt(3), "dynamic mmap threshold"), and the process keeps up to
    twice that from then on. No page of the block is touched: a microsecond or two. Where the
    allocator is another one, nothing changes.
    """
    np.empty(KEPT, np.uint8)
