"""What goes in and what is read.

`index_loads` is what an index is filled with, from the generators of `bkstore.testing` or a dump.
`traces` is what is read in which order, made
from a seed; `recording` writes down the reads of a running bookie and reads them again.
"""
