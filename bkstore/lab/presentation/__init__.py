"""Results shown: tables for terminals and pages, pictures, and pages of both.

`table` splits a document into tables, `terminal_tables` prints them as wide as the terminal is.
`picture` draws the panels, with axes of `log_axes` and `dark_colors`; `page` is one HTML file with
all of it.
"""

__all__: list[str] = []
