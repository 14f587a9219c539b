"""The one way to open a regular file: what is none is told, and nothing waits."""

from __future__ import annotations

import ast
import os
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import bkstore
from bkstore.errors import CorruptionError
from bkstore.files import opening
from bkstore.files.opening import (
    next_data_offset,
    open_for_reading,
    open_regular,
    read_file,
    read_text_file,
)
from tests.patched_modules import patch_module

BKSTORE = Path(bkstore.__file__).parent


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
        for call in (
            open_regular,
            lambda path: read_file(path, 10),
            lambda path: read_text_file(path, 10),
        ):
            with pytest.raises(CorruptionError, match=kind):
                call(path)


def test_a_pipe_that_takes_the_files_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was a file when it was looked at, and is a pipe when it is opened, is told too."""
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    seen = os.stat(tmp_path / "file")
    before = len(os.listdir("/dev/fd"))
    patch_module(monkeypatch, opening, "os", stat=lambda path: seen)

    with pytest.raises(CorruptionError, match="a pipe"):
        open_regular(tmp_path / "pipe")
    monkeypatch.undo()
    assert before == len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_content_up_to_the_bound(tmp_path: Path, size: int) -> None:
    """A file of `limit` bytes is read whole."""
    (tmp_path / "file").write_bytes(b"x" * size)

    assert b"x" * size == read_file(tmp_path / "file", 10)
    assert "x" * size == read_text_file(tmp_path / "file", 10)


def test_content_above_the_bound(tmp_path: Path) -> None:
    """A longer one is told, however large: a sparse file of a TiB costs nothing."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    with pytest.raises(CorruptionError, match="longer than the limit of 10 bytes"):
        read_file(path, 10)
    with pytest.raises(CorruptionError, match="longer than the limit of 10 bytes"):
        read_text_file(path, 10)
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptionError, match="longer than the limit of 10 bytes"):
        read_file(path, 10)


def test_the_systems_refusals_stay(tmp_path: Path) -> None:
    """A file that is not there is not called damaged."""
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    """A name is there, so it is damage and not absence."""
    (tmp_path / "nowhere").symlink_to("none")
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (("nowhere", "a link to nothing"), ("loop", "leads back to itself")):
        with pytest.raises(CorruptionError, match=reason):
            open_regular(tmp_path / name)
        with pytest.raises(CorruptionError, match=reason):
            open_regular(tmp_path / name, os.O_RDWR | os.O_CREAT)

    assert ["loop", "nowhere"] == sorted(os.listdir(tmp_path))


def test_text_has_no_holes(tmp_path: Path) -> None:
    """The first NUL byte of a text ends its reading: a sparse file takes no memory."""
    path = tmp_path / "file"
    path.write_bytes(b"{}")
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptionError, match="offset 2: has a NUL byte"):
        read_file(path, 1 << 41, text=True)
    with pytest.raises(CorruptionError, match="offset 2: has a NUL byte"):
        read_text_file(path, 1 << 41)


