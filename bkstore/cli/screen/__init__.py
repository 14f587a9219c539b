"""Tables for people: choosing the columns that fit a terminal, and drawing them.

`tables` draws them: read it first. `column_choice` chooses the columns to show and their widths;
`cells` formats values, `short_ids` ledger ids; `text_width` pads, cuts and wraps texts.
"""

__all__ = ["cells", "column_choice", "short_ids", "tables", "text_width"]
