"""The tiles of the page's first screen: `first_screen` has all four, the larger ones by name."""

__all__ = ["disk", "first_screen", "risk"]
