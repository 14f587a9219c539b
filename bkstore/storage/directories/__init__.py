"""Which directories and files a bookie has, whose they are, and who may write to them.

`layout` tells the kinds of directories apart and keeps their order, and is the one to read
first. `file_listing` finds entry logs and journals and sees whether any moved, `ownership` checks
the cookie of the directories a bookie writes to, `writer_lock` keeps a second writer out.
`server_conf` reads a `bk_server.conf`, and `conf_file` finds the directories that it names, in a
copy too; `unknown_files` finds what has a name that no bookie gives.
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
