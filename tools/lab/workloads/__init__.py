"""The rows that experiments write, and the reads that they replay.

`index_loads` has the rows of an index, from the generators of `bkstore.testing` or a dump.
`traces` generates sequences of reads from a seed; `recording` records the reads of a running
bookie and loads them again.
"""
