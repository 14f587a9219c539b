"""A bookie's files, with I/O. `directory` reads the directories of one bookie."""

__all__ = ["directory", "layout"]
