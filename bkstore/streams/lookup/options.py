"""LookupOptions: the strategies of a stream look-up and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bkstore.arguments import check_fields, choice, number, optional, truth, whole
from bkstore.streams.lookup.sparse_index import ENTRY_BYTES

Strategy = Literal["load-all", "sparse-index", "partial", "preload", "index", "bloom"]

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

check_strategy = choice(*STRATEGIES)


@dataclass(frozen=True, kw_only=True)
class LookupOptions:
    """Settings of `StreamLookup`.

    `batch` objects are loaded in a wave; with ``growth="growing"`` one more after every five
    waves (as the prototype), with "doubling" twice as many after each wave that did not find
    the place. `preload` is when a wave of far-off objects goes out: after one that did not find
    the place ("miss"), or together with it ("eager"). `spread` objects are preloaded in the
    middle, `tail` at the end of a list, at most `preloads` times on a node. `tail_first` begins
    a tail read at the end. `cut_waves` ends a wave before an object that is known to lie behind
    the offset: fewer loads, more waves. `keep_objects` loaded objects stay at hand, so that the
    next query need not load them.

    `tail_first` and `preload="miss"` go together; an eager preload of a tail read is sent with
    the first wave anyway. `workers` threads load; `load_timeout` seconds is how long a look-up
    waits for one wave. `sparse_bytes` is the room of each node's `SparseRangeIndex`.
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

    def wave_size(self, waves: int, missed: int) -> int:
        """Return how many objects the next wave loads, after so many, `missed` without a find."""
        if self.growth == "growing":
            return self.batch + waves // 5
        if self.growth == "doubling":
            return self.batch << min(missed, 30)
        return self.batch


_CHECKS = {
    "batch": whole(1),
    "growth": choice("fixed", "growing", "doubling"),
    "preload": choice("miss", "eager"),
    "spread": whole(1),
    "tail": whole(1),
    "preloads": whole(0),
    "tail_first": truth,
    "cut_waves": truth,
    "keep_objects": whole(0),
    "workers": whole(1, 1 << 16),  # a thread each
    "load_timeout": optional(number(above=True)),
    "sparse_bytes": whole(ENTRY_BYTES),
}
