"""Sort index rows in bounded memory, with sorted runs spilled to disk.

`rows_by_key` yields them in the order of an index, one for each key, for loads and rewrites.
`rows_by_log` groups them by entry log, in the order of positions, for checks and salvages.
`sorted_runs` are the files of sorted rows, of any columns, and their merge.
"""

__all__ = ["rows_by_key", "rows_by_log", "sorted_runs"]
