"""Footers, indexes, properties and range deletes, against bytes built by RocksDB's rules."""

from __future__ import annotations

import struct

import pytest

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.checksums import ChecksumType
from bkstore.formats.rocksdb.table.block import unpack_block
from bkstore.formats.rocksdb.table.entries import block_entries
from bkstore.formats.rocksdb.table.footer import BlockHandle, decode_footer
from bkstore.formats.rocksdb.table.index import IndexFormat, decode_index, join_indexes
from bkstore.formats.rocksdb.table.properties import decode_properties
from bkstore.formats.rocksdb.table.range_deletes import RangeDelete, decode_range_deletes
from tests.formats.rocksdb.table.block_building import block, internal_key, varint

MAGIC = bytes.fromhex("f7cff485b741e288")


def footer(handles: bytes = b"\x80\x01\x10\x05\x20", version: int = 5, checksum: int = 2) -> bytes:
    """Return a footer up to version 5: metaindex of 16 bytes at 128, index of 32 at 5."""
    return bytes([checksum]) + handles.ljust(40, b"\0") + struct.pack("<I", version) + MAGIC


class TestFooter:
    """The last 53 bytes."""

    @pytest.mark.parametrize("version", [2, 3, 4, 5])
    def test_handles(self, version: int) -> None:
        """Two handles; what stands before the footer does not matter."""
        decoded = decode_footer(b"before" + footer(version=version), 300)

        assert BlockHandle(128, 16) == decoded.metaindex
        assert BlockHandle(5, 32) == decoded.index
        assert (ChecksumType.XXH32, version) == (decoded.checksum_type, decoded.format_version)
        assert 0 == decoded.base_checksum

    def test_blocks_end_before_it(self) -> None:
        """A block and its trailer may end where the footer begins, and no later."""
        assert decode_footer(footer(), 128 + 16 + 5 + 53)
        with pytest.raises(CorruptionError, match="not inside the file"):
            decode_footer(footer(), 128 + 16 + 5 + 52)

    @pytest.mark.parametrize("version", [0, 1, 7, 2**31])
    def test_other_versions(self, version: int) -> None:
        """Versions that are not read are named."""
        with pytest.raises(UnsupportedLayout, match=f"format version {version} "):
            decode_footer(footer(version=version), 300)

    def test_other_files(self) -> None:
        """Other tables of RocksDB are named; other files are not table files."""
        for magic, kind in {
            "57fb808b247547db": "LevelDB",
            "7378f1c5d0896792": "cuckoo",
            "6495bf6396224282": "plain",
        }.items():
            with pytest.raises(UnsupportedLayout, match=kind):
                decode_footer(footer()[:-8] + bytes.fromhex(magic), 300)
        with pytest.raises(CorruptionError, match="not a table file") as caught:
            decode_footer(footer()[:-1] + b"\0", 300)
        assert 300 - 8 == caught.value.offset

    def test_too_short(self) -> None:
        """A file of 52 bytes has no footer."""
        with pytest.raises(CorruptionError, match="52 bytes has no footer"):
            decode_footer(footer()[1:], 52)

    def test_unknown_checksum(self) -> None:
        """There are five types of checksums."""
        with pytest.raises(CorruptionError, match="unknown checksum type 5"):
            decode_footer(footer(checksum=5), 300)


def index_entries(first: bytes, second: bytes, deltas: bool) -> bytes:
    """Return an index block of three blocks with one restart point: handles 0+100, then 105+90,
    then 200+300, the last with a key that shares nothing."""
    contents = b"\0" + varint(len(first)) + (b"" if deltas else b"\2") + first + varint(0)
    contents += varint(100)
    shared = 2
    assert first[:shared] == second[:shared]
    contents += varint(shared) + varint(len(second) - shared)
    if deltas:
        contents += second[shared:] + varint(19)  # zigzag of -10: the second is 90 bytes
    else:
        contents += b"\2" + second[shared:] + varint(105) + varint(90)
    contents += b"\0" + varint(1) + (b"" if deltas else b"\4") + b"z"
    contents += varint(200) + varint(300)
    return contents + struct.pack("<II", 0, 1)


