"""Commands for operators of Apache Pulsar over BookKeeper.

`leaks` lists the ledgers that nobody needs any more, as rows of `leak_rows`; `durations` parses
times and durations on command lines.
"""

__all__ = ["durations", "leak_rows", "leaks"]
