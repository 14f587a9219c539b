"""Tables for people: what fits a terminal of a table's columns, and how it is drawn.

`tables` draws them: read it first. `default_columns` says what a screen has of each table,
`column_choice` what of it fits, `cells` how a value reads.
"""

__all__ = ["cells", "column_choice", "default_columns", "tables"]
