"""LookupOptions: the strategies of a stream lookup and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bkstore.arguments import boolean, check_fields, choice, integer, number, optional
from bkstore.streams.lookup.sparse_index import ENTRY_BYTES

Strategy = Literal["load-all", "sparse-index", "partial", "preload", "index", "bloom"]

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

check_strategy = choice(*STRATEGIES)


@dataclass(frozen=True, kw_only=True)
class LookupOptions:
    """Settings of `StreamLookup`.

    A wave loads `batch` objects; with ``growth="growing"`` one more after every five waves (as in
    the prototype), with "doubling" twice as many after each miss, a wave that did not find the
    offset. `preload` is when a wave of far-off objects is sent: after a miss ("miss"), or together
    with a wave ("eager"). It has `spread` objects in the middle and `tail` at the end of a list, at
    most `preloads` times on a node. `tail_first` begins a tail read at the end; meant for "miss",
    as "eager" sends its preload with the first wave anyway. `cut_waves` ends a wave before an
    object known to begin after the offset: fewer loads, more waves. `keep_objects` loaded objects
    are cached for later queries. `workers` is the number of loading threads, `load_timeout` the
    maximum wait for a wave in seconds, `sparse_bytes` the size of each node's `SparseRangeIndex`.
    """

    batch: int = 5
    growth: Literal["fixed", "growing", "doubling"] = "fixed"
    preload: Literal["miss", "eager"] = "miss"
    spread: int = 4
    tail: int = 5
    preloads: int = 4
    tail_first: bool = False
    cut_waves: bool = False
    keep_objects: int = 0
    workers: int = 16
    load_timeout: float | None = None
    sparse_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)

    def wave_size(self, wave_count: int, misses_in_a_row: int) -> int:
        """Return the size of wave number `wave_count` (from 0), after `misses_in_a_row` misses."""
        if self.growth == "growing":
            return self.batch + wave_count // 5  # as in the prototype
        if self.growth == "doubling":
            return self.batch << min(misses_in_a_row, 30)  # longer than any list by then
        return self.batch


_CHECKS = {
    "batch": integer(1),
    "growth": choice("fixed", "growing", "doubling"),
    "preload": choice("miss", "eager"),
    "spread": integer(1),
    "tail": integer(1),
    "preloads": integer(0),
    "tail_first": boolean,
    "cut_waves": boolean,
    "keep_objects": integer(0),
    "workers": integer(1, 1 << 16),  # one thread each
    "load_timeout": optional(number(above=True)),
    "sparse_bytes": integer(ENTRY_BYTES),
}
