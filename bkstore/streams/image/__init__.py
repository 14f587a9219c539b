"""Images: immutable snapshots of streams, nodes and objects.

`stream_image` has `StreamImage`: read it first. It consists of `streams_and_nodes` and of
`object_ranges`, the contents of stream set objects. `json_form` reads and writes it, `events`
derive the next one, `slice_checks` validate it. `compaction_limits` selects objects for
`compaction`, which joins them by `folding` their slices.
"""

__all__ = [
    "compaction",
    "compaction_limits",
    "events",
    "folding",
    "json_form",
    "object_ranges",
    "slice_checks",
    "stream_image",
    "streams_and_nodes",
]
