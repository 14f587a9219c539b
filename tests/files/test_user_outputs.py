"""Files that a user named as output: whole or as before, no link followed to nothing."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bkstore.cli.terminal.table_output import write_tables
from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files import user_outputs
from bkstore.files.user_outputs import check_output, open_output, refuse_inputs, write_output
from bkstore.tables import Column, Schema, Table
from tests.patched_modules import patch_module

ROWS = Schema("rows", (Column("n", "int64"),))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize("there", [True, False], ids=["old", "new"])
def test_a_listing_that_fails_halfway(form: str, there: bool, tmp_path: Path) -> None:
    """What stood under the name stays, byte for byte; a new name is not taken."""
    target = tmp_path / "out"
    if there:
        target.write_bytes(b"precious")

    def tables() -> Any:
        yield Table.from_rows(ROWS, [(1,), (2,)])
        raise RuntimeError("the index ends here")

    with pytest.raises(RuntimeError):
        write_tables(ROWS, tables(), form, target)

    assert ({"out": b"precious"} if there else {}) == _files(tmp_path)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv", "parquet"])
def test_a_listing_replaces_what_was_there(form: str, tmp_path: Path) -> None:
    """The same bytes stand there as in a new file, with the mode of the old one."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"x" * 100_000)
    old.chmod(0o640)
    for target in (old, new):
        write_tables(ROWS, [Table.from_rows(ROWS, [(1,), (2,)])], form, target)

    assert new.read_bytes() == old.read_bytes()
    assert 0o640 == _mode(old)
    assert ["new", "old"] == sorted(os.listdir(tmp_path))


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    """A link to a file elsewhere is followed; the file there gets the bytes, its folder no more."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "real").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("elsewhere/real")
    write_output(link, b"new")

    assert "elsewhere/real" == os.readlink(link)
    assert {"real": b"new"} == _files(place)
    assert ["elsewhere", "link"] == sorted(os.listdir(tmp_path))


@pytest.mark.parametrize("call", [lambda path: write_output(path, b"x"), check_output])
def test_a_link_to_nothing_is_refused(call: Any, tmp_path: Path) -> None:
    """Nothing comes to be where the link points."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(InvalidArgument, match="link to a file that does not exist"):
        call(link)

    assert ["link"] == os.listdir(tmp_path)


def test_other_names_keep_the_old_content(tmp_path: Path) -> None:
    """A hard link of the old file is another's file: it stays as it was."""
    other, target = tmp_path / "other", tmp_path / "out"
    other.write_bytes(b"old")
    os.link(other, target)
    write_output(target, b"new")

    assert {"other": b"old", "out": b"new"} == _files(tmp_path)


@pytest.mark.parametrize("name", ["out.tmp", ".bkstore-0000000000000000.tmp", "out.partial"])
def test_neighbours_stay(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the user's beside the target is never taken for scratch; a link there neither."""
    patch_module(monkeypatch, user_outputs, "os", urandom=bytes)
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / name).symlink_to("victim")
    with suppress(WriteFailed):  # the name that was guessed is taken
        write_output(tmp_path / "out", b"new")

    assert b"precious" == (tmp_path / "victim").read_bytes()
    assert "victim" == os.readlink(tmp_path / name)


def test_private_files_are_for_their_owner(tmp_path: Path) -> None:
    """A private file has mode 0600, whatever it had; it never had another one with the bytes."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    old.chmod(0o666)
    umask = os.umask(0)
    try:
        with open_output(new, private=True) as file:
            file.write(b"key")
            (scratch,) = tmp_path.glob(".bkstore-*")
            assert 0o600 == _mode(scratch)
        write_output(old, b"key", private=True)
        write_output(tmp_path / "plain", b"")
    finally:
        os.umask(umask)

    assert (0o600, 0o600, 0o666) == (_mode(old), _mode(new), _mode(tmp_path / "plain"))


@pytest.mark.parametrize("refused", ["open", "fchown"])
def test_no_room_beside_an_old_file(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no file may be made beside, or the owner cannot stay, the old one is filled."""
    target = tmp_path / "out"
    target.write_bytes(b"a longer old content")
    before = target.stat()

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    real = os.open
    if refused == "open":
        make = lambda path, flags, *more: (  # noqa: E731
            refuse()
            if flags & os.O_CREAT and ".bkstore-" in str(path)
            else real(path, flags, *more)
        )
        patch_module(monkeypatch, user_outputs, "os", open=make)
    else:
        patch_module(monkeypatch, user_outputs, "os", fstat=_other_owner, fchown=refuse)
        patch_module(monkeypatch, user_outputs.os, "path", samestat=lambda *_: True)
    with pytest.raises(RuntimeError):
        _fail_halfway(target)
    assert b"a longer old content" == target.read_bytes()
    write_output(target, b"new")

    assert {"out": b"new"} == _files(tmp_path)
    assert before.st_ino == target.stat().st_ino


