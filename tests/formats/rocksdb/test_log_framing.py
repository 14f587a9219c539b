"""RocksDB's log format, against files that the binding wrote and records put together by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, strategies as st
from rocksdict import Options, Rdict, WriteBatch

from bkstore import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.log.framing import LogRecordReader, encode_records

BLOCK = 32768


def read(data: bytes, log_number: int = 7) -> tuple[list[tuple[int, bytes]], int | None]:
    """Return the records of a file's bytes, and where a torn end begins."""
    position = 0

    def blocks() -> list[bytes]:
        return [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]

    def only_zeros() -> bool:
        return not any(data[position:])

    def counted() -> object:
        nonlocal position
        for block in blocks():
            position += len(block)
            yield block

    reader = LogRecordReader(counted(), log_number, only_zeros)  # type: ignore[arg-type]
    records = list(reader)
    return records, reader.torn_offset


def record(kind: int, payload: bytes, log_number: int | None = None) -> bytes:
    """Return one fragment, by the rules of `db/log_format.h`."""
    checked = bytes([kind])
    checked += b"" if log_number is None else struct.pack("<I", log_number)
    crc = google_crc32c.value(checked + payload)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IH", masked, len(payload)) + checked + payload


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=6), st.integers(0, 255))
def test_round_trip(sizes: list[int], seed: int) -> None:
    """Records of any size come back, each with the offset where it begins."""
    payloads = [bytes([(seed + index) % 256]) * size for index, size in enumerate(sizes)]
    records, torn = read(encode_records(payloads))

    assert payloads == [payload for _, payload in records]
    assert torn is None


@pytest.mark.parametrize("room", range(9))
def test_the_end_of_a_block(room: int) -> None:
    """Fewer than seven bytes are filled with zeros; with exactly seven, an empty first fragment."""
    first = bytes(BLOCK - 7 - room)
    data = encode_records([first, b"ab"])
    starts_in_block = room >= 7
    expected = (len(first) + 7) if starts_in_block else BLOCK

    assert ([(0, first), (expected, b"ab")], None) == read(data)
    assert record(2, b"ab"[: room - 7]) == data[expected:BLOCK] or not 7 <= room < 9
    if not starts_in_block:
        assert bytes(room) + record(1, b"ab") == data[BLOCK - room :]


def test_recyclable_records_end_where_an_older_log_begins() -> None:
    """Records of types 5 to 8 hold the log's number; another one is of the file's previous use."""
    data = record(6, b"ab", 7) + record(7, b"cd", 7) + record(8, b"e", 7) + record(5, b"old", 3)

    assert ([(0, b"abcde")], None) == read(data)


@pytest.mark.parametrize("behind", [b"\0" * 40, b"old" * 20, b"\1", record(5, b"old", 3)[5:]])
@pytest.mark.parametrize("gap", [0, 2 * BLOCK])
def test_older_bytes_in_a_file_used_again(behind: bytes, gap: int) -> None:
    """They begin inside a record of the earlier log: the records end there. With a record of this
    log behind them, in any block, one of its records is damaged."""
    data = record(5, b"new", 7)
    older = behind + b"old" * gap

    assert ([(0, b"new")], len(data)) == read(data + older)
    for later in (record(5, b"later", 7), record(8, b"", 7)):
        with pytest.raises(CorruptionError) as caught:
            read(data + older + later + b"old")
        assert len(data) == caught.value.offset
    assert ([(0, b"new")], len(data)) == read(data + older + record(5, b"older", 3))


def test_a_record_of_a_newer_log_is_in_a_wrong_file() -> None:
    """A file that is used again has the numbers of older logs, modulo 2^32."""
    with pytest.raises(CorruptionError, match="record of a newer log, 8") as caught:
        read(record(5, b"ab", 7) + record(5, b"cd", 8))

    assert len(record(5, b"ab", 7)) == caught.value.offset
    assert ([], None) == read(record(5, b"ab", 2**32 - 1), 2**32 + 1)
    with pytest.raises(CorruptionError, match="record of a newer log, 1"):
        read(record(5, b"ab", 1), 2**32 - 1)


def test_settings_are_no_records() -> None:
    """Sizes of timestamps and the log before are passed over; no compression is none."""
    data = record(9, bytes(4)) + record(10, b"x") + record(130, b"y") + record(131, b"z", 7)

    assert ([(len(data), b"row")], None) == read(data + record(1, b"row"))


