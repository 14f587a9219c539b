"""The entries of Pulsar's topics: who published which messages when, without their payload.

`message_headers` decodes the headers of many entries to arrays: read it first. `entry_parts` finds
where the parts of an entry are, and `entry_names` the names in a single header.
`published_messages` decodes those of many ledgers, for index rows. Bytes:
`docs/formats/pulsar.md`.
"""

from bkstore.pulsar.entries.entry_names import EntryNames, read_names, verify_checksum
from bkstore.pulsar.entries.entry_parts import EntryProblem
from bkstore.pulsar.entries.message_headers import (
    COMPRESSIONS,
    MessageHeaders,
    decode_headers,
    find_digest_size,
    find_digest_sizes,
)

__all__ = [
    "COMPRESSIONS",
    "EntryNames",
    "EntryProblem",
    "MessageHeaders",
    "decode_headers",
    "find_digest_size",
    "find_digest_sizes",
    "read_names",
    "verify_checksum",
]
