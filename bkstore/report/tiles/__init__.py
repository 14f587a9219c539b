"""The tiles of the page's first screen.

`first_screen` makes them: read it first. `disk` is about bytes, `risk` names the worst ledgers.
"""

__all__ = ["disk", "first_screen", "risk"]
