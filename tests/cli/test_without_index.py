"""Commands that read logs, journals and names work where the index cannot be opened."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir
from bkstore.cli.main import main
from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.formats.entry import Coder
from bkstore.storage.bookie import Bookie

KEY = b"k" * 20
COMMANDS = [
    ["where", "DIR", "--ledger-id", "7"],
    ["readlog", "DIR"],
    ["readlogmetadata", "DIR"],
    ["readjournal", "DIR"],
    ["lastmark", "DIR"],
    ["listfiles", "DIR"],
]


def _bookie(top: Path, dirs: int) -> Path:
    """Write a bookie with db storage: ledgers 6 and 7, 20 entries each."""
    coder = Coder("CRC32C", "secret")
    names = [top / f"l{number}" for number in range(dirs)]
    with Bookie.open(
        storage="db", ledger_dirs=names, journal_dirs=[top / "journal"], bookie_id="b"
    ) as bookie:
        for ledger in (6, 7):
            for record in coder.encode_many(ledger, range(20), [b"x" * 30] * 20):
                bookie.add_entry(bytes(record), KEY, sync=False)
    return top


def _damage(top: Path, how: str) -> None:
    for locations in top.glob("l*/current/locations"):
        if how == "CURRENT":
            (locations / "CURRENT").write_bytes(b"nonsense")
        elif how == "table":
            tables = [*locations.glob("*.sst"), *locations.glob("*.log")]
            for path in tables:
                path.write_bytes(b"\xff" * path.stat().st_size)
        else:
            shutil.rmtree(locations)
            locations.mkdir()


def _rows(words: list[str], capsys: Any) -> tuple[int, list[dict[str, Any]], str]:
    code = main([*words, "--format", "jsonl"])
    out = capsys.readouterr()
    return code, [json.loads(line) for line in out.out.splitlines()], out.err


@pytest.mark.parametrize("dirs", [1, 2])
@pytest.mark.parametrize("how", ["CURRENT", "table", "empty"])
def test_damaged_index(tmp_path: Path, how: str, dirs: int, capsys: Any) -> None:
    """The same rows as before the damage (sizes of index files apart), exit code 0."""
    top = _bookie(tmp_path / "b", dirs)
    words = [[str(top) if word == "DIR" else word for word in each] for each in COMMANDS]
    whole = [_rows(each, capsys)[1] for each in words]
    _damage(top, how)
    is_opened = how == "table"  # damage of a table file is found when its rows are read
    with pytest.raises(CorruptionError), BookieDir(top) as bookie:
        list(bookie.scan())
    for each, before in zip(words, whole):
        code, rows, err = _rows(each, capsys)
        if each[0] == "listfiles":
            before, rows = (
                [row for row in some if row["kind"] != "index"] for some in (before, rows)
            )

        assert before, each
        assert (0, before) == (code, rows), each
        unchecked = dirs > 1 and not is_opened
        assert ("order of the directories cannot be checked" in err) == unchecked
    for name in ("inspect", "ledgers"):
        assert (1 if is_opened else 2) == main([name, str(top)])


def test_damaged_cache_of_garbage_collection(tmp_path: Path, capsys: Any) -> None:
    """`readlogmetadata` reads the logs where `metadata-cache` is broken, with a finding."""
    top = _bookie(tmp_path / "b", 1)
    before = _rows(["readlogmetadata", str(top)], capsys)[1]
    cache = top / "l0" / "current" / "metadata-cache"
    cache.mkdir()
    (cache / "CURRENT").write_bytes(b"nonsense")
    code, rows, err = _rows(["readlogmetadata", str(top)], capsys)

    assert (1, before) == (code, rows)
    assert f"damage: {cache / 'CURRENT'}: offset 0: does not name a manifest" in err


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_in_use_is_refused_still(tmp_path: Path, words: list[str], capsys: Any) -> None:
    """A bookie that runs (RocksDB's lock is held) is refused as before; --live reads it."""
    top = _bookie(tmp_path / "b", 1)
    words = [str(top) if word == "DIR" else word for word in words]
    with (top / "l0" / "current" / "locations" / "LOCK").open("wb") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)

        assert 2 == main(words)
        assert "is open elsewhere" in capsys.readouterr().err
        assert 0 == main([*words, "--live"])


def test_index_is_opened_when_it_is_asked_for(tmp_path: Path) -> None:
    """Without need of it, the damage is raised by the first question to the index."""
    top = _bookie(tmp_path / "b", 1)
    _damage(top, "CURRENT")
    with BookieDir(top, needs_index=False) as bookie:
        (found,) = bookie.find_logs(7)

        assert 20 == len(found.entries)
        for _ in range(2):
            with pytest.raises(CorruptionError, match="does not name a manifest"):
                bookie.index.ledgers()
            with pytest.raises(CorruptionError, match="does not name a manifest"):
                bookie.read_entry(7, 0)
    with pytest.raises(IllegalOperation, match="closed"):
        bookie.index.ledgers()


def test_sound_index_without_need_of_it(tmp_path: Path) -> None:
    """A sound index answers as if it had been opened at once."""
    top = _bookie(tmp_path / "b", 2)
    with BookieDir(top, needs_index=False) as bookie:
        assert bookie.index_error is None
        assert list(range(20)) == bookie.index.entries(7).tolist()
        assert bookie.read_entry(7, 3).endswith(b"x" * 30)
