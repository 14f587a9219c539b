"""Copies of files: holes stay holes, and a file that changes meanwhile is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkstore.errors import DirectoryInUse
from bkstore.files import copies
from bkstore.files.copies import copy_file
from bkstore.files.disk_changes import OS_FILES

MIB = 1 << 20


def make_file(path: Path, size: int, parts: dict[int, bytes]) -> Path:
    """Write a file with these bytes at these offsets, and holes between them."""
    with path.open("wb") as file:
        for offset, data in parts.items():
            file.seek(offset)
            file.write(data)
        file.truncate(size)
    return path


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (0, {}),
        (5, {0: b"whole"}),
        (64 * MIB, {}),
        (64 * MIB, {0: b"first"}),
        (64 * MIB, {64 * MIB - 4: b"last"}),
        (64 * MIB, {3 * MIB + 7: b"a" * 9 * MIB, 40 * MIB: b"\0" * MIB, 50 * MIB: b"b"}),
        (9 * MIB + 1, {0: b"c" * (9 * MIB + 1)}),
    ],
    ids=["empty", "short", "hole", "hole at the end", "hole first", "holes between", "chunks"],
)
def test_copies_are_alike(size: int, parts: dict[int, bytes], tmp_path: Path) -> None:
    """The same bytes, no more blocks than the source, and a report of all bytes."""
    source, target = make_file(tmp_path / "source", size, parts), tmp_path / "target"
    reported: list[int] = []

    assert size == copy_file(source, target, OS_FILES, reported.append)
    assert source.read_bytes() == target.read_bytes()
    assert size == sum(reported)
    assert 0 not in reported
    # A file system may store a page more at each border.
    assert target.stat().st_blocks <= source.stat().st_blocks + 8 * 2 * len(parts)


def test_a_huge_hole_costs_nothing(tmp_path: Path) -> None:
    """A sparse file, which the disk could not hold, is copied."""
    source = make_file(tmp_path / "source", 1 << 42, {1 << 41: b"data"})

    assert 1 << 42 == copy_file(source, tmp_path / "target", OS_FILES)
    with (tmp_path / "target").open("rb") as file:
        file.seek((1 << 41) - 1)
        assert b"\0data\0" == file.read(6)


def test_without_reports_of_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system does not tell them, holes are copied as zeros."""
    source = make_file(tmp_path / "source", 20 * MIB, {12 * MIB: b"x"})
    monkeypatch.setattr(copies, "next_data_offset", lambda _fd, offset: offset)
    monkeypatch.setattr(copies, "data_end_offset", lambda _fd, _offset: 2**63 - 1)

    assert 20 * MIB == copy_file(source, tmp_path / "target", OS_FILES)
    assert source.read_bytes() == (tmp_path / "target").read_bytes()


@pytest.mark.parametrize("size", [3, 11], ids=["shorter", "longer"])
def test_a_source_that_changes(size: int, tmp_path: Path) -> None:
    """A file whose size changes while it is copied is in use."""
    source = make_file(tmp_path / "source", 8, {0: b"old data"})

    def change(_: int) -> None:
        os.truncate(source, size)

    with pytest.raises(DirectoryInUse, match=f"had 8 bytes, but {size} when read"):
        copy_file(source, tmp_path / "target", OS_FILES, change)
