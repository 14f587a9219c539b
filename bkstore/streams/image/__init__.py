"""Images: immutable snapshots of streams, nodes and objects.

`stream_image` has `StreamImage`: read it first. It consists of `streams_and_nodes` and of
`object_ranges`, the contents of stream set objects. `json_form` reads and writes it, `events`
derive the next one, `checks` validates it. `compaction_limits` selects objects that `compaction`
joins, by `folding` their slices.
"""

__all__ = [
    "checks",
    "compaction",
    "compaction_limits",
    "events",
    "folding",
    "json_form",
    "object_ranges",
    "stream_image",
    "streams_and_nodes",
]
