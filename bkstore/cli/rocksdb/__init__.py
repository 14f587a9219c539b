"""The command that shows the files of the RocksDB databases of db storage.

`rocks` is the command, `view_rows` has the rows of its views. `database_choice` finds the databases
below DIR and opens them.
"""

__all__ = ["database_choice", "rocks", "view_rows"]
