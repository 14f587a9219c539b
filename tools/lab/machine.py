"""What a figure depends on beside the code: machine, system, Python, versions of packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PACKAGES = (
    "bkstore",
    "numpy",
    "rocksdict",
    "sortedcontainers",
    "mmh3",
    "pyarrow",
    "pyspark",
    "duckdb",
    "polars",
    "pyroaring",
    "lmdb",
    "plyvel",
    "rbloom",
    "fastbloom-rs",
)


def environment() -> dict[str, Any]:
    """Return machine, Python and versions as they stand in every result."""
    return {
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "load_average": list(os.getloadavg()),
        },
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": dict(_versions()),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
