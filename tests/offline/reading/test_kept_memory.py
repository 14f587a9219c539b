"""Memory of batches: what is freed is used again, without a page fault for each page."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGES = 8 * (1 << 20) // 4096
"""Of the arrays of one batch below."""

BATCHES = f"""
import resource
import sys

import numpy as np

from bkstore.offline.reading.freed_memory import keep_freed_memory


def batch():
    arrays = [np.ones(1 << 17) for _ in range(8)]


batch()
if sys.argv[1] == "kept":
    keep_freed_memory()
batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20 / {PAGES})
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_batches_have_the_memory_of_those_before() -> None:
    """Pages that a batch has faulted in are there for the next one; without it they are not."""
    shares = [
        float(subprocess.check_output([sys.executable, "-c", BATCHES, each], text=True))
        for each in ("as it is", "kept")
    ]

    assert shares[0] > 0.5
    assert shares[1] < 0.05
