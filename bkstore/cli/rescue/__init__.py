"""The command that recovers ledgers from the disks of a cluster that no longer runs.

`rescue` is the command, `rescue_arguments` its arguments and what they choose.
"""

__all__ = ["rescue", "rescue_arguments"]
