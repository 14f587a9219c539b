"""`bkstore diff`: a row a difference, exit codes, dumps beside directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cli.screen.cells import MAX_RANGES
from bkstore.index.api import LedgerState
from tests.worlds.dumps import CONTENT, KEY, LAYOUTS, fill

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a folder with `a`, index files, and `b`, RocksDB, that has more and less."""
    fill(LAYOUTS["idx"](tmp_path / "a"))
    fill(LAYOUTS["rocks"](tmp_path / "b"))
    with LAYOUTS["rocks"](tmp_path / "b") as index:
        index.put_many(1, [3000, 3001, 3005], [1028, 1100, 1200])
        index.delete(9)
        index.set_state(300, LedgerState(b"another key, 20 byte"))
    return tmp_path


def _run(capsys: Capsys, *words: object, code: int = 1) -> tuple[list[dict[str, Any]], str]:
    """Return (rows, what went to stderr)."""
    found = main(["diff", *map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()

    assert code == found, err
    return [json.loads(line) for line in out.splitlines()], err


def test_differences(top: Path, capsys: Capsys) -> None:
    """A row a difference with entries as ranges; exit code 1; how many differ on stderr."""
    rows, err = _run(capsys, top / "a", top / "b")
    names = ("kind", "ledger_id", "only_in", "entries", "first_entry", "last_entry", "ranges")

    assert [
        ("entries", 1, "b", 3, 3000, 3005, [[3000, 3001], [3005, 3005]]),
        ("ledger", 9, "a", 5, 0, 70_001, [[0, 2], [70_000, 70_001]]),
        ("master_key", 300, None, None, None, None, None),
    ] == [tuple(row[name] for name in names) for row in rows]
    assert f"{len(CONTENT)} ledgers compared, 3 differ" in err


def test_no_key_is_shown(top: Path, capsys: Capsys) -> None:
    """Neither form nor message has a byte of a master key."""
    for form in ("table", "json", "csv"):
        main(["diff", str(top / "a"), str(top / "b"), "--format", form, "--wide"])
        told = "".join(capsys.readouterr())

        assert "master_key" in told
        for key in (KEY, b"another key, 20 byte"):
            assert key.decode() not in told
            assert key.hex() not in told


def test_alike(top: Path, capsys: Capsys) -> None:
    """Where nothing differs there is no row, and the exit code is 0."""
    rows, err = _run(capsys, top / "b", top / "b", code=0)

    assert [] == rows
    assert "7 ledgers compared, 0 differ" in err


def test_nothing_to_compare(tmp_path: Path, capsys: Capsys) -> None:
    """Two bookies without a ledger are no comparison that came out well: exit code 3."""
    for name in "ab":
        LAYOUTS["idx"](tmp_path / name).close()
    rows, err = _run(capsys, tmp_path / "a", tmp_path / "b", code=3)

    assert [] == rows
    assert "0 ledgers compared, 0 differ" in err


def test_one_ledger(top: Path, capsys: Capsys) -> None:
    """Asked for one ledger; one that neither knows is exit code 1, and said."""
    words = (top / "a", top / "b", "--ledger-id")
    rows, err = _run(capsys, *words, 9)

    assert [9] == [row["ledger_id"] for row in rows]
    assert "1 ledger compared, 1 differs" in err
    assert [] == _run(capsys, *words, 2, code=0)[0]
    assert "ledger 77 is on neither bookie" in _run(capsys, *words, 77)[1]
    assert 2 == main(["diff", str(top / "a"), str(top / "b"), "--ledger-scope-id", "3"])


def test_dumps(top: Path, capsys: Capsys) -> None:
    """A dump stands in the place of a directory; of several bookies one is named."""
    pytest.importorskip("pyarrow")
    out = top / "out"

    assert 0 == main(["dump", str(top / "a"), str(top / "b"), str(out)])
    capsys.readouterr()
    rows = _run(capsys, out, top / "b", "--bookie-a", "a")[0]

    assert rows == _run(capsys, top / "a", top / "b")[0]
    assert rows == _run(capsys, out, out, "--bookie-a", "a", "--bookie-b", "b")[0]
    assert (
        "choose a bookie by --bookie-a or --bookie-b; it has a, b"
        in _run(capsys, out, top / "b", code=2)[1]
    )
    assert "not a dump" in _run(capsys, top / "a", top / "b", "--bookie-a", "a", code=2)[1]
    assert 2 == main(
        ["diff", str(out), str(top / "b"), "--bookie-a", "a", "-o", str(out / "x.csv")]
    )
    assert not (out / "x.csv").exists()


def test_many_ranges(tmp_path: Path, capsys: Capsys) -> None:
    """Above some thousand ranges they are null, and the groups say all; a screen shows a few."""
    count = MAX_RANGES + 2
    for name, entries in (("a", [0]), ("b", range(0, 3 * count, 3))):
        with LAYOUTS["idx"](tmp_path / name) as index:
            index.put_many(7, entries, [1028] * len(entries))
    (row,), _ = _run(capsys, tmp_path / "a", tmp_path / "b")

    assert (None, count - 1) == (row["ranges"], row["entries"])
    assert [[3, 3 * count - 3, 1, 3]] == row["groups"]
    assert 1 == main(["diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert f"3, 6, 9, ..., {3 * count - 3} ({count - 1:,} entries)" in capsys.readouterr().out


def test_damage(top: Path, capsys: Capsys) -> None:
    """What cannot be read is a line on stderr, and exit code 1 even if nothing else differs."""
    path = top / "a/ledgers/current/0/2/2.idx"
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    rows, err = _run(capsys, top / "a", top / "a")

    assert [] == rows
    assert err.count(str(path)) == 2  # entries and state; both sides are one directory
    assert "not compared" in err
