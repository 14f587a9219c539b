"""Fields of many protobuf messages as arrays, against the protobuf library."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bkstore.formats.syntax.field_columns import FieldColumns, scan_fields
from bkstore.formats.syntax.proto_messages import declare
from tests.pulsar.samples import field, varint

_WANTED: dict[int, Any] = {1: "varint", 2: "bytes", 20: "varint"}
_Message: Any = declare(
    "tests.arrays", "M: repeated int64 number 1, repeated bytes text 2, repeated int64 last 20"
)["M"]
_Single: Any = declare(
    "tests.single", "M: optional int64 number 1, optional bytes text 2, optional int64 last 20"
)["M"]  # of repeated numbers the library accepts the packed form, too


def _scan(messages: list[bytes]) -> tuple[np.ndarray, FieldColumns]:
    """Scan messages that lie in one buffer, with other bytes between them."""
    data = np.frombuffer(b"".join(b"\xff" + each + b"\x80" for each in messages), np.uint8)
    sizes = np.array([len(each) for each in messages], np.int64)
    starts = np.cumsum(sizes + 2) - sizes - 1
    return data, scan_fields(data, starts, starts + sizes, _WANTED)


def _random_message(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.randrange(6)):
        number = rng.choice([1, 2, 20, 3, 17, 500])
        if number in (1, 20):
            parts.append(field(number, rng.choice([0, 1, 127, 128, 2**35, 2**63 - 1, -1])))
        elif number == 2:
            parts.append(field(2, rng.randbytes(rng.choice([0, 1, 130]))))
        else:  # a field that is skipped, of any type
            wire = rng.choice([0, 1, 2, 5])
            content = {0: varint(rng.getrandbits(64)), 1: bytes(8), 2: b"\3abc", 5: bytes(4)}[wire]
            parts.append(varint(number << 3 | wire) + content)
    return b"".join(parts)


def test_fields_of_random_messages() -> None:
    """Counts and last values are those that the library parses."""
    rng = random.Random(1)
    messages = [_random_message(rng) for _ in range(2000)]
    data, columns = _scan(messages)

    assert (columns.problem_offset == -1).all()
    for row, message in enumerate(messages):
        parsed = _Message()
        parsed.ParseFromString(message)
        for number, values in ((1, parsed.number), (20, parsed.last), (2, parsed.text)):
            column = columns.fields[number]
            assert len(values) == column.occurrences[row], message.hex()
            value, offset = int(column.value[row]), int(column.offset[row])
            if number == 2:
                assert (values or [b""])[-1] == bytes(data[offset : offset + value])
            else:
                assert (values or [0])[-1] == value


def test_damaged_messages() -> None:
    """What the library refuses is damaged, and the other way round, whatever lies behind it."""
    rng = random.Random(2)
    messages = []
    while len(messages) < 3000:
        message = bytearray(_random_message(rng))
        if message:
            message[rng.randrange(len(message))] ^= 1 << rng.randrange(8)
            messages.append(bytes(message[: rng.randrange(len(message) + 1)]))
    _, columns = _scan(messages)
    refused = 0
    for row, message in enumerate(messages):
        try:
            is_damaged = _misplaced(message)
        except DecodeError:
            is_damaged = True
        refused += is_damaged
        assert is_damaged == (columns.problem_offset[row] >= 0), message.hex()
    assert refused > 500


def _misplaced(message: bytes) -> bool:
    """Return whether a wanted field has another type, or a field is a group, which the library
    accepts; raises `DecodeError` for what it refuses."""
    parsed: Any = _Single()
    parsed.ParseFromString(message)
    unknown: Any = UnknownFieldSet(parsed)
    return any(each.field_number in _WANTED or each.wire_type in (3, 4) for each in unknown)


def test_where_the_damage_is() -> None:
    """The offset is that of the first field that cannot be read."""
    good = field(1, 300)
    for bad in (b"\x00\x01", b"\x0b", b"\x12\x05abc", b"\x08" + b"\xff" * 10, b"\x0d\0\0", b"\x80"):
        _, columns = _scan([good, good + bad])

        assert [-1, 1 + len(good) + 2 + len(good)] == columns.problem_offset.tolist()
        assert [300, 300] == columns.fields[1].value.tolist()


def test_no_messages() -> None:
    """Without messages, and of empty ones, there are no fields."""
    _, columns = _scan([])
    assert columns.problem_offset.size == 0
    _, columns = _scan([b"", field(1, 7)])
    assert [0, 1] == columns.fields[1].occurrences.tolist()
