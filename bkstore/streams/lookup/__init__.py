"""Look-ups: the objects that hold a range of a stream's offsets, loading as few as possible.

`stream_lookup` has `StreamLookup`: read it first. It searches one node after the other
(`node_search`) and puts the answer together object by object (`answer_chain`). What the searches
share is in `search_context`: objects loaded by `object_loader` through an `object_reader`,
`stream_filters`, and `sparse_index`, which is upstream's. `options` has the strategies, `result`
the answer, `stats` what it cost.
"""

__all__ = [
    "answer_chain",
    "node_search",
    "object_loader",
    "object_reader",
    "options",
    "result",
    "search_context",
    "sparse_index",
    "stats",
    "stream_filters",
    "stream_lookup",
]
