"""Index rows in another order than they come in, in bounded memory: sorted runs, spilled to disk.

`rows_by_key` gives them in the order of an index, one a key, as loads and rewrites need them;
`rows_by_log` by the entry log that they point into, in the order of positions, for checks and
salvages.
"""

__all__ = ["rows_by_key", "rows_by_log"]
