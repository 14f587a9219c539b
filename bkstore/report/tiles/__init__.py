"""The tiles of the page's first screen.

`first_screen` makes all four: read it first. `disk` has the tile about bytes, `risk` the tile that
names the worst ledgers.
"""

__all__ = ["disk", "first_screen", "risk"]
