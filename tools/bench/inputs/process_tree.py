"""CPU time and memory of this process and its descendants, such as a JVM and its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def _read_process_tree() -> Iterator[tuple[str, str]]:
    """Yield the `/proc` texts (status, stat) of this process and its descendants."""
    parent_of: dict[int, int] = {}
    texts_of: dict[int, tuple[str, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status, stat = (path / "status").read_text(), (path / "stat").read_text()
        except OSError:
            continue  # the process has ended
        pid = int(path.name)
        parent_of[pid] = int(status.partition("PPid:")[2].split()[0])
        texts_of[pid] = status, stat
    for pid, texts in texts_of.items():
        ancestor = pid
        while ancestor in parent_of and ancestor != os.getpid():
            ancestor = parent_of[ancestor]
        if ancestor == os.getpid():
            yield texts


def tree_peak_bytes() -> int:
    """Return the sum of the peak resident sizes of this process and its descendants, in bytes."""
    fields = (status.partition("VmHWM:")[2].split() for status, _ in _read_process_tree())
    return sum(int(words[0]) * 1024 for words in fields if words)


def tree_cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, including ended ones."""
    ticks = (stat.rpartition(")")[2].split()[11:15] for _, stat in _read_process_tree())
    return sum(sum(map(int, fields)) for fields in ticks) / os.sysconf("SC_CLK_TCK")
