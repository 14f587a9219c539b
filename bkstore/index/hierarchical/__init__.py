"""The tree of .idx files of interleaved and sorted storage, one file for each ledger.

`index` has `HierarchicalIndex`: read it first; `reader` is its read-only half. `file_tree` finds
the files below ``current/``, `lost_folders` knows which ledgers a folder has that cannot be read,
`file_slots` reads and writes the locations of one file, `small_files` reads many at once,
`unsynced_changes` records what is not durable yet. The file format is `bkstore.formats.idxfile`.
"""

from bkstore.index.hierarchical.index import HierarchicalIndex
from bkstore.index.hierarchical.reader import DEFAULT_MAX_PAGES

__all__ = ["DEFAULT_MAX_PAGES", "HierarchicalIndex"]
