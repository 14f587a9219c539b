"""Version edits and their sum, against manifests and lists of files of the binding."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import DBCompressionType, Options, Rdict, SstFileWriter

from bkstore import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.log.framing import BLOCK_BYTES, LogRecordReader
from bkstore.formats.rocksdb.manifest.current_file import (
    decode_current,
    decode_identity,
    encode_current,
)
from bkstore.formats.rocksdb.manifest.table_file import TableFileMetadata
from bkstore.formats.rocksdb.manifest.version import Version, sum_edits
from bkstore.formats.rocksdb.manifest.version_edit import VersionEdit, decode_edit, encode_edit

KEY = bytes(16) + (5 << 8 | 1).to_bytes(8, "little")
NEW_FILE = "67 00 09 e807 18" + KEY.hex() + "18" + KEY.hex() + "03 05"


def records_of(directory: Path) -> list[bytes]:
    """Return the records of a database's manifest."""
    (manifest,) = directory.glob("MANIFEST-*")
    data = manifest.read_bytes()
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    return [payload for _, payload in LogRecordReader(blocks, 0, lambda: True)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], int]:
    """Return a database of several levels with ingested files, its files, and the last sequence."""
    top = tmp_path_factory.mktemp("manifest")
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    options.set_target_file_size_base(1 << 16)
    options.set_max_bytes_for_level_base(1 << 18)
    options.set_compression_type(DBCompressionType.none())
    opened = Rdict(str(top / "db"), options)
    random = np.random.default_rng(3)
    for part in range(30):
        for key in random.integers(0, 9000, 900).tolist():
            opened[key.to_bytes(16, "big")] = random.bytes(20)
        if part % 9 == 0:
            writer = SstFileWriter(options)
            writer.open(str(top / "new.sst"))
            for key in range(20_000 + part, 20_040 + part):
                writer[key.to_bytes(16, "big")] = b"ingested"
            writer.finish()
            opened.ingest_external_file([str(top / "new.sst")])
            opened.delete_range(key.to_bytes(16, "big"), bytes([255]) * 16)
        opened.flush()
        if part in (8, 19):
            opened.compact_range(None, None)
    files, last = opened.live_files(), opened.latest_sequence_number()
    opened.close()
    return top / "db", files, last


def test_live_files_of_the_binding(database: tuple[Path, list[dict[str, Any]], int]) -> None:
    """Level, name, size, range of user keys and of sequence numbers, for each live file."""
    directory, files, last_sequence = database
    version = sum_edits(map(decode_edit, records_of(directory)))
    expected = sorted(
        (file["level"], Path(file["name"]).name, file["size"], file["start_key"], file["end_key"])
        for file in files
    )

    assert len({level for level, *_ in expected}) > 1
    assert expected == sorted(
        (table.level, table.file_name, table.size, table.smallest_key, table.largest_key)
        for table in version.tables.values()
    )
    assert {f.name for f in directory.glob("*.sst")} == {
        t.file_name for t in version.tables.values()
    }
    assert last_sequence == version.last_sequence
    assert (directory / "IDENTITY").read_text() == version.identity
    assert "leveldb.BytewiseComparator" == version.comparator
    assert all(t.smallest_sequence <= t.largest_sequence for t in version.tables.values())
    assert any(t.smallest_sequence == t.largest_sequence for t in version.tables.values())


def test_edits_of_the_binding_are_written_alike(
    database: tuple[Path, list[dict[str, Any]], int],
) -> None:
    """All records, except the one with the setting for timestamps, come out as the same bytes."""
    records = records_of(database[0])
    changed = [record for record in records if encode_edit(decode_edit(record)) != record]

    assert len(records) > 20
    assert 1 == len(changed)
    assert b"leveldb.BytewiseComparator" in changed[0]


def test_levels_are_in_the_order_of_reading(
    database: tuple[Path, list[dict[str, Any]], int],
) -> None:
    """Level 0 newest first, the levels below by key, without overlaps."""
    levels = sum_edits(map(decode_edit, records_of(database[0]))).levels()
    for level, tables in levels.items():
        if level == 0:
            assert sorted((t.epoch_number for t in tables), reverse=True) == [
                t.epoch_number for t in tables
            ]
        else:
            assert all(a.largest_key <= b.smallest_key for a, b in pairwise(tables))
    assert list(levels) == sorted(levels)


