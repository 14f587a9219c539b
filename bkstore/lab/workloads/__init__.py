"""The rows that experiments write, and the reads that they replay.

`index_loads` has the rows of an index, from the generators of `bkstore.testing` or a dump. `traces`
generates sequences of reads from a seed; `recorded_reads` records and loads those of a running
bookie.
"""

__all__: list[str] = []
