"""The page on RocksDB: its table file, manifest and log are a database, byte by byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import xxhash
from rocksdict import AccessType, Options, Rdict

from bkstore import LedgerId
from bkstore.formats.rocksdb.log.framing import LogRecordReader, encode_records
from bkstore.formats.rocksdb.log.write_batch import decode_batches
from bkstore.formats.rocksdb.manifest.current_file import encode_current
from bkstore.formats.rocksdb.manifest.version import sum_edits
from bkstore.formats.rocksdb.manifest.version_edit import decode_edit
from bkstore.index.rocks.inspection.database_files import DatabaseFiles
from bkstore.index.rocks.inspection.internal_rows import iterate_rows
from bkstore.index.rocks.keys import entry_key
from tests.docs.format_pages import shown_bytes, shown_text

PAGE = "rocksdb.md"
LEDGER = LedgerId(0, 4660)
LOG_2 = 2 << 32


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a directory with the files of the page."""
    directory = tmp_path / "locations"
    directory.mkdir()
    (directory / "000009.sst").write_bytes(shown_bytes(PAGE, "table-file"))
    (directory / "MANIFEST-000005").write_bytes(shown_bytes(PAGE, "manifest"))
    (directory / "000008.log").write_bytes(shown_bytes(PAGE, "log"))
    (directory / "CURRENT").write_bytes(encode_current(5))
    return directory


def test_it_is_a_database(database: Path) -> None:
    """RocksDB opens it, and has the rows that the page says."""
    read_only = AccessType.read_only(error_if_log_file_exist=False)
    opened = Rdict(str(database), Options(raw_mode=True), access_type=read_only)
    rows = dict(opened.items())
    opened.close()

    assert {
        entry_key(LEDGER, 4): (LOG_2 | 1300).to_bytes(8, "big"),
        entry_key(LEDGER, 5): (LOG_2 | 1500).to_bytes(8, "big"),
    } == rows


def test_manifest_and_log_are_read(database: Path) -> None:
    """The files are what the page says, and nothing is missing."""
    files = DatabaseFiles.open(database)
    table, log, manifest = files.files()

    assert [] == files.findings
    assert table.table is not None
    assert (0, 9, 1324, 1, 3, 1, 1256) == (
        table.table.level,
        table.table.number,
        table.table.size,
        table.table.smallest_sequence,
        table.table.largest_sequence,
        table.table.epoch_number,
        table.table.tail_bytes,
    )
    assert entry_key(LEDGER, 3) == table.table.smallest_key
    assert entry_key(LedgerId(0, 4661), 2**63 - 1) == table.table.largest_key
    assert table.table.has_exclusive_end
    assert ("000008.log", "MANIFEST-000005") == (log.name, manifest.name)


def test_records_of_the_manifest() -> None:
    """Seven records, of which the sizes and sums are the page's."""
    data = shown_bytes(PAGE, "manifest")
    records = [payload for _, payload in LogRecordReader([data], 5, lambda: True)]
    version = sum_edits(map(decode_edit, records))

    assert data == encode_records(records)
    assert [39, 0, 32, 4, 6, 116, 8] == list(map(len, records))
    assert (8, 8, 10, 3) == (
        version.log_number,
        version.min_log_number,
        version.next_file_number,
        version.last_sequence,
    )
    assert f"identity: {version.identity}" in shown_text(PAGE, "manifest")


def test_the_log_has_two_rows() -> None:
    """A put and a delete, of sequences 4 and 5."""
    records = LogRecordReader([shown_bytes(PAGE, "log")], 8, lambda: True)
    rows = list(iterate_rows([decode_batches(payload for _, payload in records)]))

    assert [
        (entry_key(LEDGER, 5), 4, 1, (LOG_2 | 1500).to_bytes(8, "big")),
        (entry_key(LEDGER, 3), 5, 0, b""),
    ] == rows


def blocks_named() -> list[tuple[int, int]]:
    """Return (offset, size) of each block that a line of the page names."""
    text = shown_text(PAGE, "table-file")
    handles = re.findall(r"(?:block|index|metaindex) at (\d+), (\d+) bytes", text)
    return sorted((int(offset), int(size)) for offset, size in handles)


def test_blocks_and_their_checksums() -> None:
    """The blocks that are named fill the file up to the footer, and each has its checksum."""
    data = shown_bytes(PAGE, "table-file")
    end = 0
    for offset, size in blocks_named():
        assert end == offset
        stored = int.from_bytes(data[offset + size + 1 : offset + size + 5], "little")
        assert xxhash.xxh32_intdigest(data[offset : offset + size + 1]) == stored
        end = offset + size + 5
    assert len(data) - 53 == end
    assert bytes.fromhex("f7cff485b741e288") == data[-8:]


def test_numbers_beside_the_bytes() -> None:
    """What the page says of a property is what its bytes are."""
    lines = shown_text(PAGE, "table-file").splitlines()
    numbers = [re.fullmatch(r"\d+: +(.*?) +; [\w.]+\w: (\d+)", line) for line in lines]
    for match in filter(None, numbers):
        value, shift = 0, 0
        for byte in bytes.fromhex(match[1].split()[-1]):
            value |= (byte & 0x7F) << shift
            shift += 7
        assert int(match[2]) in (value, value - 48), match[0]  # two of them are digits as text
    assert 20 < sum(match is not None for match in numbers)
