"""The one way to open a regular file: what is none is told, and nothing waits."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bkstore.errors import CorruptionError
from bkstore.index.opening import open_regular, read_whole


def _odd_places(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
    (folder / "link").symlink_to(folder / "pipe")
    return {
        "a pipe": folder / "pipe",
        "a socket": folder / "socket",
        "a device": Path("/dev/zero"),
        "a folder": folder,
    } | {"a pipe, not": folder / "link"}


def test_only_regular_files(tmp_path: Path) -> None:
    """Pipes, sockets, devices and folders are refused by name, through links too, at once."""
    for kind, path in _odd_places(tmp_path).items():
        for call in (open_regular, lambda path: read_whole(path, 10)):
            with pytest.raises(CorruptionError, match=kind):
                call(path)


def test_a_pipe_that_takes_the_files_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was a file when it was looked at, and is a pipe when it is opened, is told too."""
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    seen = os.stat(tmp_path / "file")
    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr("bkstore.index.opening.os.stat", lambda path: seen)

    with pytest.raises(CorruptionError, match="a pipe"):
        open_regular(tmp_path / "pipe")
    monkeypatch.undo()
    assert before == len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_content_up_to_the_bound(tmp_path: Path, size: int) -> None:
    """A file of `limit` bytes is read whole."""
    (tmp_path / "file").write_bytes(b"x" * size)

    assert b"x" * size == read_whole(tmp_path / "file", 10)


def test_content_above_the_bound(tmp_path: Path) -> None:
    """A longer one is told, however large: a sparse file of a TiB costs nothing."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    with pytest.raises(CorruptionError, match="longer than the 10 bytes"):
        read_whole(path, 10)
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptionError, match="longer than the 10 bytes"):
        read_whole(path, 10)


def test_the_systems_refusals_stay(tmp_path: Path) -> None:
    """A file that is not there is not called damaged."""
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
