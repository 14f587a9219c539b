"""Tables for people: what fits a terminal of a table's columns, and how it is drawn.

`tables` draws them: read it first. `column_choice` chooses the columns of a table that a screen
shows, and those of them that fit; `cells` has how a value reads.
"""

__all__ = ["cells", "column_choice", "tables"]
