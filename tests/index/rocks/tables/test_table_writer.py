"""Table files written here, block by block against those that RocksDB writes of the same rows."""

from __future__ import annotations

import errno
import itertools
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

from bkstore.errors import InvalidArgument, UnsupportedLayout, WriteFailed
from bkstore.files.disk_changes import Files
from bkstore.formats.rocksdb.checksums import ChecksumType
from bkstore.formats.rocksdb.compression import CompressionType
from bkstore.formats.rocksdb.table import table_builder
from bkstore.formats.rocksdb.table.filter import decode_filter
from bkstore.formats.rocksdb.table.row_blocks import BlockShape
from bkstore.formats.rocksdb.table.table_builder import TableFileSettings
from bkstore.index.rocks.options import location_options
from bkstore.index.rocks.tables.table_reader import TableReader, block_handle
from bkstore.index.rocks.tables.table_writer import TableFileWriter
from tests.index.rocks.tables.random_databases import TableSettings

Pair = tuple[bytes, int]

CREATOR = {"rocksdb.creating.db.identity", "rocksdb.creating.session.identity"}
"""Properties in which the files differ: who made them."""

SIZES = {"rocksdb.data.size", "rocksdb.index.size", "rocksdb.tail.start.offset"}
"""Properties that depend on how well blocks were compressed."""

_FILTER = b"fullfilter.rocksdb.BuiltinBloomFilter"
_CHECKSUMS = {
    "none": ChecksumType.NONE,
    "crc32c": ChecksumType.CRC32C,
    "xxh32": ChecksumType.XXH32,
    "xxh64": ChecksumType.XXH64,
    "xxh3": ChecksumType.XXH3,
}
_COMPRESSIONS = {
    "none": CompressionType.NONE,
    "lz4": CompressionType.LZ4,
}


def write_by_binding(path: Path, rows: Sequence[Pair], options: Options) -> None:
    """Write a table file with RocksDB's writer."""
    writer = SstFileWriter(options)
    writer.open(str(path))
    for key, value in rows:
        writer[key] = value.to_bytes(8, "big", signed=True)
    writer.finish()


def write_here(
    path: Path, rows: Sequence[Pair], file_settings: TableFileSettings, parts: int = 1
) -> None:
    """Write the rows in so many calls."""
    words = len(rows[0][0]) // 8
    keys = np.frombuffer(b"".join(key for key, _ in rows), ">u8").astype(np.uint64)
    columns = keys.reshape(-1, words).T
    values = np.array([value for _, value in rows], np.int64)
    with TableFileWriter(path, words, settings=file_settings) as writer:
        for chunk in np.array_split(np.arange(values.size), parts):
            writer.add(list(columns[:, chunk]), values[chunk])
        assert path.stat().st_size < writer.finish() == path.stat().st_size
        assert len(rows) == writer.rows


def assert_equal_files(ours: Path, theirs: Path, is_compressed: bool = True) -> None:
    """Compare all blocks and the footer, but for who made the file; all bytes of the data blocks if
    they are not compressed: versions of LZ4 find other matches now and then."""
    with TableReader(ours) as mine, TableReader(theirs) as other:
        assert blocks_of(other) == blocks_of(mine)
        assert other.footer.checksum_type == mine.footer.checksum_type
        assert other.footer.format_version == mine.footer.format_version
        assert abs(other.file_bytes - mine.file_bytes) <= 10 + other.file_bytes // 500
        if not is_compressed:
            tail = mine.meta_blocks[b"rocksdb.properties"].offset
            assert other.meta_blocks[b"rocksdb.properties"].offset == tail
            assert theirs.read_bytes()[:tail] == ours.read_bytes()[:tail]
        properties, expected = mine.properties.values, other.properties.values
        assert expected.keys() == properties.keys()
        different = {name for name in expected if expected[name] != properties[name]}
        assert CREATOR <= different <= (CREATOR | SIZES if is_compressed else CREATOR)


def blocks_of(table: TableReader) -> list[bytes | tuple[bytes, ...]]:
    """Return the contents of the data blocks and the filter, separators, names of meta blocks."""
    handles = [block_handle(table.index, block) for block in range(len(table.index))]
    contents = [table.read_block(handle) for handle in handles]
    filters = [
        table.read_block(handle) for name, handle in table.meta_blocks.items() if name == _FILTER
    ]
    return [*contents, *filters, tuple(table.index.separators), tuple(table.meta_blocks)]


near_keys = st.integers(0, 70_000) | st.integers(2**63 - 9, 2**63 + 9)
any_keys = st.integers(0, 2**64 - 1)


