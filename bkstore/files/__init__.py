"""The disk: opening what is there, changing it, and what the system says of both.

`disk_changes` has `Files`, the few calls by which writers change the disk, and is the one to read
first: a crash test puts its own in that place. `opening` is the one way by which readers open a
file, `os_errors` turns the system's refusals into errors of ours, `lock_files` keeps others out,
`scratch` has directories that do not outlive their maker, `spill_files` rows that do not fit into
memory, `user_outputs` writes a file that a user named: whole, or not at all.
"""

__all__ = [
    "disk_changes",
    "lock_files",
    "opening",
    "os_errors",
    "scratch",
    "spill_files",
    "user_outputs",
]
