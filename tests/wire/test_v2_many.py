"""Requests alike as arrays: they are what the messages say one by one, and so are the answers."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError
from bkstore.formats.entry import Entry, RecordBatch, encode
from bkstore.wire import v2
from bkstore.wire.frames import FrameSplitter, frame
from bkstore.wire.status_codes import Status

KEY, OTHER, LAST = b"k" * 20, b"K" + b"k" * 19, b"k" * 19 + b"K"


def _record(ledger: int, entry: int, payload: bytes = b"") -> bytes:
    return encode(Entry(ledger, entry, -1, 0, payload), "CRC32C", "pw")


def _grouped(messages: list[bytes]) -> list[tuple[int, Any]]:
    sizes = np.array([len(message) for message in messages], np.int64)
    return list(v2.group_requests(b"".join(messages), np.cumsum(sizes) - sizes, sizes))


def _message(request: v2.Request) -> bytes:
    return b"".join(request.parts())


def _unpacked(requests: v2.AddRequests | v2.ReadRequests) -> list[v2.Request]:
    """Return the single requests that many are."""
    if isinstance(requests, v2.ReadRequests):
        ids = zip(requests.ledger_ids.tolist(), requests.entry_ids.tolist())
        return [v2.ReadRequest(*one, 0, None, requests.version) for one in ids]
    assert requests.ledger_ids.tolist() == [
        struct.unpack(">q", record[:8])[0] for record in requests.batch.records()
    ]
    assert requests.batch.entries.tolist() == [
        struct.unpack(">q", record[8:16])[0] for record in requests.batch.records()
    ]
    key, flags, version = requests.master_key, requests.flags, requests.version
    return [v2.AddRequest(key, record, flags, version) for record in requests.batch.records()]


ADDS = st.builds(
    lambda key, ledger, entry, size, flags, version: _message(
        v2.AddRequest(key, _record(ledger, entry, b"x" * size), flags, version)
    ),
    st.sampled_from([KEY, OTHER, LAST]),
    st.sampled_from([7, 8, 2**63 - 1]),
    st.integers(0, 2**40),
    st.integers(0, 3),
    st.sampled_from([0, 2, 4]),
    st.sampled_from([1, 2]),
)
READS = st.builds(
    lambda ledger, entry, version: _message(v2.ReadRequest(ledger, entry, 0, None, version)),
    st.sampled_from([7, 8]),
    st.integers(-1, 5),
    st.sampled_from([1, 2]),
)
WINDOWS = st.builds(
    lambda ledger, first, count: [
        _message(v2.ReadRequest(ledger, entry)) for entry in range(first, first + count)
    ],
    st.sampled_from([7, 8, -7]),
    st.integers(-2, 5),
    st.integers(1, 9),
)
ODD = st.sampled_from(
    [
        _message(v2.ReadRequest(7, 3, v2.Flags.DO_FENCING, KEY)),
        _message(v2.BatchReadRequest(7, 3, 1, 5, 100)),
        _message(v2.AuthRequest(b"plugin", b"token")),
        _message(v2.AddRequest(KEY, _record(7, 1), version=0)),
        _message(v2.ReadRequest(7, 3)) + b"ignored",
        _message(v2.AddRequest(KEY, b"\xff" * 40)),
        _message(v2.AddRequest(KEY, _record(7, 0)[:31])),
        _message(v2.ReadRequest(7, 3, version=3)),
        _message(v2.ReadRequest(7, 3, 1, version=1)),
    ]
)


@given(
    st.lists(
        st.one_of(
            st.lists(ADDS, min_size=1, max_size=2),
            ADDS.map(lambda message: [message] * 5),
            st.lists(READS, min_size=1, max_size=2),
            WINDOWS,
            st.lists(ODD, min_size=1, max_size=5),
        ),
        max_size=8,
    )
)
def test_groups_say_what_messages_say(parts: list[list[bytes]]) -> None:
    """All messages are there once, in order; those in groups say what they say one by one."""
    messages = [message for part in parts for message in part]
    at = 0
    for count, requests in _grouped(messages):
        if requests is not None:
            assert _unpacked(requests) == [v2.decode_request(m) for m in messages[at : at + count]]
        at += count

    assert at == len(messages)


def test_what_goes_into_a_group() -> None:
    """Four adds of any ledgers and sizes under one key, with equal flags; reads of entries in a
    row; what fences, asks for the last entry or is of another kind is looked at by itself."""
    adds = [_message(v2.AddRequest(KEY, _record(7 + n % 2, n, b"x" * n))) for n in range(4)]
    urgent = [_message(v2.AddRequest(KEY, _record(7, n), 4)) for n in range(4)]
    other = [_message(v2.AddRequest(OTHER, _record(7, n), 4)) for n in range(5)]
    reads = [_message(v2.ReadRequest(7, entry)) for entry in range(-1, 5)]
    apart = [_message(v2.ReadRequest(7, entry)) for entry in (9, 11, 13, 15)]
    elsewhere = [_message(v2.ReadRequest(8, entry)) for entry in range(16, 20)]
    fencing = [_message(v2.ReadRequest(8, entry, 1, KEY)) for entry in range(20, 24)]

    found = _grouped([*adds, *urgent, *other, *reads, *apart, *elsewhere, *fencing])

    assert [4, 4, 5, 1, 5, 4, 4, 4] == [count for count, _ in found]
    kinds = ["AddRequests"] * 3 + ["NoneType", "ReadRequests", "NoneType", "ReadRequests"]
    assert [*kinds, "NoneType"] == [type(requests).__name__ for _, requests in found]
    assert [0, 4, 4] == [requests.flags for _, requests in found[:3]]
    assert [KEY, KEY, OTHER] == [requests.master_key for _, requests in found[:3]]
    assert [0, 1, 2, 3, 4] == found[4][1].entry_ids.tolist()
    assert [8] * 4 == found[6][1].ledger_ids.tolist()


def test_a_few_are_looked_at_one_by_one() -> None:
    """Three alike are no group, and stand with their neighbors."""
    three = [_message(v2.ReadRequest(7, entry)) for entry in range(3)]

    assert [(3, None)] == _grouped(three)
    assert [] == _grouped([])


@pytest.mark.parametrize("sizes", [(5, 5, 5), (5, 0, 9)])
def test_answers_are_those_of_single_requests(sizes: tuple[int, ...]) -> None:
    """Frames of many answers are the frames of each, one behind the other."""
    ledgers, entries = np.array([7, 8, 2**62]), np.array([0, 2**40, 3])
    for status in (Status.EOK, Status.EFENCED):
        wanted = [
            frame(*v2.AddResponse(status, ledger, entry, 1).parts())
            for ledger, entry in zip(ledgers.tolist(), entries.tolist())
        ]
        assert b"".join(wanted) == v2.encode_add_responses(1, status, ledgers, entries)
    records = [_record(7, n, b"y" * size) for n, size in enumerate(sizes)]
    batch = RecordBatch.of([b"before", *records], range(4)).between(1, 4)
    wanted = [
        frame(*v2.ReadResponse(Status.EOK, ledger, entry, record).parts())
        for ledger, entry, record in zip(ledgers.tolist(), entries.tolist(), records)
    ]

    assert b"".join(wanted) == v2.encode_read_responses(2, ledgers, entries, batch)


@given(st.lists(st.one_of(ADDS.map(lambda one: [one] * 6), WINDOWS, st.lists(ODD, max_size=2))))
def test_a_leading_window_says_what_messages_say(parts: list[list[bytes]]) -> None:
    """Whatever stands behind it, and whatever a stretch begins with: whole frames, as they are."""
    messages = [message for part in parts for message in part]
    data = b"".join(map(frame, messages)) + b"\0\0"
    size, requests = v2.decode_leading_group(data, 1000, 1 << 20)
    count = 0 if requests is None else len(_unpacked(requests))

    assert size == sum(len(message) + 4 for message in messages[:count])
    if requests is not None:
        assert _unpacked(requests) == [v2.decode_request(m) for m in messages[:count]]
        assert count >= 4


def test_what_a_leading_window_is() -> None:
    """Frames of one size that are alike, as many as may be taken; the first other one ends it."""
    adds = [frame(*v2.AddRequest(KEY, _record(7 + n % 2, n, b"xy")).parts()) for n in range(9)]
    reads = [frame(*v2.ReadRequest(7, entry).parts()) for entry in range(3, 12)]
    size = len(adds[0])
    for end in (
        frame(*v2.AddRequest(OTHER, _record(7, 9, b"xy")).parts()),
        frame(*v2.AddRequest(LAST, _record(7, 9, b"xy")).parts()),
        frame(*v2.AddRequest(KEY, _record(7, 9, b"xyz")).parts()),
        frame(*v2.AddRequest(KEY, _record(7, 9, b"xy"), 2).parts()),
        frame(*v2.AddRequest(KEY, _record(7, 9, b"xy"), version=1).parts()),
        frame(*v2.AddRequest(KEY, b"\x80" + _record(7, 9, b"xy")[1:]).parts()),
        adds[0][:-1],
        b"",
    ):
        found, requests = v2.decode_leading_group(b"".join(adds) + end, 100, 1 << 20)
        assert (9 * size, 9) == (found, len(_unpacked(requests)))  # type: ignore[arg-type]
    for end in (reads[0], frame(*v2.ReadRequest(8, 12).parts()), adds[0]):
        found, requests = v2.decode_leading_group(b"".join(reads) + end, 100, 1 << 20)
        assert (9 * 24, list(range(3, 12))) == (found, requests.entry_ids.tolist())  # type: ignore[union-attr]
    whole = b"".join(adds)
    assert 5 * size == v2.decode_leading_group(whole, 5, 1 << 20)[0]
    assert 5 * size == v2.decode_leading_group(whole, 100, 4 * size)[0]
    assert (0, None) == v2.decode_leading_group(whole, 3, 1 << 20)
    assert (0, None) == v2.decode_leading_group(b"".join(adds[:3]) + reads[0], 100, 1 << 20)
    last = [frame(*v2.ReadRequest(7, entry).parts()) for entry in range(-1, 8)]
    assert (0, None) == v2.decode_leading_group(b"".join(last), 100, 1 << 20)
    fencing = frame(*v2.ReadRequest(7, 3, 1, KEY).parts())
    assert (0, None) == v2.decode_leading_group(fencing * 9, 100, 1 << 20)
    old = [frame(*v2.ReadRequest(7, n, 1, version=1).parts()) for n in range(9)]  # without a key
    assert (0, None) == v2.decode_leading_group(b"".join(old), 100, 1 << 20)
    short = frame(*v2.AddRequest(KEY, _record(7, 0)[:31]).parts())
    assert (0, None) == v2.decode_leading_group(short * 9, 100, 1 << 20)
    for data in (b"", b"\0\0", b"\xff" * 400, bytes(400)):
        assert (0, None) == v2.decode_leading_group(data, 100, 1 << 20)


# -- stretches of frames


@given(
    st.lists(st.binary(max_size=6), max_size=12),
    st.lists(st.integers(1, 30), max_size=6),
    st.integers(1, 5),
    st.integers(1, 30),
)
def test_stretches_are_what_single_frames_are(
    messages: list[bytes], cuts: list[int], most: int, enough: int
) -> None:
    """Taken in stretches, with what they leave taken one by one, all messages come in order."""
    data = b"".join(map(frame, messages))
    splitter, found = FrameSplitter(64), []
    pieces = [data[a:b] for a, b in zip([0, *np.cumsum(cuts)], [*np.cumsum(cuts), len(data)])]
    for piece in pieces:
        splitter.feed(piece)
        while True:
            buffer, offsets, sizes = splitter.take_frames(most, enough)
            whole = [buffer[a : a + n] for a, n in zip(offsets.tolist(), sizes.tolist())]
            assert len(whole) <= most
            assert not whole or sum(len(one) + 4 for one in whole[:-1]) < enough
            one = [] if whole else [next(splitter.frames(), None)]
            if one == [None]:
                break
            found += [*whole, *[message for message in one if message is not None]]

    assert messages == found
    assert 0 == splitter.pending_bytes


@pytest.mark.parametrize("size", [-1, 61, 2**31 - 1])
def test_a_stretch_ends_before_a_bad_length(size: int) -> None:
    """What is whole before it comes; then there is nothing, and `frames` says what is wrong."""
    splitter = FrameSplitter(64)
    splitter.feed(frame(b"one") + frame(b"two") + struct.pack(">i", size) + bytes(100))
    buffer, offsets, sizes = splitter.take_frames(9, 1000)

    assert ([4, 11], [3, 3]) == (offsets.tolist(), sizes.tolist())
    assert frame(b"one") + frame(b"two") == buffer
    assert 0 == splitter.take_frames(9, 1000)[1].size
    assert splitter.peek().startswith(struct.pack(">i", size))
    with pytest.raises(CorruptionError, match=f"offset 14: frame length {size}"):
        list(splitter.frames())
    assert 0 == splitter.take_frames(9, 1000)[1].size


def test_bytes_that_are_skipped_are_counted() -> None:
    """Frames that the caller has looked at are taken; what is behind them is where it was."""
    splitter = FrameSplitter(64)
    splitter.feed(frame(b"one") + frame(b"three") + b"\xff\xff\xff\xff")

    assert frame(b"one") + frame(b"three") + b"\xff\xff\xff\xff" == splitter.peek()
    splitter.skip(7)
    assert (frame(b"three") + b"\xff\xff\xff\xff", 13) == (splitter.peek(), splitter.pending_bytes)
    assert b"three" == next(splitter.frames())
    with pytest.raises(CorruptionError, match="offset 16: frame length -1"):
        list(splitter.frames())