@st.composite
def table_rows(draw: st.DrawFn) -> list[Pair]:
    """Draw rows in order, with keys of one to three words: runs, strides, and keys at random."""
    words = draw(st.sampled_from([1, 2, 3]))
    numbers = set()
    for _ in range(draw(st.integers(1, 4))):
        prefix = sum(draw(near_keys | any_keys) << 64 * word for word in range(1, words))
        first, stride = draw(near_keys | any_keys), draw(st.sampled_from([1, 2, 3, 256, 65537]))
        count = draw(st.integers(1, 60))
        numbers |= {prefix | (first + i * stride) % 2**64 for i in range(count)}
    numbers |= {draw(st.integers(0, 2 ** (64 * words) - 1)) for _ in range(draw(st.integers(0, 9)))}
    values = random.Random(draw(st.integers(0, 99)))
    is_random = draw(st.booleans())  # that cannot be compressed
    return [
        (
            number.to_bytes(8 * words, "big"),
            values.getrandbits(63) if is_random else 1028 + 40 * row,
        )
        for row, number in enumerate(sorted(numbers))
    ]


@settings(max_examples=40)
@given(st.data())
def test_equals_the_binding(data: st.DataObject) -> None:
    """Small blocks, restart intervals, compressions, checksums, filters; batches cut anywhere."""
    rows = data.draw(table_rows())
    shape = BlockShape(
        data.draw(st.sampled_from([1, 64, 100, 255, 256, 1000, 4096])),
        data.draw(st.sampled_from([1, 2, 3, 16, 100])),
    )
    compression = data.draw(st.sampled_from(list(_COMPRESSIONS)))
    checksum = data.draw(st.sampled_from(list(_CHECKSUMS)))
    has_filter = data.draw(st.booleans())
    theirs = TableSettings(
        5,
        compression,
        checksum,
        block_size=shape.block_bytes,
        restart_interval=shape.restart_interval,
        has_filter=has_filter,
    )
    ours = TableFileSettings(
        shape, _COMPRESSIONS[compression], _CHECKSUMS[checksum], 10 if has_filter else None
    )
    batch_rows = data.draw(st.sampled_from([1, 2, 7, 100, 1 << 15]))
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_builder, "_BATCH_ROWS", batch_rows)
        write_by_binding(Path(top, "theirs"), rows, theirs.options())
        write_here(Path(top, "ours"), rows, ours, data.draw(st.integers(1, 3)))
        assert_equal_files(Path(top, "ours"), Path(top, "theirs"), compression != "none")


def test_ends_of_blocks(tmp_path: Path) -> None:
    """A block ends at the byte where the binding's does, whatever its size."""
    rows = [(bytes(15) + bytes([i]), 1028 + i) for i in range(40)]
    for block_bytes in range(280, 320):
        theirs = TableSettings(5, "none", block_size=block_bytes, has_filter=False)
        ours = TableFileSettings(BlockShape(block_bytes), CompressionType.NONE, filter_bits=None)
        write_by_binding(tmp_path / "theirs", rows, theirs.options())
        write_here(tmp_path / "ours", rows, ours)
        assert_equal_files(tmp_path / "ours", tmp_path / "theirs", is_compressed=False)


@pytest.mark.parametrize("scope", [0, 2**64 - 1])
@pytest.mark.parametrize("stride", [1, 3, 300])
def test_equals_a_bookies(tmp_path: Path, scope: int, stride: int) -> None:
    """With the options of a `locations` database: many blocks, and a filter of several parts."""
    prefix = (scope.to_bytes(8, "big") if scope else b"") + (7).to_bytes(8, "big")
    count = 250_000 if stride == 1 else 40_000
    rows = [(prefix + (i * stride).to_bytes(8, "big"), 1 << 32 | i * 83) for i in range(1, count)]
    write_by_binding(tmp_path / "theirs", rows, location_options())
    write_here(tmp_path / "ours", rows, TableFileSettings(), parts=3)
    assert_equal_files(tmp_path / "ours", tmp_path / "theirs")


def test_extreme_ids(tmp_path: Path) -> None:
    """The first and last ids of scope 0 and of others, one row a file and all in one."""
    numbers = [0, 1, 2**31, 2**63 - 2, 2**63 - 1]
    rows = [
        (ledger.to_bytes(8, "big") + entry.to_bytes(8, "big"), 2**63 - 1 - row)
        for row, (ledger, entry) in enumerate(itertools.product(numbers, numbers))
    ]
    wide = [(b"\xff" * 8 + key, value) for key, value in rows]
    for part in [rows, wide, *([row] for row in rows)]:
        write_by_binding(tmp_path / "theirs", part, location_options())
        write_here(tmp_path / "ours", part, TableFileSettings())
        assert_equal_files(tmp_path / "ours", tmp_path / "theirs")


