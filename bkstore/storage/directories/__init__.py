"""A bookie's directories and files: finding them, checking whose they are, and locking them.

`layout` finds directories, their kinds and their order: read it first. `file_listing` lists entry
logs and journals and detects changes, `log_order` sorts logs by their creation. `directory_cookies`
checks the cookie of directories that a bookie writes to, `writer_lock` keeps a second writer out.
`server_conf` reads a `bk_server.conf`, `conf_directories` finds the directories in it, in a copy
too. `unknown_files` lists files whose names no bookie gives.
"""

__all__: list[str] = []
