"""How the page is rendered, independent of its content.

`rendering` fills the files in `bkstore/report/template/`: templates, a style sheet, a script.
`value_formats` formats numbers and ids for people, `bars` computes the bars to be drawn.
"""

__all__ = ["bars", "rendering", "value_formats"]
