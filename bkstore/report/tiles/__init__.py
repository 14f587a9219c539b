"""The tiles of the page's first screen.

`first_screen` puts all four side by side: read it first. `disk` is the one about bytes, `risk` the
one that names the worst ledgers.
"""

__all__ = ["disk", "first_screen", "risk"]
