"""Commands about dumps: made, loaded into a new index, analysed.

`run_analyses` is what `analyze` does, `analyze_summary` what it says of each analysis in one line;
`dump_place` is how a dump is named.
"""

__all__ = [
    "analyze",
    "analyze_summary",
    "dump",
    "dump_place",
    "load",
    "run_analyses",
]