def test_fields_of_an_added_file() -> None:
    """Every field that RocksDB 9.8 writes; one that is not known is passed over."""
    fields = "05 01 0a 06 02 e807 0d 01 04 07 04 01020304 08 06 637263333263 09 01 03 02 01 01"
    fields += " 03 08 0800000000000000 0c 03 aabbcc 0e 02 e807 0f 01 07 11 02 0000 01"
    edit = decode_edit(bytes.fromhex(NEW_FILE + fields))
    expected = TableFileMetadata(
        level=0,
        number=9,
        size=1000,
        smallest=KEY,
        largest=KEY,
        smallest_sequence=3,
        largest_sequence=5,
        epoch_number=4,
        creation_time=1000,
        oldest_ancestor_time=10,
        checksum=bytes([1, 2, 3, 4]),
        checksum_function="crc32c",
        unique_id=b"\xaa\xbb\xcc",
        tail_bytes=7,
        range_deletion_bytes=1000,
        needs_compaction=True,
    )

    assert (expected,) == edit.added
    assert 8 == edit.min_log_number
    assert edit._replace(min_log_number=None) == decode_edit(encode_edit(edit)[2:])
    assert (bytes(16), bytes(16), "000009.sst", False) == (
        expected.smallest_key,
        expected.largest_key,
        expected.file_name,
        expected.has_exclusive_end,
    )


@pytest.mark.parametrize(
    ("record", "sequences"),
    [
        ("07 01 09 05 18{key} 18{key}", (0, 0)),
        ("64 01 09 05 18{key} 18{key} 03 05", (3, 5)),
        ("66 01 09 05 00 18{key} 18{key} 03 05", (3, 5)),
        ("67 01 09 05 18{key} 18{key} 03 05 01", (3, 5)),
    ],
)
def test_every_form_of_an_added_file(record: str, sequences: tuple[int, int]) -> None:
    """Four tags, by what follows the keys."""
    edit = decode_edit(bytes.fromhex(record.format(key=KEY.hex()) + "04 63"))

    assert (TableFileMetadata(1, 9, 5, KEY, KEY, *sequences),) == edit.added
    assert 0x63 == edit.last_sequence


def test_tags_that_change_no_files() -> None:
    """Numbers, texts that may be skipped, cursors, the default column family."""
    edit = decode_edit(
        bytes.fromhex(
            "8140 02 6162  8440 03 010203  8940 01 01  05 02 03 aabbcc  c801 00  cb01 00"
            " 02 08  09 00  03 0a  0a 07  04 ac02  ac02 03  06 01 09"
        )
    )

    assert (
        VersionEdit(
            removed=((1, 9),),
            identity="ab",
            log_number=8,
            previous_log_number=0,
            next_file_number=10,
            last_sequence=300,
            min_log_number=7,
            max_column_family=0,
            edits_left_in_group=3,
        )
        == edit
    )


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("c801 01 c901 03 6f6e65", "column family 'one'"),
        ("c801 02 02 05", "column family 2"),
        ("c901 03 6f6e65", "a column family besides"),
        ("ca01", "a column family besides"),
        ("9003 01 02", "blob files"),
        ("9103 01 02", "blob files"),
        ("01 03 616263", "keys in the order of comparator 'abc'"),
        ("8640 01 01", "timestamps"),
        ("0b 01", "tag 11 at offset 0"),
        ("04 05 f403 01", "tag 500 at offset 2"),
        (NEW_FILE + "04 01 03 01", "blob files"),
        (NEW_FILE + "41 01 01 01", "another directory"),
        (NEW_FILE + "0a 01 01 01", "timestamps"),
        (NEW_FILE + "42 01 01 01", "field 66"),
    ],
)
def test_refused_by_name(record: str, reason: str) -> None:
    """What no bookie uses, and what may not be skipped, is named."""
    with pytest.raises(UnsupportedLayout, match=reason):
        decode_edit(bytes.fromhex(record))


