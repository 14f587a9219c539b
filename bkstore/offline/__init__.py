"""What is done with directories that are not running, and with dumps of them.

`dump` writes the tables of bookies as Parquet, `load` makes an index of a dump, `analyses` asks a
dump what is missing, what fills the disk, what changed. `check` holds a directory's index and logs
against each other, `rewrite` makes a new directory of one: converted, with a rebuilt index, or
salvaged. `partial_output` is where dumps, loads and rewrites grow until they have their name.
"""

__all__ = ["analyses", "check", "dump", "load", "partial_output", "rewrite"]
