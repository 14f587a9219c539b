"""Commands about dumps: made, loaded into a new index, analysed.

`analyze_summary` is what `analyze` says of each analysis in one line.
"""

__all__ = ["analyze", "analyze_summary", "dump", "load"]
