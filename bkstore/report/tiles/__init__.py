"""The tiles of the page's first screen.

`first_screen` makes them: read it first. `disk` is about bytes, `risk` names the worst ledgers,
`topic_lines` the topics that lost entries, and the largest.
"""

__all__ = ["disk", "first_screen", "risk", "topic_lines"]
