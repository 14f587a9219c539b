"""What the page is written with, and nothing of what it says.

`markup` is text that is escaped unless it was made here, `wording` numbers and ids as people read
them, `bars` are inline SVG, `style` and `script` the page's only ones.
"""

__all__ = ["bars", "markup", "script", "style", "wording"]
