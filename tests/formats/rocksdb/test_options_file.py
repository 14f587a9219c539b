"""OPTIONS files, against one that the binding wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Rdict

from bkstore import CorruptionError
from bkstore.formats.rocksdb.manifest.options_file import (
    decode_options,
    families,
    summarize_options,
)
from bkstore.index.rocks.options import location_options


def test_options_of_a_database(tmp_path: Path) -> None:
    """The settings that decide about bytes on disk are those the database was opened with."""
    Rdict(str(tmp_path), location_options()).close()
    (path,) = tmp_path.glob("OPTIONS-*")
    sections = decode_options(path.read_bytes())
    summary = summarize_options(sections)

    assert ["default"] == families(sections)
    assert {
        "comparator": "leveldb.BytewiseComparator",
        "compression": "kLZ4Compression",
        "format_version": "5",
        "checksum": "kxxHash",
        "block_size": "65536",
        "index_type": "kBinarySearch",
        "wal_compression": "kNoCompression",
    }.items() <= summary.items()
    assert "67108864" == sections["CFOptions", "default"]["write_buffer_size"]


def test_syntax() -> None:
    r"""Comments, sections with and without a name, escaped characters, values with an =."""
    content = (
        b'# head\n[Version]\n a=b # c\n\n[CFOptions "my \\"one"]\n  x = y=1\\#2\n[DBOptions]\n'
    )

    assert {
        ("Version", ""): {"a": "b"},
        ("CFOptions", 'my \\"one'): {"x": "y=1#2"},
        ("DBOptions", ""): {},
    } == decode_options(content)


@pytest.mark.parametrize(
    ("content", "offset"), [(b"a=b\n", 0), (b"[Version]\nword\n", 10), (b"[Version\n", 0)]
)
def test_damage(content: bytes, offset: int) -> None:
    """A line that is nothing of these has its offset."""
    with pytest.raises(CorruptionError) as caught:
        decode_options(content)

    assert offset == caught.value.offset
