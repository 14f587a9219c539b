"""The file system: opening files, changing the disk, and the errors of both.

`disk_changes` has `Files`, the calls by which writers change the disk: read it first. Crash tests
replace it. `opening` opens regular files for all readers, `os_errors` turns `OSError` into
bkstore's errors, `lock_files` locks a directory against other processes, `scratch` has temporary
directories that are removed even after a kill, `spill_files` rows that do not fit into memory,
`copies` copies and links files, `user_outputs` writes a file that a user named: completely, or not
at all.
"""

__all__: list[str] = []
