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
    # Begin with the gap from the highest id over 2^31-1 to the lowest: of equal gaps it counts.
    oldest_id = sorted_ids[0]
    largest_gap = oldest_id + id_count - sorted_ids[-1]
    for lower, higher in pairwise(sorted_ids):
        if higher - lower > largest_gap:
            oldest_id, largest_gap = higher, higher - lower
    return sorted(logs, key=lambda log: ((log.log_id - oldest_id) % id_count, log.dir_index))
