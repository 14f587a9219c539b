"""Stream lookups: which objects hold a range of a stream's offsets, loading as few as possible.

`image` has the metadata to search: streams, nodes and objects. `lookup` searches it: read
`lookup.stream_lookup` first. `docs/streams.md` has the proposal behind it and all settings.
"""

from __future__ import annotations

from bkstore.streams.image.compaction import compact_event
from bkstore.streams.image.compaction_limits import CompactionPlan, plan_compactions
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.lookup.answer_chain import AnswerObject
from bkstore.streams.lookup.object_reader import ImageReader, ObjectReader
from bkstore.streams.lookup.options import STRATEGIES, LookupOptions
from bkstore.streams.lookup.result import LookupObserver, LookupResult
from bkstore.streams.lookup.stats import QueryStats
from bkstore.streams.lookup.stream_filters import ObjectFilters
from bkstore.streams.lookup.stream_lookup import StreamLookup

__all__ = [
    "STRATEGIES",
    "AnswerObject",
    "CompactionPlan",
    "ImageReader",
    "LookupObserver",
    "LookupOptions",
    "LookupResult",
    "ObjectFilters",
    "ObjectRanges",
    "ObjectReader",
    "QueryStats",
    "StreamImage",
    "StreamLookup",
    "compact_event",
    "plan_compactions",
]
