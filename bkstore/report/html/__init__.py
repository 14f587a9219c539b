"""How the page is written, and nothing of what it says.

`rendering` makes text of the files in `bkstore/report/template/`, which a web person can change:
templates, a style sheet, a script. `wording` is numbers and ids as people read them, `bars` what
the templates draw bars from.
"""

__all__ = ["bars", "rendering", "wording"]
