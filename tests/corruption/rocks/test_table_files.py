"""Table files read as arrays: every byte flipped, every length cut, blocks and files swapped. Never
a wrong row, never a silently missing one."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.table.entries import block_entries
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.tables.any_rows import read_versions
from bkstore.index.rocks.tables.block_rows import TableRows
from bkstore.index.rocks.tables.damage import UnknownRange
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from bkstore.index.rocks.tables.table_reader import TableReader
from tests.index.rocks.tables.changed_blocks import change_block, change_row
from tests.index.rocks.tables.random_databases import RandomDatabase, TableSettings
from tests.index.rocks.tables.reading import Pair, pairs_of

SETTINGS = [
    TableSettings(checksum="xxh32", block_size=256, restart_interval=4),
    TableSettings(checksum="crc32c", compression="none", format_version=2, block_size=512),
    TableSettings(checksum="xxh3", compression="zstd", format_version=6, block_size=256),
    TableSettings(checksum="xxh64", index_type="two-level", block_size=128, has_filter=False),
]
NEWEST = 1 << 40


def key_of(number: int) -> bytes:
    """Return the key of an entry of ledger 7."""
    return (7).to_bytes(8, "big") + number.to_bytes(8, "big")


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda settings: settings.checksum)
def small_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Pair]]:
    """Return a table file of 90 rows in some blocks, and its rows."""
    top = tmp_path_factory.mktemp("small")
    database = RandomDatabase(top, random.Random(3), request.param)
    database.write_file([key_of(n) for n in range(1, 91)])
    (file,) = (top / "database").glob("*.sst")
    return file, read_file(file, [])


def read_file(file: Path, damage: list[UnknownRange] | None) -> list[Pair]:
    """Return the rows of a table file."""
    with TableReader(file, NEWEST) as table:
        return pairs_of(TableRows(table, 2, damage=damage))


def check_damaged(file: Path, expected: list[Pair]) -> bool:
    """Return whether reading a damaged file fails. It gives all rows, or an error; where damage is
    passed over, what is missing lies in ranges that are reported."""
    try:
        assert expected == read_file(file, None)
    except (CorruptionError, UnsupportedLayout):
        pass
    else:
        return False
    damage: list[UnknownRange] = []
    try:
        rows = read_file(file, damage)
    except (CorruptionError, UnsupportedLayout):
        return True
    known = [row for row in expected if not any(in_range(row[0], unknown) for unknown in damage)]
    assert damage
    assert known == rows
    return True


def in_range(key: bytes, unknown: UnknownRange) -> bool:
    """Return whether a key is in the range."""
    return unknown.start <= key and (unknown.stop is None or key < unknown.stop)


STEPS = [pytest.param(71, id="some"), pytest.param(1, id="every", marks=pytest.mark.long)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("mask", [0xFF, 1])
def test_bytes_flipped(
    small_file: tuple[Path, list[Pair]], tmp_path: Path, mask: int, step: int
) -> None:
    """The rows, or an error; nearly all bytes count: the filter's are not read, nor is padding."""
    original, expected = small_file
    data, file = original.read_bytes(), tmp_path / original.name
    offsets = range(mask % step, len(data), step)
    failures = 0
    for offset in offsets:
        file.write_bytes(data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :])
        failures += check_damaged(file, expected)
    assert failures > 0.8 * len(offsets)


@pytest.mark.parametrize("step", STEPS)
def test_lengths_cut(small_file: tuple[Path, list[Pair]], tmp_path: Path, step: int) -> None:
    """A file without its end is refused, whatever is left of it."""
    original, _ = small_file
    data, file = original.read_bytes(), tmp_path / original.name
    for length in range(0, len(data), step):
        file.write_bytes(data[:length])
        with pytest.raises((CorruptionError, UnsupportedLayout)):
            read_file(file, None)


def test_a_damaged_block_has_a_place(small_file: tuple[Path, list[Pair]], tmp_path: Path) -> None:
    """The error names file, offset and keys; the rows of all other blocks are there."""
    original, expected = small_file
    with TableReader(original) as table:
        offsets, count = table.index.offsets.tolist(), len(table.index)
        separators = table.index.separators
    assert count > 2
    for block, offset in enumerate(offsets):
        data = bytearray(original.read_bytes())
        data[offset] ^= 0x55
        file = tmp_path / original.name
        file.write_bytes(data)
        with pytest.raises(CorruptionError, match="fails its checksum: rows from key") as caught:
            read_file(file, None)
        assert (str(file), offset) == (caught.value.file, caught.value.offset)
        damage: list[UnknownRange] = []
        rows = read_file(file, damage)

        assert [(str(file), offset)] == [(unknown.file, unknown.offset) for unknown in damage]
        lost = [row[0] for row in expected if row not in rows]
        low = separators[block - 1] if block else b""
        high = separators[block]
        assert [key for key, _ in expected if low < key <= high] == lost
        assert lost


