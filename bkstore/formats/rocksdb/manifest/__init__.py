"""A database's description of itself: CURRENT, IDENTITY, MANIFEST and OPTIONS files.

`version_edit` decodes a record of a MANIFEST: read it first. `version` is the sum of them: the live
table files by level, and the logs still needed. `table_file` has what is stored for one table file;
`current_file` reads the two files of one line, `options_file` the settings of a database.
"""

__all__ = ["current_file", "options_file", "table_file", "version", "version_edit"]
