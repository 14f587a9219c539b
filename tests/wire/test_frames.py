"""Frames: limits, lying lengths, and the cost of many pieces."""

from __future__ import annotations

import tracemalloc
from typing import Any, Self

import pytest

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.wire import frames
from bkstore.wire.frames import MAX_FRAME_BYTES, FrameSplitter, frame


def test_the_limit_counts_the_length_field() -> None:
    """The longest frame has 5 MiB, its four bytes of length among them, both ways."""
    longest = bytes(5 * 1024 * 1024 - 4)
    splitter = FrameSplitter()
    splitter.feed(frame(longest, limit=MAX_FRAME_BYTES))

    assert [longest] == list(splitter.frames())
    with pytest.raises(InvalidArgument, match="frame of 5242881 bytes is above the limit"):
        frame(longest, b"x", limit=MAX_FRAME_BYTES)

    splitter.feed(frame(longest, b"x")[:4])

    with pytest.raises(CorruptionError, match="offset 5242880: frame length 5242877 is above"):
        list(splitter.frames())


def test_an_answer_has_no_limit_unless_told() -> None:
    """Without a limit a longer frame is made, as a real bookie does; parts stand in order."""
    assert b"\x00\x50\x00\x01a" + bytes(MAX_FRAME_BYTES) == frame(b"a", bytes(MAX_FRAME_BYTES))


@pytest.mark.parametrize("limit", [3, -1, 2**31])
def test_impossible_limits(limit: int) -> None:
    """A limit holds a length field and fits one."""
    with pytest.raises(InvalidArgument, match="frame limit"):
        FrameSplitter(limit)


def test_frames_before_damage_come_first() -> None:
    """What is whole before a bad length is yielded; then the same error, whatever follows."""
    splitter = FrameSplitter(64)
    splitter.feed(frame(b"good") + b"\xff\xff\xff\xff" + frame(b"lost"))
    messages = splitter.frames()

    assert b"good" == next(messages)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="offset 8: frame length -1 is negative"):
            list(messages)
        messages = splitter.frames()
        splitter.feed(frame(b"more"))
    with pytest.raises(CorruptionError, match="offset 8"):
        splitter.feed_eof()

    assert 0 == splitter.pending_bytes


def test_an_end_inside_a_frame() -> None:
    """A stream may end between frames only; what a next feed completes is no damage."""
    splitter = FrameSplitter()
    splitter.feed(frame(b"one") + frame(b"two")[:6])

    assert [b"one"] == list(splitter.frames())
    with pytest.raises(CorruptionError, match="offset 7: stream ends 6 bytes into a frame"):
        splitter.feed_eof()

    splitter.feed(b"o")

    assert [b"two"] == list(splitter.frames())

    splitter.feed_eof()


def test_lying_lengths_cost_no_memory() -> None:
    """A length of 5 MiB takes no more memory than the bytes that came."""
    frame(b"")
    tracemalloc.start()
    splitter = FrameSplitter()
    splitter.feed((MAX_FRAME_BYTES - 4).to_bytes(4, "big") + bytes(1000))
    found = list(splitter.frames())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [] == found
    assert peak < 20_000


class _CountedBuffer(bytearray):
    """A buffer that counts the bytes that are copied into it, out of it, and within it."""

    copied = 0

    def __iadd__(self, data: Any) -> Self:
        type(self).copied += len(data)
        return super().__iadd__(data)

    def __add__(self, data: Any) -> Self:
        type(self).copied += len(self) + len(data)
        return type(self)(super().__add__(data))

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, int):
            return value
        type(self).copied += len(value)
        return type(self)(value)


def _count_bytes(value: Any) -> bytes:
    copy = bytes(value)
    _CountedBuffer.copied += len(copy)
    return copy


@pytest.mark.parametrize("whole", [True, False], ids=["many frames at once", "one in pieces"])
def test_each_byte_is_copied_twice(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the buffer and out of it, however many frames a piece has, or pieces a frame."""
    monkeypatch.setattr(frames, "bytearray", _CountedBuffer, raising=False)
    monkeypatch.setattr(frames, "bytes", _count_bytes, raising=False)
    monkeypatch.setattr(_CountedBuffer, "copied", 0)
    size, count = 100, 2_000
    stream = frame(bytes(size)) * count if whole else frame(bytes(size * count))
    step = len(stream) if whole else size
    splitter = FrameSplitter(2**30)
    messages = []
    for start in range(0, len(stream), step):
        splitter.feed(stream[start : start + step])
        messages += splitter.frames()

    assert [bytes(size)] * count == messages if whole else [bytes(size * count)] == messages
    assert len(stream) + size * count == _CountedBuffer.copied
