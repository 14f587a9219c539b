"""Lookups: find the objects that hold a range of a stream's offsets, loading as few as possible.

`stream_lookup` has `StreamLookup`: read it first. It searches one node after the other
(`node_search`) and builds the answer object by object (`answer_chain`). `search_context` has what
searches share: objects loaded by `object_loader` through an `object_reader`, `stream_filters`, and
AutoMQ's `sparse_index`. `options` has the strategies, `result` the answer, `stats` its costs.
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
