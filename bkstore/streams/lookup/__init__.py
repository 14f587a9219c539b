"""Look-ups: the objects that hold a range of a stream's offsets, loading as few as possible.

`stream_lookup` has `StreamLookup`: read it first. It searches one node after the other
(`node_search`) and puts the answer together object by object (`answer_chain`). What the searches
share is in `shared_by_searches`: objects loaded by `object_loader` through an `object_reader`,
`object_filters`, and `sparse_index`, which is upstream's. `options` has the strategies, `result`
the answer, `stats` what it cost.
"""

__all__ = [
    "answer_chain",
    "node_search",
    "object_filters",
    "object_loader",
    "object_reader",
    "options",
    "result",
    "shared_by_searches",
    "sparse_index",
    "stats",
    "stream_lookup",
]
