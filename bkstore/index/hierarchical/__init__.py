"""The tree of .idx files that interleaved and sorted storage keep, a file a ledger.

`index` has `HierarchicalIndex` and is the one to read first; `reader` is the half of it that
changes nothing. `file_tree` finds the files below ``current/``, `file_slots` reads and writes the
locations of one, `small_files` many at once, `unsynced_changes` knows what is not durable yet. The
bytes are `bkstore.formats.idxfile`'s.
"""

from bkstore.index.hierarchical.index import HierarchicalIndex
from bkstore.index.hierarchical.reader import DEFAULT_MAX_PAGES

__all__ = ["DEFAULT_MAX_PAGES", "HierarchicalIndex"]
