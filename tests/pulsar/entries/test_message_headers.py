"""Headers of a topic's entries: from bytes that are written field by field, as the .proto files and
Pulsar's `Commands` say."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from bkstore.errors import CorruptionError
from bkstore.pulsar.entries import (
    EntryProblem,
    MessageHeaders,
    decode_headers,
    find_digest_size,
    read_names,
    verify_checksum,
)
from tests.docs.format_pages import shown_bytes
from tests.pulsar.samples import NOW, field, message_entry, message_metadata

_PLAIN = message_entry(message_metadata(), checksum=False)


def _decode(*entries: bytes, available: list[int] | None = None) -> tuple[bytes, MessageHeaders]:
    """Decode entries that lie in one buffer, with other bytes between them."""
    data = b"".join(b"\x0e" + each + b"\x02" for each in entries)
    sizes = np.array([len(each) for each in entries], np.int64)
    starts = np.cumsum(sizes + 2) - sizes - 1
    ends = starts + sizes
    limits = None if available is None else starts + np.array(available, np.int64)
    return data, decode_headers(np.frombuffer(data, np.uint8), starts, ends, limits)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("broker", [None, (NOW + 7, 41)])
@pytest.mark.parametrize("compacted", [None, (12, 0)])
def test_parts(
    checksum: bool, broker: tuple[int, int] | None, compacted: tuple[int, int] | None
) -> None:
    """Each part before the message metadata may be missing."""
    metadata = message_metadata(9, NOW + 3, batch=17)
    entry = message_entry(metadata, checksum=checksum, broker=broker, compacted=compacted)
    data, headers = _decode(_PLAIN, entry, _PLAIN)

    assert [True, True, True] == headers.is_decoded.tolist()
    assert [5, 9, 5] == headers.sequence_id.tolist()
    assert [NOW, NOW + 3, NOW] == headers.publish_time.tolist()
    assert [1, 17, 1] == headers.messages.tolist()
    expected_broker = (-1, -1) if broker is None else broker
    assert expected_broker == (headers.broker_time[1], headers.broker_index[1])
    expected_id = (-1, -1) if compacted is None else compacted
    assert expected_id == (headers.compacted_ledger[1], headers.compacted_entry[1])
    start, payload = int(headers.metadata_offset[1]), int(headers.payload_offset[1])
    assert metadata == data[start:payload]
    assert b"secret" == data[payload : payload + 6]
    stored = int(headers.checksum[1])
    assert checksum == (stored >= 0)
    if checksum:
        assert verify_checksum(data, start, payload + 6, stored)
        assert not verify_checksum(data, start, payload + 5, stored)


def test_fields() -> None:
    """All fields, in any order; unknown ones are skipped; a repeated one counts as its last."""
    more = (
        field(4, field(1, "trace") + field(2, "x" * 300))
        + field(8, 3)
        + field(9, 70_000)
        + field(12, NOW - 1)
        + field(13, field(1, "key-1") + field(2, b"\0\1"))
        + field(20, 10)
        + field(27, 3)
        + field(99, b"later")
    )
    late = field(11, 4) + field(11, 6) + field(3, NOW + 1) + field(1, "p") + field(2, -1)
    _, headers = _decode(message_entry(message_metadata(more=more)), message_entry(more + late))

    assert [NOW, NOW + 1] == headers.publish_time.tolist()
    assert [5, -1] == headers.sequence_id.tolist()
    assert [1, 6] == headers.messages.tolist()
    assert [[3, 3], [70_000] * 2, [NOW - 1] * 2, [10, 10], [True, True]] == [
        headers.compression.tolist(),
        headers.uncompressed_size.tolist(),
        headers.event_time.tolist(),
        headers.marker_type.tolist(),
        headers.is_encrypted.tolist(),
    ]


def test_defaults() -> None:
    """A field that is missing has the value that the .proto file states."""
    _, headers = _decode(_PLAIN)

    assert [0, 0, 0, -1, False, 1] == [
        *(int(column[0]) for column in (headers.compression, headers.uncompressed_size)),
        *(int(column[0]) for column in (headers.event_time, headers.marker_type)),
        bool(headers.is_encrypted[0]),
        int(headers.messages[0]),
    ]


_LACKING = struct.pack(">I", 2) + field(2, 5)
_METADATA = message_metadata()


@pytest.mark.parametrize(
    ("entry", "problem", "offset"),
    [
        (b"", EntryProblem.SHORT, 0),
        (b"\0\0\0", EntryProblem.SHORT, 0),
        (b"\x0e\x01\0\0\0", EntryProblem.SHORT, 2),
        (b"\x0e\x01\0\0\0\0\0\0", EntryProblem.SHORT, 6),
        (b"\x0e\x02\0\0\0\x05\x08\x01", EntryProblem.BROKER_METADATA, 2),
        (b"\x0e\x02\0\0\0\x01\x08" + _PLAIN, EntryProblem.BROKER_METADATA, 6),
        (b"\0\0\0\x02\x08\x01" + _PLAIN, EntryProblem.COMPACTED_ID, 4),
        (b"\0\0\0\x05\x08\x01\x10\x01\x18" + _PLAIN, EntryProblem.COMPACTED_ID, 8),
        (b"\0\0\0\x04\x08\x01\x10\x01\0\0\0\x01" + _PLAIN, EntryProblem.COMPACTED_SIZE, 8),
        (struct.pack(">I", len(_METADATA) + 1) + _METADATA, EntryProblem.METADATA_SIZE, 0),
        (b"\xff\xff\xff\xff" + _METADATA, EntryProblem.METADATA_SIZE, 0),
        (struct.pack(">I", len(_METADATA) - 1) + _METADATA, EntryProblem.METADATA, 18),
        (_LACKING, EntryProblem.REQUIRED_FIELDS, 4),
        (b"\0\0\0\0\0", EntryProblem.REQUIRED_FIELDS, 4),
        (b"hello world, hello world", EntryProblem.METADATA_SIZE, 0),
    ],
)
def test_other_entries(entry: bytes, problem: EntryProblem, offset: int) -> None:
    """What is no entry of a topic has a problem and its offset; its neighbors are decoded."""
    _, headers = _decode(_PLAIN, entry, _PLAIN)

    start = 1 + len(_PLAIN) + 2
    assert [0, problem, 0] == headers.problem.tolist()
    assert [-1, start + offset, -1] == headers.problem_offset.tolist()
    assert [True, False, True] == headers.is_decoded.tolist()
    assert problem.reason


def test_every_cut() -> None:
    """Of an entry cut before its payload nothing is decoded, and no byte behind it is read."""
    whole = message_entry(message_metadata(batch=2), broker=(1, 2), compacted=(3, 4))
    header_size = len(whole) - len(b"secret")
    cuts = [whole[:size] for size in range(header_size)]
    _, headers = _decode(*cuts)

    assert (headers.problem > 0).all()
    assert not headers.is_decoded.any()


def test_bytes_that_are_not_in_the_buffer() -> None:
    """Each entry says how many bytes it needs, until it has its metadata."""
    entry = message_entry(message_metadata(batch=2), broker=(1, 2), compacted=(3, 4))
    header_size = len(entry) - len(b"secret")
    size, steps = 0, 0
    while True:
        _, headers = _decode(_PLAIN, entry, available=[len(_PLAIN), size])
        assert [0, 0] == headers.problem.tolist()
        assert headers.needed[0] == 0
        if headers.needed[1] == 0:
            break
        assert size < headers.needed[1] <= header_size
        size, steps = int(headers.needed[1]), steps + 1

    assert header_size == size
    assert 4 < steps < 12
    assert [True, True] == headers.is_decoded.tolist()


@pytest.mark.parametrize("digest_size", [0, 4, 8, 20])
@pytest.mark.parametrize("broker", [None, (1, 2)])
def test_digest_sizes(digest_size: int, broker: tuple[int, int] | None) -> None:
    """The size of the digests is that by which most entries are a topic's."""
    rng = np.random.default_rng(digest_size)
    entries = [
        rng.bytes(digest_size) + message_entry(message_metadata(each), broker=broker)
        for each in range(20)
    ]
    data = b"".join([*entries, rng.bytes(50)])
    sizes = np.array([*map(len, entries), 50], np.int64)
    ends = np.cumsum(sizes)
    found = find_digest_size(np.frombuffer(data, np.uint8), ends - sizes, ends)

    assert digest_size == found


