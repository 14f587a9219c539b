"""What is done with directories that are not running, and with dumps of them.

`dump` writes the tables of bookies as Parquet, `load` makes an index of a dump, `analyses` asks a
dump what is missing, what fills the disk, what changed. `check` holds a directory's index and logs
against each other, `usage` says what fills its disk, `diff` what two of them, or dumps, do not have
alike. `rewrite` makes a new directory of one: converted, with a rebuilt index, or salvaged.
`index_building` is how loads and rewrites make an index of rows, `spilled_rows` how rows are sorted
on disk.
`reading` is how files of dumps are read where they lie, in tasks and in order.
`staging_directory` is where dumps, loads and rewrites are made until they have their name,
`worker_pool` has the processes of dumps and checks.
"""

__all__ = [
    "analyses",
    "check",
    "diff",
    "dump",
    "index_building",
    "load",
    "reading",
    "rewrite",
    "spilled_rows",
    "staging_directory",
    "usage",
    "worker_pool",
]
