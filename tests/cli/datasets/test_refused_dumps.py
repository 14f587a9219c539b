"""What is not what a command wants is named as what it is, with what would be wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.index.hierarchical import HierarchicalIndex

Capsys = pytest.CaptureFixture[str]


def _line(capsys: Capsys, *words: object, code: int = 2) -> str:
    """Return the one line on standard error of a command that ends with `code`."""
    assert code == main(list(map(str, words)))
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """Return a small bookie of index files."""
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(7, [0, 1], [1028, 1100])
    return tmp_path / "b"


def test_a_finished_dump_says_so(bookie: Path, tmp_path: Path, capsys: Capsys) -> None:
    """Dumping into a finished dump is refused as that, with what to do; nothing is touched."""
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    assert 0 == main(["dump", str(bookie), str(out)])
    capsys.readouterr()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    line = _line(capsys, "dump", bookie, out)

    assert line.startswith(f"bkstore: {out}: this dump is already complete (at 2")
    assert line.endswith("to dump again, choose another folder or remove this one")
    assert "could not be read" not in line
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_finished_dump_that_lacks_a_bookie(bookie: Path, tmp_path: Path, capsys: Capsys) -> None:
    """Of a dump without some bookies it is said that it lacks them."""
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    assert 1 == main(["dump", str(bookie), f"gone={tmp_path}/gone", str(out)])
    capsys.readouterr()

    assert "without the bookies that could not be read)" in _line(capsys, "dump", bookie, out)


def test_another_folder_is_no_dump(bookie: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A folder with something else in it, a manifest of others too, is no finished dump."""
    pytest.importorskip("pyarrow")
    for name, text in (("x", ""), ("manifest.json", "{}"), ("manifest.json", "[")):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text(text)

        assert _line(capsys, "dump", bookie, tmp_path / "out").endswith(
            "/out: already exists and is not an empty folder"
        )


@pytest.mark.parametrize("command", [["analyze"], ["load", "--to", "idx", "DST"]], ids=" ".join)
def test_no_dump(command: list[str], tmp_path: Path, capsys: Capsys) -> None:
    """Nothing, a file and a folder that is no dump are told apart."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    name, *rest = [word.replace("DST", str(tmp_path / "dst")) for word in command]
    said = {
        word: _line(capsys, name, tmp_path / word, *rest) for word in ("none", "file", "folder")
    }

    assert said["none"].endswith("/none: no such directory")
    assert said["file"].endswith("/file: is not a directory, as a dump must be")
    assert "/folder: not a dump: it has no manifest.json" in said["folder"]
