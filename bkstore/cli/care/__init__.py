"""Commands that care for directories that do not run: a module a command.

`check` holds index and logs against each other. `usage` (with `usage_rows`) says what fills the
disk, `diff` what two bookies do not have alike. `convert`, `rebuild_index` and `salvage` make a new
directory of an old one; `rewriting` has what these three share.
"""

__all__ = [
    "check",
    "convert",
    "diff",
    "rebuild_index",
    "rewriting",
    "salvage",
    "usage",
    "usage_rows",
]
