"""Sides of the user's own: index classes by name or entry point, RocksDB's options, --only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.lab import Experiment, main
from bkstore.lab.experiments.deletes import EXPERIMENT as DELETES, STEPS
from bkstore.lab.experiments.keys import EXPERIMENT as KEYS, USUAL
from bkstore.lab.experiments.layouts import EXPERIMENT as LAYOUTS
from bkstore.lab.stores import chosen_sides

MODULE = """
from bkstore.index.hierarchical import HierarchicalIndex

class MyIndex(HierarchicalIndex):
    '''An index of one's own, with a file beside it that counts too.'''

    def __init__(self, path, *, writable=False):
        super().__init__(path, writable=writable)
        if writable:
            (path / "notes.txt").write_bytes(bytes(1_200_000))

class NoIndex:
    def __init__(self, path, *, writable=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the module into the current directory."""
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def _rows(*words: str, experiment: Experiment = LAYOUTS) -> list[dict[str, Any]]:
    assert 0 == main(experiment, ["--scale", "0.01", "--rounds", "1", "--json", "r.json", *words])
    rows: list[dict[str, Any]] = json.loads(Path("r.json").read_text())["rows"]
    return rows


def test_a_class_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    """It is measured for each shape, all its files counted, and has a column and a finding."""
    rows = _rows("--side", "my_module:MyIndex", "--only", "MyIndex", "idx files")
    own = {row["shape"]: row for row in rows if row["side"] == "MyIndex"}
    files = {row["shape"]: row for row in rows if row["side"] == "idx files"}
    out = capsys.readouterr().out

    assert own.keys() == files.keys()
    for shape, row in own.items():
        extra = row["bytes_per_entry"] - files[shape]["bytes_per_entry"]
        assert 1_200_000 / row["entries"] == pytest.approx(extra, rel=0.01)
        assert files[shape]["listed"] == row["listed"] == row["entries"]
    assert "Of few large ledgers MyIndex takes" in out
    assert "MyIndex" in out.splitlines()[1]


def test_options_of_rocksdb() -> None:
    """They are applied: without compression tables are larger, with a small buffer there are more
    files; each is a side of its own."""
    words = ["--rocks", "compression=none,block_size=65536", "--rocks", "write_buffer_size=65536"]
    names = ["rocksdb", "rocksdb compression=none block_size=65536"]
    names += ["rocksdb write_buffer_size=65536"]
    rows = {
        row["side"]: row for row in _rows(*words, "--only", *names) if row["shape"] == "few large"
    }

    assert list(rows) == names
    assert rows[names[1]]["bytes_per_entry"] > 1.3 * rows["rocksdb"]["bytes_per_entry"]


def test_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package names its classes by the group `bkstore.index`."""

    class EntryPoint:
        def load(self) -> Any:
            return HierarchicalIndex

    def found(*, group: str, name: str) -> list[EntryPoint]:
        assert ("bkstore.index", "packed") == (group, name)
        return [EntryPoint()]

    monkeypatch.setattr(chosen_sides, "entry_points", found)

    assert {"packed"} == {row["side"] for row in _rows("--side", "packed", "--only", "packed")}


def test_deletes_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    """An index of yours deletes as it does, beside RocksDB with options of yours by range; all of
    its files count, and both have a finding."""
    words = ["--side", "my_module:MyIndex", "--rocks", "compression=none"]
    rocks = "deleteRange, rocksdb compression=none"
    rows = _rows(*words, "--only", "MyIndex", rocks, "deleteRange", experiment=DELETES)
    out = capsys.readouterr().out

    assert {"MyIndex", rocks, "deleteRange"} == {row["strategy"] for row in rows}
    assert [] == [row for row in rows if row["live"] != row["rows"]]
    last = {row["strategy"]: row for row in rows if row["step"] == STEPS}
    # A ledger of 500 entries is a header and a page of 8 KiB; beside them are the notes.
    live_ledgers = last["MyIndex"]["live"] // 500
    assert 9 * live_ledgers + 1_200_000 / 1024 == pytest.approx(last["MyIndex"]["kib"], abs=1)
    assert last[rocks]["kib"] > 1.3 * last["deleteRange"]["kib"]
    assert last["MyIndex"]["tombstones"] is None
    assert "- MyIndex takes " in out
    assert f"- {rocks} takes " in out


def test_options_of_rocksdb_beside_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """RocksDB with options of yours has the key order of a bookie, and a finding."""
    own = f"{USUAL}; rocksdb compression=none"
    rows = _rows("--rocks", "compression=none", "--only", USUAL, own, experiment=KEYS)
    usual, tuned = rows

    assert [USUAL, own] == [usual["key"], tuned["key"]]
    assert tuned["table_per_entry"] > 1.3 * usual["table_per_entry"]
    assert "- rocksdb compression=none takes " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--side", "nothing"], "no entry point of bkstore.index"),
        (["--side", "my_module:Missing"], "has no attribute 'Missing'"),
        (["--side", "no_such_module:Index"], "No module named 'no_such_module'"),
        (["--side", "os:getcwd"], "called with (path, writable=True)"),
        (["--side", "my_module:NoIndex", "--only", "NoIndex"], "not an EntryIndex"),
        (["--rocks", "block_size"], "'block_size' is not OPTION=VALUE"),
        (["--rocks", "block_size=many"], "invalid literal"),
        (["--rocks", "no_such_option=1"], "have no set_no_such_option"),
        (["--rocks", "compression=rar"], "rar"),
        (["--only", "rocks"], "no side 'rocks'; there are idx files, rocksdb"),
    ],
)
def test_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with exit code 2, before anything is measured."""
    try:
        code: Any = main(LAYOUTS, ["--scale", "0.01", "--rounds", "1", *words])
    except SystemExit as exit_:
        code = exit_.code
    lines = capsys.readouterr().err.splitlines()

    assert (2, True) == (code, message in lines[-1])
