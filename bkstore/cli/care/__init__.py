"""Commands that care for directories that do not run: a module a command.

`check` holds index and logs against each other.
"""

__all__ = ["check"]