def test_a_compressed_log_is_refused_by_name() -> None:
    """The records behind it cannot be read as they are."""
    with pytest.raises(UnsupportedLayout, match="wal_compression"):
        read(record(9, struct.pack("<I", 7)) + record(1, b"row"))


@pytest.mark.parametrize(
    "fragments",
    [
        [(3, b"a")],
        [(4, b"a")],
        [(2, b"a"), (1, b"b")],
        [(2, b"a"), (2, b"b")],
        [(1, b"a"), (4, b"")],
    ],
)
def test_fragments_out_of_order(fragments: list[tuple[int, bytes]]) -> None:
    """A record that begins twice, or not at all, is damage where that is seen."""
    data = b"".join(record(kind, payload) for kind, payload in fragments)
    with pytest.raises(CorruptionError, match="out of order") as caught:
        read(data)

    assert sum(7 + len(payload) for _, payload in fragments[:-1]) == caught.value.offset


def three_records() -> tuple[bytes, list[int]]:
    """Return a small file, and where its records begin; the last one crosses a block."""
    payloads = [b"first", b"second" * 5, bytes(range(256)) * 160]
    data = encode_records(payloads)
    return data, [offset for offset, _ in read(data)[0]]


def test_every_cut() -> None:
    """A file cut anywhere has the records before the cut, and says where the torn one begins."""
    data, starts = three_records()
    ends = [*starts[1:], len(data)]
    for size in [*range(200), *range(BLOCK - 20, BLOCK + 20), len(data) - 1]:
        records, torn = read(data[:size])
        whole = [start for start, end in zip(starts, ends) if end <= size]

        assert whole == [offset for offset, _ in records], size
        begun = [start for start in starts if start < size and start not in whole]
        assert (begun[0] if begun else None) == torn, size


def read_or_locate_damage(
    data: bytes,
) -> tuple[list[tuple[int, bytes]], int | None, int | None]:
    """Return the records, where a torn end begins, and the offset of damage."""
    try:
        return *read(data), None
    except CorruptionError as error:
        return [], None, error.offset


def test_every_flip() -> None:
    """A flipped byte is damage at its record, or at the end a torn tail: no record changes."""
    data, starts = three_records()
    expected = read(data)[0]
    for position in [*range(60), *range(BLOCK - 9, BLOCK + 9), len(data) - 1]:
        flipped = bytearray(data)
        flipped[position] ^= 0x55
        begins = max(start for start in [*starts, BLOCK] if start <= position)
        records, torn, damage_offset = read_or_locate_damage(bytes(flipped))
        if damage_offset is None:  # only a length that now runs past the file's end
            assert BLOCK <= position
            assert (expected[:2], starts[2]) == (records, torn)
        else:
            assert begins == damage_offset


def test_a_length_past_the_end_before_whole_records_is_damage() -> None:
    """A torn record has nothing behind it: with a whole record there, its length is wrong."""
    data = bytearray(encode_records([b"first", b"second"]))
    data[5] = 0x7F  # the high byte of the first length
    with pytest.raises(CorruptionError) as caught:
        read(bytes(data))

    assert 0 == caught.value.offset
    assert ([], 0) == read(bytes(data[:12]))


def test_zeros_after_the_last_record_are_a_torn_end() -> None:
    """Space that was allocated ahead: however long, but nothing may follow."""
    data = encode_records([b"row"])

    assert ([(0, b"row")], len(data)) == read(data + bytes(2 * BLOCK))
    with pytest.raises(CorruptionError, match="zeros where a record begins"):
        read(data + bytes(2 * BLOCK) + b"x")


def test_files_of_the_binding(tmp_path: Path) -> None:
    """A manifest and a log of RocksDB, written again, are the same bytes."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(tmp_path), options)
    random = np.random.default_rng(5)
    for start in range(0, 4000, 800):
        batch = WriteBatch(raw_mode=True)
        for key in range(start, start + 800):
            batch.put(key.to_bytes(16, "big"), random.bytes(int(random.integers(0, 60))))
        database.write(batch)
    files = [next(tmp_path.glob("*.log")), next(tmp_path.glob("MANIFEST-*"))]
    contents = [file.read_bytes() for file in files]
    database.close()
    for file, data in zip(files, contents):
        records, torn = read(data, int("".join(filter(str.isdigit, file.name))))

        assert data == encode_records([payload for _, payload in records])
        assert torn is None
    assert 5 == len(read(contents[0])[0])
