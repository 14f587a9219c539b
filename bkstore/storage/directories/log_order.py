"""The order in which entry logs were created, by their ids: ids overflow and begin at 0 again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from bkstore.ids import MAX_LOG_ID
from bkstore.storage.directories.file_listing import LogFile


def sort_by_creation(logs: Sequence[LogFile]) -> list[LogFile]:
    """Return logs in the order of their creation: by id, beginning after the largest gap.

    After 2^31-1, ids go on from 0 (`EntryLoggerAllocator`), and the oldest log is the one after
    the largest gap. Without an overflow that gap is after the highest id, and the order is by id.

    >>> logs = [LogFile(0, number, "", 0) for number in (0, 1, 2**31 - 2)]
    >>> [log.log_id for log in sort_by_creation(logs)]
    [2147483646, 0, 1]
    """
    sorted_ids = sorted({log.log_id for log in logs})
    if not sorted_ids:
        return []
    id_count = MAX_LOG_ID + 1
    gaps = [(higher - lower, higher) for lower, higher in pairwise(sorted_ids)]
    wrap_gap = (sorted_ids[0] + id_count - sorted_ids[-1], sorted_ids[0])
    # Of equal gaps the one after the highest id counts: then there was no overflow.
    oldest_id = max([*gaps, wrap_gap], key=lambda gap: (gap[0], gap == wrap_gap))[1]
    return sorted(logs, key=lambda log: ((log.log_id - oldest_id) % id_count, log.dir_index))
