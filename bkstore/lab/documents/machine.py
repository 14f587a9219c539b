"""The environment that a figure depends on: machine, system, Python, package versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PACKAGES = (
    *("bkstore", "numpy", "rocksdict", "sortedcontainers", "mmh3", "pyarrow", "pyspark", "duckdb"),
    *("polars", "pyroaring", "lmdb", "plyvel", "rbloom", "fastbloom-rs"),
)


def describe_environment() -> dict[str, Any]:
    """Return the machine, Python and package versions, as every document records them."""
    return {
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "processor": _processor_model(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "load_average": list(os.getloadavg()),
        },
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": dict(_installed_versions()),
    }


def _processor_model() -> str:
    """Return the processor's name, "" if unknown."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _installed_versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
