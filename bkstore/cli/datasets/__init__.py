"""Commands that make dumps, load them into a new index, analyze them, and write the report page.

`run_analyses` does the work of `analyze`, with the engines of `analysis_engines`; `analyze_summary`
makes its one-line summaries, and `analysis_verdict` the exit code of them. `dump_location` parses
the location of a dump, `bookie_sources` the directories to dump.
"""

__all__ = [
    "analysis_engines",
    "analysis_verdict",
    "analyze",
    "analyze_summary",
    "bookie_sources",
    "dump",
    "dump_location",
    "load",
    "report",
    "run_analyses",
    "sql",
]
