"""A bookie's directories and files: finding them, checking whose they are, and locking them.

`layout` finds directories, their kinds and their order: read it first. `file_listing` lists entry
logs and journals and detects changes, `ownership` checks the cookie of those a bookie writes to,
`writer_lock` keeps a second writer out. `server_conf` reads a `bk_server.conf`, `conf_file` finds
the directories in it, in a copy too; `unknown_files` lists files whose names no bookie gives.
"""

__all__ = [
    "conf_file",
    "file_listing",
    "layout",
    "ownership",
    "server_conf",
    "unknown_files",
    "writer_lock",
]
