"""Commands that make dumps, load them into a new index, and analyze them.

`run_analyses` does the work of `analyze`, `analyze_summary` makes its one-line summaries;
`dump_location` parses the location of a dump.
"""

__all__ = ["analyze", "analyze_summary", "dump", "dump_location", "load", "run_analyses"]
