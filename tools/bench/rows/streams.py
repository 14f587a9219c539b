"""Row: stream look-ups over 500 objects of 300 streams, warm, by strategy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bkstore.streams import ImageReader, StreamLookup
from bkstore.streams.options import Strategy
from bkstore.testing.streams import WorldShape, random_queries, stream_image
from tools.bench.measure import Case, Context, Fact, Row, Side

__all__ = ["ROWS"]

SHAPE = WorldShape(nodes=1, streams=300, per_object=(5, 15), alone=0, lost=0, moved=0)
OBJECTS = 500
ASKED = 390