def test_ingested(tmp_path: Path) -> None:
    """RocksDB takes the files, verifies their checksums, and the later one counts."""
    options = location_options()
    database = Rdict(str(tmp_path / "database"), options, {"default": options})
    ingestion = IngestExternalFileOptions()
    ingestion.set_move_files(True)
    first = [((5).to_bytes(8, "big") + i.to_bytes(8, "big"), 1028 + i) for i in range(9000)]
    second = [(key, value + 7) for key, value in first[1000:2000]]
    for number, rows in enumerate((first, second)):
        path = tmp_path / f"{number}.sst"
        write_here(path, rows, TableFileSettings())
        database.ingest_external_file([str(path)], ingestion)
    database.flush()
    expected = {key: value.to_bytes(8, "big") for key, value in [*first, *second]}
    assert expected == dict(database.items())
    assert expected[first[1500][0]] == database[first[1500][0]]
    assert database.get(first[0][0][:8] + b"\x01" * 8) is None
    database.compact_range(None, None)
    assert expected == dict(database.items())
    database.close()


def test_sessions_differ(tmp_path: Path) -> None:
    """RocksDB's block cache tells files apart by the session that made them."""
    sessions = set()
    for number in range(20):
        write_here(tmp_path / str(number), [(bytes(16), 1)], TableFileSettings())
        with TableReader(tmp_path / str(number)) as table:
            sessions.add(table.properties.values["rocksdb.creating.session.identity"])
    assert 20 == len(sessions)
    assert {20} == {len(session) for session in sessions}


def test_filter_is_read(tmp_path: Path) -> None:
    """A filter of the binding has all keys of its file, and few others."""
    rows = [((9).to_bytes(8, "big") + i.to_bytes(8, "big"), 5) for i in range(0, 40_000, 2)]
    write_by_binding(tmp_path / "file", rows, location_options())
    with TableReader(tmp_path / "file") as table:
        table_filter = decode_filter(table.read_block(table.meta_blocks[_FILTER]))
    assert table_filter is not None
    keys = np.array([np.full(40_000, 9), np.arange(40_000)]).astype(np.uint64)
    may_be = table_filter.may_contain(keys)
    assert may_be[::2].all()
    assert 0.005 < may_be[1::2].mean() < 0.015  # 0.96 % with 10 bits a key


class TestRefused:
    """What cannot be a table file."""

    def test_no_rows(self, tmp_path: Path) -> None:
        """RocksDB has no table file without rows."""
        with (
            TableFileWriter(tmp_path / "file", 2) as writer,
            pytest.raises(InvalidArgument, match="without rows"),
        ):
            writer.finish()

    @pytest.mark.parametrize("batch_rows", [1, 2, 1 << 15])
    @pytest.mark.parametrize("key", [(6, 7), (6, 6), (5, 2**63)])
    def test_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, key: tuple[int, int]
    ) -> None:
        """A key that does not come after the one before, in the same call or the next."""
        monkeypatch.setattr(table_builder, "_BATCH_ROWS", batch_rows)
        for parts in (1, 2):
            numbers = np.array([(5, 1), (6, 7), key])
            rows = [(a.tobytes(), 5) for a in numbers.astype(">u8")]
            with pytest.raises(InvalidArgument, match="must ascend"):
                write_here(tmp_path / "file", rows, TableFileSettings(), parts)

    def test_full_disk(self, tmp_path: Path) -> None:
        """The error names the file; it is closed."""

        class Full(Files):
            def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

        with TableFileWriter(tmp_path / "file", 2, Full()) as writer:
            writer.add([np.array([1]), np.array([2])], np.array([3]))
            with pytest.raises(WriteFailed, match="file"):
                writer.finish()
        with pytest.raises(ValueError, match="closed"):
            writer.finish()

    def test_compression(self) -> None:
        """Others than a bookie's are not written."""
        builder = table_builder.TableBuilder(
            2, replace(TableFileSettings(), compression=CompressionType.ZLIB)
        )
        builder.add(np.array([[1], [2]], np.uint64), np.array([3]))
        with pytest.raises(UnsupportedLayout, match="ZLIB"):
            builder.finish()