def test_text_files(tmp_path: Path) -> None:
    """ASCII is text, in memory once whatever its size, with the line ends that it has; any other
    byte, wherever it is, makes all of it bytes."""
    path = tmp_path / "file"
    ascii_text = b"a\r\nb\rc\n\x7f" + b"x" * (5 << 20)
    path.write_bytes(ascii_text)

    tracemalloc.start()
    text = read_text_file(path, 1 << 30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert ascii_text.decode("ascii") == text
    assert peak < 1.6 * len(ascii_text)
    for odd in (b"\x80", "\ufeff".encode()):
        for content in (odd + ascii_text, ascii_text + odd):
            path.write_bytes(content)

            assert content == read_text_file(path, 1 << 30)
    path.write_bytes(b"\xff\x00")
    with pytest.raises(CorruptionError, match="offset 1: has a NUL byte"):
        read_text_file(path, 10)


def test_position_stays_behind_a_hole(tmp_path: Path) -> None:
    """Looking for data moves no position: a file object above the descriptor reads on."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    os.truncate(path, 1 << 24)
    with open_for_reading(path) as file:
        assert b"01" == file.read(2)
        assert next_data_offset(file.fileno(), 1 << 23) in (None, 1 << 23)
        assert b"23" == file.read(2)


# -- one way, used everywhere

UNDISTURBED = ("testing/", "lab/")
"""Rooms whose files are a test's or an experiment's own; no fault plan is for them."""

OWN_WAYS = {
    "files/opening.py": "the way itself",
    "files/disk_changes.py": "what writers change, and folders",
    "files/lock_files.py": "lock files, which are looked at when they are open",
    "files/user_outputs.py": "what a user named to be written, pipes and devices too",
    "files/spill_files.py": "spills, which it has written itself",
    "files/scratch.py": "the marker of its own, never waited for",
    "cluster/audit/resume_file.py": "a file that it has just made",
    "cli/terminal/secrets.py": "a password's file, which may be the shell's pipe",
    "cli/terminal/standard_streams.py": "/dev/null",
    "index/hierarchical/small_files.py": "thousands, each looked at by name before",
    "forks.py": "/dev/null",
    "storage/directories/writer_lock.py": "a directory, which is locked",
    "report/html/rendering.py": "what the package itself ships",
    "cluster/in_process/damage_at_rest.py": "damages its own cluster's files",
    "cluster/in_process/bookie.py": "copies its own bookie",
    "index/rocks/files/running_copies.py": "copies databases of this process, for tests",
    "spark/source/rows.py": "pieces that it has just written",
    "report/__init__.py": "an example's page",
    "wire/server/bookie_server.py": "/dev/null",
}
"""Modules that open files another way, and why they may; `testing` damages what tests made."""

WRITTEN_OTHERWISE = {
    "files/disk_changes.py": "the way itself",
    "files/scratch.py": "directories that the system names, and their removal",
    "files/user_outputs.py": "pipes and devices, and a file that may not be replaced",
    "cli/trials/demo_data.py": "the demo's own folder",
    "cli/terminal/standard_streams.py": "standard streams",
    "cluster/in_process/damage_at_rest.py": "damages its own cluster's files",
    "cluster/in_process/bookie.py": "copies its own bookie",
    "index/rocks/files/running_copies.py": "copies databases of this process, for tests",
    "spark/java.py": "the shim of a Java that is started from it",
    "spark/session.py": "Spark's own temporary files",
}
"""Modules that change the disk another way than by `Files`, and why they may."""

CHANGES = {
    *("fsync", "ftruncate", "link", "makedirs", "mkdir", "mkdtemp", "mkfifo", "pwrite", "remove"),
    *("rename", "renames", "replace", "rmdir", "rmtree", "symlink", "truncate", "unlink", "write"),
    *("copyfile", "copy2", "copytree", "move", "TemporaryFile", "NamedTemporaryFile"),
}
OF_PATHS = {
    *("hardlink_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink"),
    *("write_bytes", "write_text"),
}

READS = {
    "read_bytes",
    "read_text",
    "copyfile",
    "copy2",
    "copytree",
    "fromfile",
    "memmap",
}
PARQUET = {"pq.ParquetFile", "pq.read_metadata", "pq.read_table"}


def _opens(tree: ast.AST, checks: bool) -> Iterator[str]:
    """Yield the calls that open a file for reading; `checks`: the module looks before it does."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        of = ast.unparse(node.func)
        name = of.rpartition(".")[2]
        words = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = [a.value for a in words if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        reads = any(set(mode) <= set("rb+t") and "r" in mode for mode in modes)
        bare = of == "os.open" or (name == "open" and reads) or (of == "open" and not modes)
        if bare or name in READS or (of in PARQUET and not checks):
            yield f"{node.lineno}: {of}"


def test_everything_is_opened_this_way() -> None:
    """No module opens a file for reading by itself, but for those that say why."""
    found = {}
    for path in sorted(BKSTORE.rglob("*.py")):
        name = str(path.relative_to(BKSTORE))
        text = path.read_text(encoding="utf-8")
        exempt = name in OWN_WAYS or name.startswith(UNDISTURBED)
        if not exempt and (calls := list(_opens(ast.parse(text), "check_regular(" in text))):
            found[name] = calls

    assert {} == found
    assert [] == [name for name in OWN_WAYS if not (BKSTORE / name).exists()]


def _changes(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that change the disk by themselves, not by a `Files`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        of = ast.unparse(node.func)
        base, _, name = of.rpartition(".")
        words = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = {word.value for word in words if isinstance(word, ast.Constant)}
        writes = name == "open" and bool({"wb", "ab", "xb", "r+b", "w+b", "w", "a", "x"} & modes)
        of_path = (
            name in OF_PATHS and base not in ("", "self", "os") and "files" not in base.lower()
        )
        if writes or of_path or (base in ("os", "shutil", "tempfile") and name in CHANGES):
            yield f"{node.lineno}: {of}"


def test_everything_is_written_this_way() -> None:
    """No module changes the disk but by `Files`, so that a fault plan reaches what is written."""
    found = {}
    for path in sorted(BKSTORE.rglob("*.py")):
        name = str(path.relative_to(BKSTORE))
        if name in WRITTEN_OTHERWISE or name.startswith(UNDISTURBED):
            continue
        if calls := list(_changes(ast.parse(path.read_text(encoding="utf-8")))):
            found[name] = calls

    assert {} == found
    assert [] == [name for name in WRITTEN_OTHERWISE if not (BKSTORE / name).exists()]
