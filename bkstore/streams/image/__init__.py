"""Images: what streams, nodes and objects there are, each an immutable snapshot.

`stream_image` has `StreamImage`: read it first. It is made of `streams_and_nodes` and of
`object_ranges`, what one stream set object holds. `json_form` reads and writes it, `events` makes
the next image of it, `checks` says what no image may be. `compaction` joins stream set objects,
by `folding` their slices.
"""

__all__ = [
    "checks",
    "compaction",
    "events",
    "folding",
    "json_form",
    "object_ranges",
    "stream_image",
    "streams_and_nodes",
]
