"""Stream look-ups: which objects hold a range of a stream's offsets, loading as few as possible."""

from __future__ import annotations

from bkstore.streams.chain import AnswerObject
from bkstore.streams.compaction import CompactionPlan, compact_event, plan_compactions
from bkstore.streams.filters import ObjectFilters
from bkstore.streams.image import StreamImage
from bkstore.streams.lookup import StreamLookup
from bkstore.streams.objects import ImageReader, ObjectReader
from bkstore.streams.options import STRATEGIES, LookupOptions
from bkstore.streams.ranges import ObjectRanges
from bkstore.streams.result import LookupObserver, LookupResult
from bkstore.streams.stats import QueryStats

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
