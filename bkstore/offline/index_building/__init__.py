"""Build a new index, RocksDB or index files, from rows in key order.

Loads and rewrites do it. `row_writers` writes the rows as table files or index files, `assembly`
puts these together, `ledger_states` adds the states; `row_comparison` compares the index with the
rows that it was made of.
"""

__all__ = ["assembly", "ledger_states", "row_comparison", "row_writers"]
