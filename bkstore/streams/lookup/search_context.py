"""SearchContext: what the searches of one lookup share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bkstore.index.offset_range import OffsetRangeIndex
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.lookup.object_loader import ObjectLoader
from bkstore.streams.lookup.options import LookupOptions, Strategy
from bkstore.streams.lookup.sparse_index import SparseRangeIndex
from bkstore.streams.lookup.stats import QueryStats
from bkstore.streams.lookup.stream_filters import StreamProbe


class FoundSlice(NamedTuple):
    """A stream set object and its slice of the stream."""

    object_id: int
    start: int
    end: int


@dataclass
class SearchContext:
    """The image, the stream, and the means to find its objects.

    A tail read asks for offsets up to the stream's end. `index` (start offset to object) and
    `probe` (of the objects' bloom filters) are None if the strategy does not use them. `is_gone`
    returns whether the newest image lacks an object: one that only this lookup's image lacks may be
    newer.
    """

    image: StreamImage
    stream: int
    is_tail_read: bool
    strategy: Strategy
    options: LookupOptions
    loader: ObjectLoader
    stats: QueryStats
    index: OffsetRangeIndex | None
    probe: StreamProbe | None
    sparse_indexes: Mapping[int, SparseRangeIndex]
    is_gone: Callable[[int], bool]

    @property
    def loads_whole_list(self) -> bool:
        """Whether all objects from the start position on are loaded in one wave."""
        return self.strategy in ("load-all", "sparse-index")

    @property
    def uses_preloads(self) -> bool:
        """Whether far-off objects are preloaded."""
        return self.strategy in ("preload", "index", "bloom")
