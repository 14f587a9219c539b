"""Commands that care for directories that do not run: a module a command.

`check` holds index and logs against each other. `convert`, `rebuild_index` and `salvage` make a new
directory of an old one; `rewriting` has what these three share.
"""

__all__ = ["check", "convert", "rebuild_index", "rewriting", "salvage"]