def test_every_cut() -> None:
    """An edit cut anywhere is refused, or is one of fewer fields: never one of others."""
    whole = bytes.fromhex("02 08 06 01 07" + NEW_FILE + "0d 01 04 01 04 ac02")
    fewer = {
        2: VersionEdit(log_number=8),
        5: VersionEdit(log_number=8, removed=((1, 7),)),
        len(whole) - 3: decode_edit(whole)._replace(last_sequence=None),
    }
    for size in range(1, len(whole)):
        if size in fewer:
            assert fewer[size] == decode_edit(whole[:size])
        else:
            with pytest.raises(CorruptionError) as caught:
                decode_edit(whole[:size])
            assert (caught.value.offset or 0) <= size


@pytest.mark.parametrize(
    "record", ["67 00 09 05 07" + "00" * 7, NEW_FILE + "03 01 00", "67 8110 09"]
)
def test_damaged_edits(record: str) -> None:
    """A key without trailer, a log number of another width, an impossible level."""
    with pytest.raises(CorruptionError):
        decode_edit(bytes.fromhex(record))


def table(number: int, level: int = 0) -> TableFileMetadata:
    """Return a table file."""
    return TableFileMetadata(level, number, 1000, KEY, KEY)


def test_sum() -> None:
    """Later edits win; numbers only grow; what was removed was once live."""
    version = sum_edits(
        [
            VersionEdit(added=(table(4), table(5)), log_number=3, last_sequence=9),
            VersionEdit(removed=((0, 4),), added=(table(6, 1),), log_number=8, last_sequence=7),
        ]
    )

    assert [5, 6] == sorted(version.tables)
    assert {4, 5, 6} == version.all_tables
    assert (8, 9) == (version.log_number, version.last_sequence)


def test_tracked_logs() -> None:
    """A log is tracked from one edit on, until an edit says that none below a number is."""
    version, tracked = Version(), list[set[int]]()
    for record in ("8740 02 0901", "8740 02 0c01", "8840 01 0c", "8840 01 0d"):
        version.apply(decode_edit(bytes.fromhex(record)))
        tracked.append(set(version.tracked_logs))

    assert [{9}, {9, 12}, {12}, set()] == tracked


def test_a_file_moves_between_levels() -> None:
    """A file that goes down a level is removed and added in one edit."""
    version = sum_edits(
        [VersionEdit(added=(table(4),)), VersionEdit(removed=((0, 4),), added=(table(4, 3),))]
    )

    assert {3: [table(4, 3)]} == version.levels()


@pytest.mark.parametrize(
    "edit",
    [
        VersionEdit(removed=((0, 7),)),
        VersionEdit(removed=((1, 4),)),
        VersionEdit(added=(table(4),)),
    ],
)
def test_contradictions(edit: VersionEdit) -> None:
    """What is not live, or not there, is not removed; a live file is not added again."""
    version = sum_edits([VersionEdit(added=(table(4),))])
    with pytest.raises(CorruptionError):
        version.apply(edit)


def test_atomic_groups() -> None:
    """The edits of a group count once the last one was read."""
    version = Version()
    for left in (2, 1):
        version.apply(VersionEdit(added=(table(left),), edits_left_in_group=left))

        assert {} == version.tables
    with pytest.raises(CorruptionError, match="inside"):
        version.apply(VersionEdit(log_number=3))
    version.apply(VersionEdit(added=(table(9),), edits_left_in_group=0))

    assert {1, 2, 9} == set(version.tables)
    version.apply(VersionEdit(edits_left_in_group=5))
    with pytest.raises(CorruptionError, match="missing"):
        version.apply(VersionEdit(edits_left_in_group=3))


def test_current_and_identity() -> None:
    """One line each."""
    assert "MANIFEST-000017" == decode_current(b"MANIFEST-000017\n")
    assert b"MANIFEST-1234567\n" == encode_current(1234567)
    assert "ab-c" == decode_identity(b"ab-c\n") == decode_identity(b"ab-c")
    for content in (
        b"",
        b"MANIFEST-17",
        b"MANIFEST-\n",
        b"manifest-1\n",
        b"MANIFEST-1x\n",
        b"\xff\n",
    ):
        with pytest.raises(CorruptionError, match="does not name a manifest"):
            decode_current(content)