class TestIndex:
    """Separators and handles."""

    @pytest.mark.parametrize("deltas", [False, True])
    def test_user_keys(self, deltas: bool) -> None:
        """Handles in full, or as differences inside a restart interval where keys share bytes."""
        index = decode_index(
            index_entries(b"aaa", b"aab", deltas), IndexFormat(True, deltas, False)
        )

        assert [b"aaa", b"aab", b"z"] == index.separators
        assert [0, 105, 200] == index.offsets.tolist()
        assert [100, 90, 300] == index.sizes.tolist()
        assert not index.may_continue

    def test_internal_keys(self) -> None:
        """Up to format version 2 separators have a trailer, and two may be of one key."""
        contents = block(
            [
                (internal_key(b"k", 9), varint(0) + varint(10)),
                (internal_key(b"k", 5), varint(15) + varint(10)),
            ],
            1,
        )
        index = decode_index(contents, IndexFormat(False, False, False))

        assert [b"k", b"k"] == index.separators
        assert index.may_continue

    def test_first_keys(self) -> None:
        """With first keys, one follows each handle."""
        contents = b"\0\x01k" + varint(0) + varint(10) + b"\x02ab" + struct.pack("<II", 0, 1)
        index = decode_index(contents, IndexFormat(True, True, True))

        assert ([b"k"], [10]) == (index.separators, index.sizes.tolist())

    @pytest.mark.parametrize("keys", [(b"b", b"a"), (b"a", b"a")])
    def test_order(self, keys: tuple[bytes, bytes]) -> None:
        """User keys ascend, inside a partition and across them."""
        handle = varint(0) + varint(10)
        index_format = IndexFormat(True, False, False)
        with pytest.raises(CorruptionError, match="index keys are out of order"):
            decode_index(block([(key, handle) for key in keys], 1), index_format)
        parts = [decode_index(block([(key, handle)]), index_format) for key in keys]
        with pytest.raises(CorruptionError, match="index keys are out of order"):
            join_indexes(parts)

    def test_partitions(self) -> None:
        """Partitions are one index together."""
        index_format = IndexFormat(True, False, False)
        handles = [varint(0) + varint(10), varint(15) + varint(20)]
        parts = [
            decode_index(block([(key, handle)]), index_format)
            for key, handle in zip([b"a", b"b"], handles)
        ]

        assert [b"a", b"b"] == join_indexes(parts).separators
        assert [10, 20] == join_indexes(parts).sizes.tolist()
        assert 0 == len(join_indexes([]))


COMPARATOR = (b"rocksdb.comparator", b"leveldb.BytewiseComparator")


def properties(*pairs: tuple[bytes, bytes]) -> bytes:
    """Return a properties block."""
    return block(sorted([COMPARATOR, *pairs]), 1)


class TestProperties:
    """Names and values."""

    def test_numbers(self) -> None:
        """Numbers are varints; what is not there is 0."""
        decoded = decode_properties(
            properties(
                (b"rocksdb.num.entries", varint(300)),
                (b"rocksdb.deleted.keys", varint(7)),
                (b"rocksdb.num.range-deletions", varint(2)),
                (b"rocksdb.index.key.is.user.key", varint(1)),
            )
        )

        assert (300, 7, 2) == (decoded.entries, decoded.deletions, decoded.range_deletions)
        assert (True, False) == (decoded.has_user_keys, decoded.has_index_deltas)
        assert (0, 0, 0) == (
            decoded.data_blocks,
            decoded.external_version,
            decoded.written_sequence,
        )

    @pytest.mark.parametrize(
        ("pair", "what"),
        [
            ((b"rocksdb.merge.operands", varint(1)), "merge operands"),
            ((b"rocksdb.timestamp_min", bytes(8)), "timestamps"),
            ((b"rocksdb.block.based.table.index.type", bytes([9, 0, 0, 0])), "index type 9"),
        ],
    )
    def test_refusals(self, pair: tuple[bytes, bytes], what: str) -> None:
        """What is not read is named."""
        with pytest.raises(UnsupportedLayout, match=what):
            decode_properties(properties(pair))

    def test_another_order(self) -> None:
        """Keys in another order than a bookie's are refused."""
        pair = (b"rocksdb.comparator", b"rocksdb.ReverseBytewiseComparator")
        with pytest.raises(UnsupportedLayout, match="ReverseBytewise"):
            decode_properties(block([pair]))

    def test_names_ascend(self) -> None:
        """A name may not come twice."""
        with pytest.raises(CorruptionError, match="out of order"):
            decode_properties(block([COMPARATOR, COMPARATOR], 1))


def test_range_deletes() -> None:
    """First key and sequence number in the key, the exclusive end in the value."""
    entries = [(internal_key(b"a", 9, 15), b"c"), (internal_key(b"a", 5, 15), b"b")]

    assert [RangeDelete(b"a", b"c", 9), RangeDelete(b"a", b"b", 5)] == decode_range_deletes(
        block(entries)
    )
    with pytest.raises(CorruptionError, match="VALUE among the range deletes"):
        decode_range_deletes(block([(internal_key(b"a", 9), b"c")]))


def test_entries_of_any_width() -> None:
    """Long keys and values have lengths of two bytes."""
    entries = [(b"k" * 200, b"v" * 300), (b"k" * 200 + b"!", b"")]
    decoded = list(block_entries(block(entries)))

    assert entries == [(entry.key, entry.value) for entry in decoded]
    assert block(entries).index(b"v" * 300) == decoded[0].value_offset


@pytest.mark.parametrize("position", [0, 1, 2])
def test_entries_stay_inside(position: int) -> None:
    """A length that runs past the block is damage."""
    contents = bytearray(block([(b"key", b"value")]))
    contents[position] += 60
    with pytest.raises(CorruptionError, match="runs past its block"):
        list(block_entries(bytes(contents)))


def test_impossible_sizes_are_not_allocated() -> None:
    """A block of 20 bytes cannot have contents of 4 GiB, whatever its checksum says."""
    stored = varint(2**32 - 1) + bytes(20) + b"\x04" + bytes(4)
    decoded = decode_footer(footer(checksum=0), 300)
    with pytest.raises(CorruptionError, match="cannot have contents of 4294967295 bytes"):
        unpack_block(stored, 7, decoded)
