"""Commands that check, compare and rewrite directories of stopped bookies, one module each.

`check` compares the index with the entry logs; `check_totals` prints what it covered. `usage`
(with `usage_tables`, `owner_sums`, and `screen_totals` for people) reports what fills the disk,
`diff` how two bookies differ. `convert`, `rebuild_index` and `salvage` make a new directory from an
old one; `rewrite_arguments` has what these three share.
"""

__all__ = [
    "check",
    "check_totals",
    "convert",
    "diff",
    "owner_sums",
    "rebuild_index",
    "rewrite_arguments",
    "salvage",
    "screen_totals",
    "usage",
    "usage_tables",
]
