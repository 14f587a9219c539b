"""The command line: one module a command, each thin over a library call."""

__all__ = ["main"]
