"""Links that lead nowhere or back to themselves, and unreadable files among sound ones: each file
that a command needs is named once, and all others are read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.cli.maintenance.convert import _is_in_index
from bkstore.formats.entrylog import HEADER_SIZE
from bkstore.storage.options import StorageKind
from tests.worlds.bookies import make_bookie

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bookie of each layout, each with two journals."""
    top = tmp_path_factory.mktemp("bookies")
    kinds: list[StorageKind] = ["sorted", "interleaved", "db"]
    for kind in kinds:
        make_bookie(top / kind, kind, journals=2, checkpoint=False)
    return top


@pytest.fixture
def bookie(request: pytest.FixtureRequest, bookies: Path, tmp_path: Path) -> Path:
    """Return a copy of the bookie of a storage."""
    shutil.copytree(bookies / request.param, tmp_path / "b")
    return tmp_path / "b"


INTERLEAVED = pytest.mark.parametrize("bookie", ["interleaved"], indirect=True)
SORTED = pytest.mark.parametrize("bookie", ["sorted"], indirect=True)


def _run(capsys: Capsys, *words: object) -> tuple[int, int, list[str]]:
    """Return the exit code, the number of rows and the lines on standard error."""
    code = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return code, len(out.splitlines()), err.splitlines()


def _replace_by_link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("command", ["usage", "rocks", "dump", "salvage", "listfiles"])
@pytest.mark.parametrize(
    ("bookie", "file"),
    [
        ("db", "link"),
        ("db", "ledgers/current/ledgers/IDENTITY"),
        ("sorted", "ledgers/current/lastId"),
        ("sorted", "ledgers/current/0"),
    ],
    indirect=["bookie"],
)
def test_links_to_themselves(
    bookie: Path, tmp_path: Path, file: str, command: str, capsys: Capsys
) -> None:
    """They are no files: no command fails for one that it does not need."""
    if (bookie / file).is_dir():
        shutil.rmtree(bookie / file)
    _replace_by_link(bookie / file, Path(file).name)
    words = [command, bookie, *([tmp_path / "out"] if command in ("dump", "salvage") else [])]
    code, _, lines = _run(capsys, *words)

    has_database = (bookie / "ledgers/current/locations").is_dir()
    assert code in ((0, 1) if command != "rocks" or has_database else (2,))
    assert not any("Too many levels" in line for line in lines)


@SORTED
def test_usage_of_a_file_that_cannot_be_read(bookie: Path, capsys: Capsys) -> None:
    """An index file that is a link to nothing is a finding, and the number of rows is unknown."""
    path = next(bookie.glob("ledgers/current/*/*/*.idx"))
    _replace_by_link(path, "nowhere")
    code, rows, lines = _run(capsys, "usage", bookie)

    assert (1, 3) == (code, rows)
    assert [f"damage: {path}: cannot be read: is a link to nothing, not a regular file"] == lines

    main(["usage", str(bookie), "--detail", "--format", "jsonl"])
    row = json.loads(capsys.readouterr().out)

    assert row["index_row_bytes"] is None


@SORTED
def test_usage_of_a_torn_log_beside_a_damaged_index(bookie: Path, capsys: Capsys) -> None:
    """If the index cannot tell whether it has the torn record, the log counts as damaged."""
    index_file = next(bookie.glob("ledgers/current/*/*/*.idx"))
    with open(index_file, "r+b") as file:
        file.write(b"XXXX")
    last_log = max(bookie.glob("ledgers/current/*.log"), key=lambda path: int(path.stem, 16))
    os.truncate(last_log, last_log.stat().st_size - 5)
    code, rows, lines = _run(capsys, "usage", bookie)

    assert (1, 3) == (code, rows)
    assert sorted([str(index_file), str(last_log)]) == sorted(
        line.split(": ")[1] for line in lines if line.startswith("damage")
    )


@INTERLEAVED
@pytest.mark.parametrize("command", ["readlog", "readlogmetadata", "readjournal"])
def test_one_of_several_files(bookie: Path, command: str, capsys: Capsys) -> None:
    """One that cannot be read is a finding, the others are read; alone, it ends the command."""
    pattern = "journal0/current/*.txn" if command == "readjournal" else "ledgers/current/*.log"
    path = sorted(bookie.glob(pattern))[0]
    _, all_rows, _ = _run(capsys, command, bookie)
    path.unlink()
    os.mkfifo(path)
    code, rows, lines = _run(capsys, command, bookie)
    reason = f"{path}: cannot be read: is a pipe, not a regular file"

    assert (1, [f"damage: {reason}"]) == (code, lines)
    assert 2 < rows < all_rows

    number = ["--journal-dir", "0"] if command == "readjournal" else []
    words = [command, bookie, path.name, *number]

    assert (2, [f"bkstore: {reason}"]) == _run(capsys, *words)[::2]


@INTERLEAVED
@pytest.mark.parametrize("command", ["usage", "readlogmetadata"])
def test_a_log_that_lost_its_map(bookie: Path, command: str, capsys: Capsys) -> None:
    """Damage that took the ledgers map with it is one finding; a broken map alone is an oddity."""
    path = sorted(bookie.glob("ledgers/current/*.log"))[0]
    sound = path.read_bytes()
    map_offset = int.from_bytes(sound[8:16], "big")
    assert HEADER_SIZE < map_offset < len(sound)

    path.write_bytes(sound[: map_offset - 10] + bytes(len(sound) - map_offset + 10))
    code, _, lines = _run(capsys, command, bookie)

    assert 1 == code
    assert [f"damage: {path}"] == [": ".join(line.split(": ")[:2]) for line in lines]

    count_end = map_offset + 4 + 16 + 4  # size, ledger -1 and entry -2, number of ledgers
    path.write_bytes(sound[: count_end - 1] + b"\x7f" + sound[count_end:])
    code, _, lines = _run(capsys, command, bookie)

    assert 1 == code
    assert any(line.startswith("oddity") and "ledgers map is invalid" in line for line in lines)


@pytest.mark.parametrize(
    ("file", "is_index"),
    [
        ("b/current/locations/000007.sst", True),
        ("b/current/ledgers-128", True),
        ("b/current/0/2/5.idx", True),
        ("b/current/0", True),
        ("b/ledgers/current/0.log", False),
        ("b/ledgers/bkstore.lock", False),
        ("elsewhere/current/0", False),
    ],
)
def test_files_that_a_rebuild_replaces(file: str, is_index: bool) -> None:
    """Index files, databases, and what is in the place of their folders; nothing else."""
    assert is_index == _is_in_index(Path(file), Path("b"))


@SORTED
def test_advice_of_a_conversion(bookie: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A rebuild is advised for a damaged index, not for a file that a rebuild needs, too."""
    lock = bookie / "ledgers/bkstore.lock"
    _replace_by_link(lock, "nowhere")
    words = ["convert", bookie, tmp_path / "out", "--to", "rocksdb"]
    code, _, lines = _run(capsys, *words)

    assert (2, 1) == (code, len(lines))

    lock.unlink()
    os.truncate(next(bookie.glob("ledgers/current/*/*/*.idx")), 3)
    code, _, lines = _run(capsys, *words)

    assert (2, 2) == (code, len(lines))
    assert lines[1].startswith("bkstore rebuild-index")
