"""The peak memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss`."""


def peak_memory() -> int:
    """Return the highest resident size so far, in bytes. `/proc` is preferred because it counts
    this program alone: the value of `getrusage` starts with that of the parent process."""
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].removesuffix("kB")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT_BYTES
