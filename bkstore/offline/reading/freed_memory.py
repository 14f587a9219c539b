"""Keep the memory that each batch frees and allocates again in the process."""

from __future__ import annotations

import numpy as np

FREED_BLOCK_BYTES = 31 << 20
"""Bytes of the block to free: glibc ignores blocks of 32 MiB or more."""


def keep_freed_memory() -> None:
    """Make the allocator keep freed memory instead of returning it to the system.

    glibc returns blocks above a threshold, and the free top of its heap above twice that. A batch's
    arrays exceed both at first, so each batch gets new memory, zeroed page by page, which takes as
    long as the work on it. Freeing one large block raises the threshold to its size (mallopt(3),
    "dynamic mmap threshold"). No page of it is touched: 1 or 2 us. Other allocators ignore it.
    """
    np.empty(FREED_BLOCK_BYTES, np.uint8)
