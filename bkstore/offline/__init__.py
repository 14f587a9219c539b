"""What is done with directories that are not running.

`dump` writes what bookies have to Parquet, `load` makes an index of a dump, `analyses` asks dumps.
"""

__all__ = ["analyses", "dump", "load"]