def test_swapped_blocks(tmp_path: Path) -> None:
    """Two blocks of a file in each other's place have good checksums, and are not where the index
    has them."""
    settings = TableSettings(compression="none", block_size=256)
    database = RandomDatabase(tmp_path, random.Random(3), settings)
    database.write_file([key_of(n) for n in range(1, 91)])
    (file,) = (tmp_path / "database").glob("*.sst")
    with TableReader(file) as table:
        (first, second, *_), (size, other_size, *_) = (
            table.index.offsets.tolist(),
            table.index.sizes.tolist(),
        )
    data = bytearray(file.read_bytes())
    assert size == other_size
    one = bytes(data[first : first + size + 5])
    data[first : first + size + 5] = data[second : second + size + 5]
    data[second : second + size + 5] = one
    file.write_bytes(data)
    with pytest.raises(CorruptionError, match="not where the index has them"):
        read_file(file, None)


@pytest.fixture
def two_levels(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Return a database with a compacted file of rows 1..200, and a newer one of level 0 with every
    second of 51..150 again and a range delete of 10..19; and the files, oldest first."""
    database = RandomDatabase(tmp_path, random.Random(3), TableSettings(block_size=256))
    database.write_file([key_of(n) for n in range(1, 201)])
    path = tmp_path / "database"
    (old,) = path.glob("*.sst")
    database.add_to_file([key_of(n) for n in range(51, 151, 2)], (key_of(10), key_of(20)))
    (new,) = set(path.glob("*.sst")) - {old}
    return path, [old, new]


def read_known(path: Path) -> tuple[list[Pair], list[UnknownRange]]:
    """Return the rows that are certain, and the ranges that are unknown."""
    damage: list[UnknownRange] = []
    return pairs_of(DatabaseReader(path).rows(2, damage=damage)), damage


def test_no_stale_rows_beside_a_damaged_file(two_levels: tuple[Path, list[Path]]) -> None:
    """Where the newer file is damaged, rows of the older one may have been replaced: they are left
    out too. Where the older one is, rows of the newer one stay."""
    path, (old, new) = two_levels
    everything, damage = read_known(path)
    assert not damage
    assert [key_of(n) for n in range(1, 201) if not 10 <= n < 20] == [key for key, _ in everything]
    for file, is_newer in ((new, True), (old, False)):
        saved = file.read_bytes()
        with TableReader(file) as table:
            offsets = table.index.offsets.tolist()
        for offset in offsets[::4]:
            file.write_bytes(saved[: offset + 3] + b"\xa5" + saved[offset + 4 :])
            with pytest.raises(CorruptionError, match="are unknown"):
                pairs_of(DatabaseReader(path).rows(2))
            rows, damage = read_known(path)
            (unknown,) = damage
            inside = [row for row in everything if in_range(row[0], unknown)]
            kept = [row for row in inside if row in rows]
            assert [row for row in everything if not in_range(row[0], unknown)] == [
                row for row in rows if not in_range(row[0], unknown)
            ]
            assert all(not is_newer and int.from_bytes(key[8:], "big") % 2 for key, _ in kept)
            assert len(kept) < len(inside)
        file.write_bytes(saved)


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_that_cannot_be_opened(
    two_levels: tuple[Path, list[Path]], number: int, tmp_path: Path
) -> None:
    """Its range of keys is unknown; a reader that needs all rows is refused."""
    path, files = two_levels
    file = files[number]
    everything, _ = read_known(path)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptionError, match=r"not a table file.* are unknown"):
        pairs_of(DatabaseReader(path).rows(2))
    rows, damage = read_known(path)

    assert [str(file)] == [unknown.file for unknown in damage]
    if number == 0:  # the old file has all keys; the newer rows are certain
        assert [key_of(n) for n in range(51, 151, 2)] == [key for key, _ in rows]
    else:
        assert [row for row in everything if not in_range(row[0], damage[0])] == rows
        assert damage[0].start == key_of(10)


def test_files_of_another_database(two_levels: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """A file under another's name has another size than the manifest states, or rows that are
    newer than it states."""
    path, (old, new) = two_levels
    shutil.copy(old, new)
    with pytest.raises(CorruptionError, match="the manifest"):
        pairs_of(DatabaseReader(path).rows(2))


def test_files_exchanged(tmp_path: Path) -> None:
    """Files of one size in each other's place, with keys of their own or with the same: neither is
    read for the other. RocksDB refuses them too, by their unique ids."""
    for case, ledgers in enumerate([(5, 6, 7), (5, 5, 5)]):
        top = tmp_path / str(case)
        with RocksIndex(top, writable=True) as index:
            for number, ledger in enumerate(ledgers):
                count = np.arange(1000)
                rows = (np.zeros_like(count), np.full_like(count, ledger), count)
                locations = count + (number + 1 << 33)
                index.bulk_load([IndexBatch(np.zeros_like(count), *rows, locations)])
        path = top / "current" / "locations"
        assert len(pairs_of(DatabaseReader(path).rows(2))) == 1000 * len(set(ledgers))
        first, second, _ = sorted(path.glob("*.sst"))
        assert first.stat().st_size == second.stat().st_size
        first.rename(path / "moved")
        second.rename(first)
        (path / "moved").rename(second)
        rows_left, damage = read_known(path)

        assert {str(first), str(second)} == {unknown.file for unknown in damage}
        assert all("is not the file that the manifest lists" in each.reason for each in damage)
        assert len(rows_left) == 1000
        assert {value for _, value in rows_left} == {
            (entry + (3 << 33)).to_bytes(8, "big") for entry in range(1000)
        }
        with pytest.raises(CorruptionError, match="Mismatch in unique ID"):
            Database(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"smallest": key_of(2) + bytes(8)}, "are not in the manifest's"),
        ({"smallest": key_of(91) + bytes(8)}, "are not in the manifest's"),
        ({"largest": key_of(89) + bytes(8)}, "are not in the manifest's"),
        ({"largest": key_of(1 << 40) + bytes(8)}, "index ends before the manifest's last key"),
        ({"smallest_sequence": 91, "largest_sequence": 200}, "before the oldest, 91"),
        ({"largest_sequence": 89}, "after the newest, 89"),
        ({"unique_id": bytes(16)}, None),
        ({"unique_id": bytes(15) + b"1"}, "is not the file that the manifest lists"),
    ],
)
@pytest.mark.parametrize("read", ["arrays", "versions"])
def test_other_bounds_in_the_manifest(
    tmp_path: Path, changes: dict[str, Any], reason: str | None, read: str
) -> None:
    """Manifests of older versions have no unique id: the keys and sequence numbers tell a file of
    another place. Its rows are those of the writes 1 to 90."""
    database = RandomDatabase(tmp_path, random.Random(3), TableSettings(block_size=256))
    database.write_file([key_of(n) for n in range(1, 91)], is_compacted=False)
    path = tmp_path / "database"
    (file,) = path.glob("*.sst")
    with closing(DatabaseReader(path)) as reader:
        (listed,) = reader.manifest.version.tables.values()
    assert (1, 90) == (listed.smallest_sequence, listed.largest_sequence)
    assert any(listed.unique_id)
    listed = listed._replace(**({"unique_id": b""} | changes))

    def read_all() -> int:
        with TableReader(file, listed=listed) as table:
            if read == "versions":
                return len(list(read_versions(table)))
            return len(pairs_of(TableRows(table, 2)))

    if reason is None:
        assert 90 == read_all()
    else:
        with pytest.raises(CorruptionError, match=reason):
            read_all()


@pytest.mark.parametrize("version", [1, 8, 261])
def test_a_format_version_that_there_is_not(tmp_path: Path, version: int) -> None:
    """A damaged footer states another format version, which neither this package nor RocksDB reads:
    the file is unreadable, and all others are read."""
    with RocksIndex(tmp_path, writable=True) as index:
        for ledger in (5, 6, 7):
            entries, zeros = np.arange(1000), np.zeros(1000, np.int64)
            index.bulk_load([IndexBatch(zeros, zeros, zeros + ledger, entries, entries + 1)])
    file = sorted((tmp_path / "current" / "locations").glob("*.sst"))[1]
    data = file.read_bytes()
    file.write_bytes(data[:-12] + version.to_bytes(4, "little") + data[-8:])
    findings: list[Finding] = []
    with RocksIndex(tmp_path) as index:
        rows = sum(batch.entry_id.size for batch in index.scan(findings=findings))
        assert 1000 == index.get(7, 999)
        with pytest.raises(CorruptionError, match=f"format version {version}"):
            index.get(6, 0)
        with pytest.raises(CorruptionError, match=f"format version {version}"):
            index.last_entry(6)
        assert [999, 999] == [index.last_entry(ledger) for ledger in (5, 7)]

    assert 2000 == rows
    assert [str(file)] == [finding.file for finding in findings]
    assert "are unknown" in findings[0].detail


def test_another_compression_without_checksums(tmp_path: Path) -> None:
    """Nothing verifies the byte with a block's compression: a bulk read passes over the block."""
    settings = TableSettings(checksum="none", compression="none", block_size=256)
    database = RandomDatabase(tmp_path, random.Random(3), settings)
    database.write_file([key_of(n) for n in range(1, 91)])
    (file,) = (tmp_path / "database").glob("*.sst")
    expected = read_file(file, [])
    with TableReader(file) as table:
        compression_offset = int(table.index.offsets[1] + table.index.sizes[1])
        separators = table.index.separators
    data = file.read_bytes()
    file.write_bytes(data[:compression_offset] + b"\x06" + data[compression_offset + 1 :])
    damage: list[UnknownRange] = []
    rows = read_file(file, damage)

    (unknown,) = damage
    next_key = (int.from_bytes(separators[0], "big") + 1).to_bytes(16, "big")
    assert (next_key, separators[1] + b"\0") == (unknown.start, unknown.stop)
    assert [row for row in expected if not in_range(row[0], unknown)] == rows
    with pytest.raises(UnsupportedLayout, match="compression"):
        read_file(file, None)


def test_a_row_too_few_is_noticed(tmp_path: Path) -> None:
    """A file with an index that lacks a block: the properties state more blocks, and more rows."""
    database = RandomDatabase(
        tmp_path, random.Random(3), TableSettings(checksum="none", compression="none")
    )
    database.write_file([key_of(n) for n in range(1, 91)])
    (file,) = (tmp_path / "database").glob("*.sst")
    data = file.read_bytes()
    with TableReader(file) as table:
        handle = table.meta_blocks[b"rocksdb.properties"]
        (offset,) = (
            entry.value_offset
            for entry in block_entries(table.read_block(handle))
            if entry.key == b"rocksdb.num.entries"
        )
    position = handle.offset + offset
    assert 90 == data[position]
    file.write_bytes(data[:position] + bytes([91]) + data[position + 1 :])
    with pytest.raises(CorruptionError, match="has 90 rows and 0 deletions, its properties 91"):
        read_file(file, None)


def _uncompressed(top: Path) -> tuple[Path, Path, list[bytes]]:
    """Write a database of one file of small blocks with whole keys; return both, and the keys."""
    settings = TableSettings(compression="none", block_size=256, restart_interval=1)
    database = RandomDatabase(top, random.Random(3), settings)
    keys = [key_of(n) for n in range(1, 91)]
    database.write_file(keys)
    (file,) = (top / "database").glob("*.sst")
    return top / "database", file, keys


def test_a_row_that_is_not_supported_hides_its_block(tmp_path: Path) -> None:
    """It is met after the file was opened, when RocksDB cannot be used instead: reads that go on
    beside damage pass over its block, all others name the file and the type."""
    path, file, keys = _uncompressed(tmp_path)

    def make_merge(contents: bytearray, trailer: int) -> None:
        contents[trailer] = 2  # kTypeMerge

    offset = change_row(file, keys[40], make_merge)
    with TableReader(file) as table:
        block = table.index.offsets.tolist().index(offset)
        low, high = table.index.separators[block - 1 : block + 1]
    sound = [key for key in keys if not low < key <= high]
    with closing(DatabaseReader(path)) as reader:
        for read in (
            lambda damage: [key for key, _ in reader.items(damage)],
            lambda damage: [
                rows.key_at(row)
                for rows in reader.rows(2, damage=damage)
                for row in range(len(rows))
            ],
        ):
            damage: list[UnknownRange] = []
            assert sound == read(damage)
            (unknown,) = damage
            assert (str(file), offset) == (unknown.file, unknown.offset)
            assert "MERGE" in unknown.reason
            with pytest.raises((CorruptionError, UnsupportedLayout), match="MERGE") as caught:
                read(None)
            assert str(file) in str(caught.value)


def test_an_index_that_is_not_supported_hides_its_file(tmp_path: Path) -> None:
    """The index is read at the first use of the file."""
    path, file, keys = _uncompressed(tmp_path)
    with TableReader(file) as table:
        handle = table.footer.index
        assert handle is not None

    def set_later_feature(contents: bytearray) -> None:
        contents[-1] |= 0x10  # of the number of restart points

    change_block(file, handle.offset, handle.size, set_later_feature)
    with closing(DatabaseReader(path)) as reader:
        damage: list[UnknownRange] = []
        assert [] == reader.items(damage) == list(reader.rows(2, damage=damage))
        assert [str(file)] * 2 == [unknown.file for unknown in damage]
        assert all(key in unknown for unknown in damage for key in keys)
        for read in (reader.items, lambda: reader.get(keys[3])):
            with pytest.raises((CorruptionError, UnsupportedLayout), match="features") as caught:
                read()
            assert str(file) in str(caught.value)
