"""The costs of lookups: `QueryStats` for each, `LookupTotals` for all of a `StreamLookup`."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class WaveTrace:
    """One wave: the ids of the objects loaded for the search, and of those preloaded."""

    node_id: int
    searched: tuple[int, ...]
    preloaded: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the object ids as ``[0,2,3] P[14,22]``; those after ``P`` were preloaded."""
        parts = []
        if self.searched:
            parts.append(f"[{','.join(map(str, self.searched))}]")
        if self.preloaded:
            parts.append(f"P[{','.join(map(str, self.preloaded))}]")
        return " ".join(parts)


@dataclass
class QueryStats:
    """Counts of one lookup.

    `loads` are the loaded objects, including preloads; `joined` those that another lookup was
    already loading. `waves` are waits. `filter_refusals` are loads that a filter saved,
    `filter_false_positives` loads of objects without the stream despite their filter.
    `dead_entries` are index entries whose object is gone. `skipped` are objects before the first
    position, `jumps` later moves forward by the index, `listed` the objects of the searched
    `nodes`, `objects` those of the answer.
    """

    loads: int = 0
    waves: int = 0
    preloads: int = 0
    failed_preloads: int = 0
    joined: int = 0
    kept: int = 0
    without_stream: int = 0
    filter_refusals: int = 0
    filter_false_positives: int = 0
    index_hits: int = 0
    index_misses: int = 0
    dead_entries: int = 0
    skipped: int = 0
    jumps: int = 0
    nodes: int = 0
    listed: int = 0
    objects: int = 0
    seconds: float = 0.0
    trace: list[WaveTrace] = field(default_factory=list)


COUNTS = tuple(one.name for one in fields(QueryStats) if one.name != "trace")


class LookupTotals:
    """Sums of `QueryStats`, and counts of results by kind. Threads: safe.

    >>> totals = LookupTotals()
    >>> totals.add("complete", QueryStats(loads=5, waves=1)); totals.as_dict()["loads"]
    5
    """

    RESULTS = ("complete", "prefix", "empty", "invalid", "error")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, float] = dict.fromkeys(COUNTS, 0)
        self._results = dict.fromkeys(self.RESULTS, 0)

    def add(self, result: str, stats: QueryStats) -> None:
        """Add one lookup."""
        with self._lock:
            self._results[result] += 1
            for name in COUNTS:
                self._sums[name] += getattr(stats, name)

    def as_dict(self) -> dict[str, float]:
        """Return sums by name, and lookups by result as ``lookups_complete`` and so on."""
        with self._lock:
            results = {f"lookups_{name}": count for name, count in self._results.items()}
            return {"lookups": sum(results.values()), **results, **self._sums}
