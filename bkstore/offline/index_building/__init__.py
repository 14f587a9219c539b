"""Build a new index, RocksDB or index files, from rows in key order.

`row_writers` writes the rows as table files or index files, `assembly` puts these together,
`ledger_states` adds the states; `row_comparison` compares the index with its rows.
"""

__all__ = ["assembly", "ledger_states", "row_comparison", "row_writers"]