def test_entries_of_other_applications_have_no_digest_size() -> None:
    """Of entries that are no topic's there is none."""
    data = np.frombuffer(b"another application's entry" * 4, np.uint8)
    assert find_digest_size(data, np.array([0, 27]), np.array([27, 54])) is None


def test_names() -> None:
    """Producer, names of properties and keys come once each; what is not UTF-8 has escapes."""
    more = b"".join(
        field(number, field(1, name) + field(2, b"value"))
        for number, name in ((4, "b"), (4, "ä"), (4, "b"), (13, "key"), (13, b"\xff"))
    )
    names = read_names(message_metadata(more=more))

    assert ("producer-1", ("b", "ä"), ("key", "\\xff")) == names
    with pytest.raises(CorruptionError, match="no message metadata"):
        read_names(b"\x0a\x05")


def test_page() -> None:
    """The example of the format page."""
    entry = shown_bytes("pulsar.md", "entry")
    _, headers = _decode(entry)

    assert [1000, 5, 2, 1001, 41, 32] == [
        int(column[0])
        for column in (
            *(headers.publish_time, headers.sequence_id, headers.messages),
            *(headers.broker_time, headers.broker_index, headers.payload_offset),
        )
    ]
    assert verify_checksum(entry, 21, len(entry), int(headers.checksum[0]))
