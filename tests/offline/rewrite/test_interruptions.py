"""Rewrites that end early: nothing under the name, nothing of the source changed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.errors import DirectoryInUse, InvalidArgument, SyncFailed, WriteFailed
from bkstore.offline.rewrite import (
    RewriteProgress,
    convert,
    rebuild_index,
    rewrite_job,
    salvage,
)
from bkstore.testing.faults import FaultPlan
from tests.worlds.bookies import Made, directory_answers, tree_bytes

WAYS: dict[str, Callable[..., Any]] = {
    "convert": convert,
    "rebuild": rebuild_index,
    "salvage": salvage,
}

KILLED = """
import os, signal
from bkstore.offline import staging_directory
from bkstore.offline.index_building import assembly, row_writers
from bkstore.offline.rewrite import convert, index_writer, rebuild_index, rewrite_job, salvage

def kill(*args, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)

point = {point!r}
if point == "index":
    row_writers.TableWriter.finish = kill
elif point == "states":
    index_writer.put_states = assembly.put_states = kill
elif point == "logs":
    rewrite_job.copy_file = kill
elif point == "comparing":
    index_writer.compare_rows = kill
elif point == "renaming":
    staging_directory.StagingDirectory.publish = kill
elif point == "renamed":
    staging_directory.StagingDirectory._leave = kill
{way}({source!r}, {out!r}, {to!r})
"""


POINTS = ["index", "states", "logs", "comparing", "renaming", "renamed"]
KILLS = [("convert", point) for point in POINTS]
KILLS += [(way, point) for way in ("rebuild_index", "salvage") for point in POINTS[2:4]]


@pytest.mark.parametrize(("way", "point"), KILLS)
def test_kill(way: str, point: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """A kill at any point leaves nothing under the name, or the whole; the next run is as any."""
    root = made("sorted").root
    script = KILLED.format(
        point=point, way=way, source=str(root), out=str(tmp_path / "out"), to="rocksdb"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)
    expected = directory_answers(root)

    assert -signal.SIGKILL == done.returncode
    assert (point == "renamed") == (tmp_path / "out").exists()
    assert (tmp_path / "out.partial").is_dir()
    target = tmp_path / "out"
    if point == "renamed":
        found = directory_answers(target)
        assert expected == {name: found[name] for name in expected}
        target.rename(tmp_path / "first")
    again = {"convert": convert, "rebuild_index": rebuild_index, "salvage": salvage}[way]
    again(root, target, "rocksdb")
    found = directory_answers(target)

    assert expected == {name: found[name] for name in expected}
    assert not (tmp_path / "out.partial").exists()


STEPS = ["index", "entry logs", "other files", "comparing"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", WAYS)
def test_interrupt(way: str, step: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Ctrl-C at any step leaves nothing at all, and the source as it was."""
    root = made("db-2-tail").root
    before = tree_bytes(root)

    def interrupt(at: RewriteProgress) -> None:
        if at.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WAYS[way](root, tmp_path / "out", "idx", interrupt)

    assert [] == list(tmp_path.iterdir())
    assert before == tree_bytes(root)


def test_progress(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Each step tells how far it is, up to its whole where that is known."""
    told: list[RewriteProgress] = []
    result = convert(made("sorted").root, tmp_path / "out", "rocksdb", told.append)
    ends = {at.step: at for at in told}

    assert STEPS == list(dict.fromkeys(at.step for at in told))
    assert result.log_bytes == ends["entry logs"].done == ends["entry logs"].total
    assert result.entries == ends["comparing"].done == ends["comparing"].total


@pytest.mark.parametrize(
    ("way", "to"), [("convert", "rocksdb"), ("rebuild", "idx"), ("salvage", "idx")]
)
@pytest.mark.parametrize("fault", ["full", "sync", "write"])
def test_a_disk_that_refuses(
    way: str, to: str, fault: str, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """Where the system refuses, the error names a file of the target, and nothing is left."""
    plan = FaultPlan()
    if fault == "full":
        plan.disk_full(after_bytes=20_000)
    elif fault == "sync":
        plan.fail_sync(9)
    else:
        plan.fail_write(3, errno.ENOSPC)
    with pytest.raises((WriteFailed, SyncFailed), match="out"):
        WAYS[way](made("interleaved-3").root, tmp_path / "out", to, files=plan)

    assert [] == list(tmp_path.iterdir())


def test_a_source_that_moves(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A source that changes meanwhile gives no target: it is a bookie that runs."""
    shutil.copytree(made("sorted").root, tmp_path / "b")

    def move(at: RewriteProgress) -> None:
        if at.step == "comparing":
            (tmp_path / "b/ledgers/current/ff.log").write_bytes(bytes(at.done))

    with pytest.raises(DirectoryInUse):
        convert(tmp_path / "b", tmp_path / "out", "rocksdb", move)
    assert ["b"] == [path.name for path in tmp_path.iterdir()]


def test_two_at_once(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A second rewrite to a target that is growing is refused, and does no harm."""
    root = made("sorted").root

    def second(at: RewriteProgress) -> None:
        if at.step == "comparing" and not at.done:
            with pytest.raises(DirectoryInUse):
                convert(root, tmp_path / "out", "idx")

    convert(root, tmp_path / "out", "rocksdb", second)
    assert directory_answers(root) == directory_answers(tmp_path / "out")


def test_a_folder_that_is_none_of_ours(made: Callable[[str], Made], tmp_path: Path) -> None:
    """``DST.partial`` that no rewrite of this kind began is refused as it is."""
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").write_text("mine")
    with pytest.raises(
        InvalidArgument, match="not the folder of an interrupted convert; it is left unchanged"
    ):
        convert(made("sorted").root, tmp_path / "out", "rocksdb")

    assert {"out.partial/mine"} == tree_bytes(tmp_path).keys()


@pytest.fixture
def _listening() -> Iterator[None]:
    """Let Ctrl-C count also where a shell started the tests in its background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_listening")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_command(
    signum: int, made: Callable[[str], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that gets Ctrl-C or SIGTERM ends as such, and leaves nothing."""

    def stop(*args: object) -> int:
        os.kill(os.getpid(), signum)
        raise AssertionError("the signal did not arrive")

    monkeypatch.setattr(rewrite_job, "copy_file", stop)
    words = ["convert", str(made("sorted").root), str(tmp_path / "out"), "--to", "rocksdb"]
    code: object
    try:
        code = main(words)
    except SystemExit as error:
        code = error.code

    assert 128 + signum == code
    assert [] == list(tmp_path.iterdir())