def _fail_halfway(target: Path) -> None:
    with open_output(target) as file:
        file.write(b"half")
        raise RuntimeError


_fstat = os.fstat


def _other_owner(fd: int) -> os.stat_result:
    found = list(_fstat(fd))
    found[stat.ST_UID] += 1
    return os.stat_result(found)


def test_a_file_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write-protected file is not replaced, though its folder would let it."""
    target = tmp_path / "out"
    target.write_bytes(b"precious")
    patch_module(monkeypatch, user_outputs, "os", access=lambda *_: False)
    for call in (lambda: write_output(target, b"new"), lambda: check_output(target)):
        with pytest.raises(WriteFailed, match=r"out: cannot be written: Permission denied"):
            call()

    assert {"out": b"precious"} == _files(tmp_path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none/out", "No such file or directory"), (".", "Is a directory"), ("file/out", "Not a dir")],
)
def test_targets_that_cannot_be(name: str, reason: str, tmp_path: Path) -> None:
    """The error names what the user named, at the beginning already."""
    (tmp_path / "file").write_bytes(b"")
    target = tmp_path / name
    for call in (lambda: write_output(target, b""), lambda: check_output(target)):
        with pytest.raises(WriteFailed, match=reason) as caught:
            call()
        assert str(target) == caught.value.file
    assert ["file"] == os.listdir(tmp_path)


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    """A pipe stays a pipe; its reader gets the bytes, Parquet too."""
    pipe, new = tmp_path / "pipe", tmp_path / "new"
    os.mkfifo(pipe)
    for form in ("csv", "parquet"):
        got: list[bytes] = []
        reader = Thread(target=lambda: got.append(pipe.read_bytes()))  # noqa: B023
        reader.start()
        for target in (pipe, new):
            write_tables(ROWS, [Table.from_rows(ROWS, [(1,)])], form, target)
        reader.join()
        assert [new.read_bytes()] == got
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_output("/dev/null", b"nothing")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "link"])
def test_stdout_by_name(name: str, tmp_path: Path) -> None:
    """`/dev/stdout`, also by a link to it, goes behind what stands in a redirected file."""
    out = tmp_path / "out"
    (tmp_path / "link").symlink_to("/dev/stdout")
    script = (
        "import sys; from bkstore.files.user_outputs import write_output as w; w(sys.argv[1], b'2')"
    )
    with out.open("wb") as stdout:
        stdout.write(b"1")
        stdout.flush()
        subprocess.run(
            [sys.executable, "-c", script, name], stdout=stdout, check=True, cwd=tmp_path
        )

    assert b"12" == out.read_bytes()
    assert "/dev/stdout" == os.readlink(tmp_path / "link")
    assert ["link", "out"] == sorted(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("input", "is also an input"),
        ("folder/../input", "is also an input"),
        ("link", "is also an input"),
        ("hard", "is also an input"),
        ("folder", "is also an input"),
        ("folder/new", "is inside"),
        ("to-folder/deep/new", "is inside"),
        ("folder/deep/file", "is inside"),
    ],
)
def test_inputs_are_no_targets(target: str, reason: str, tmp_path: Path) -> None:
    """An input is refused by each of its names, and what lies in an input folder; no other."""
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "file").write_bytes(b"")
    (tmp_path / "input").write_bytes(b"")
    (tmp_path / "link").symlink_to("input")
    (tmp_path / "to-folder").symlink_to("folder")
    os.link(tmp_path / "input", tmp_path / "hard")
    inputs = [tmp_path / "none", tmp_path / "input", tmp_path / "folder"]
    with pytest.raises(InvalidArgument, match=reason):
        refuse_inputs(tmp_path / target, inputs)

    for other in ("new", "folder2", "input.csv", "/dev/null"):
        refuse_inputs(tmp_path / other, inputs)
