"""The parts of a block-based table file (``.sst``), as bytes and arrays.

From the end of the file:

    footer          kind of checksum, format version, where the other blocks are
    metaindex       names of the meta blocks and their handles: properties, filter, range deletes
    index           for each data block a separator key and its handle; possibly in partitions
    data blocks     rows in key order, prefix-compressed

Every block has a trailer: its compression and a checksum. Read `footer` and `block` first, then
`entries`: the entries of any block, one at a time; `rows` decodes those of many data blocks as
arrays. `index`, `filter`, `properties` and `range_deletes` have the blocks of these names;
`key_hash` is the hash of keys in filters. `table_builder` makes whole files, `row_blocks` their
data blocks. A manifest knows a file by its `unique_id`. Source: `table/format.cc` and
`table/block_based/` of RocksDB.
"""

__all__ = [
    "block",
    "entries",
    "filter",
    "footer",
    "index",
    "key_hash",
    "properties",
    "range_deletes",
    "row_blocks",
    "rows",
    "table_builder",
    "unique_id",
]
