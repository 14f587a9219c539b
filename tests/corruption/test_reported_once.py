"""The same damage, met by several readers, is reported once."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import add_unreported
from tests.worlds.bookies import make_bookie, tree_bytes

Capsys = pytest.CaptureFixture[str]


def test_findings_that_are_the_same() -> None:
    """Severity, file, offset and detail make one; the one that names the ledger stays."""
    header = Finding("damage", "header needs 8 bytes", "7.idx", 0)
    others = [
        Finding("damage", "header needs 8 bytes", "7.idx", 4),
        Finding("damage", "header needs 9 bytes", "7.idx", 0),
        Finding("damage", "header needs 8 bytes", "8.idx", 0),
        Finding("oddity", "header needs 8 bytes", "7.idx", 0),
    ]
    named = Finding("damage", "header needs 8 bytes", "7.idx", 0, LedgerId.of(7))
    findings = [header]
    add_unreported(findings, [*others, named, header, *others])

    assert [named, *others] == findings


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bookie of each layout."""
    top = tmp_path_factory.mktemp("bookies")
    make_bookie(top / "sorted", "sorted", checkpoint=False)
    make_bookie(top / "db", "db")
    return top


def _reports(words: list[str], capsys: Capsys) -> tuple[int, Counter[str]]:
    """Return the exit code, and the lines that report damage, with how often each came."""
    code = main(words)
    out, err = capsys.readouterr()
    lines = Counter(line for line in err.splitlines() if line.startswith(("damage:", "oddity:")))
    if words[0] == "check":
        rows = [json.loads(line) for line in out.splitlines()]
        lines += Counter(json.dumps([row["file"], row["offset"], row["detail"]]) for row in rows)
    return code, lines


def _commands(damaged: Path, out: Path) -> list[list[str]]:
    reading = ["inspect", "ledgers", "usage", "readlog", "readjournal"]
    return [
        *([name, str(damaged)] for name in reading),
        ["check", str(damaged), "--format", "jsonl"],
        ["dump", str(damaged), str(out / "dump")],
        ["salvage", str(damaged), str(out / "salvaged")],
        ["rebuild-index", str(damaged), str(out / "rebuilt"), "--to", "idx"],
    ]


@pytest.mark.parametrize(
    ("storage", "file"),
    [
        ("sorted", "ledgers/current/**/*.idx"),
        ("db", "ledgers/current/ledgers/CURRENT"),
        ("db", "ledgers/current/ledgers/MANIFEST-*"),
        ("db", "ledgers/current/locations/*.sst"),
        ("db", "ledgers/current/*.log"),
    ],
)
def test_a_file_that_lost_its_end(
    bookies: Path, tmp_path: Path, capsys: Capsys, storage: str, file: str
) -> None:
    """No command reports the same twice."""
    damaged = tmp_path / "b"
    shutil.copytree(bookies / storage, damaged)
    path = sorted(damaged.glob(file))[0]
    path.write_bytes(path.read_bytes()[:3])
    for words in _commands(damaged, tmp_path):
        repeated = {line: n for line, n in _reports(words, capsys)[1].items() if n > 1}

        assert {} == repeated, words[0]


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_files_damaged_at_random(bookies: Path, tmp_path: Path, capsys: Capsys, part: int) -> None:
    """Nor of one or two files with bytes flipped, zeroed or cut off at random, 600 times.

    No command raises, each has an exit code of ours, and the damaged directory stays as it is.
    """
    for seed in range(30 * part, 30 * part + 30):
        damaged, out = tmp_path / f"b{seed}", tmp_path / f"out{seed}"
        _damage_at_random(bookies, damaged, random.Random(seed))
        before = tree_bytes(damaged)
        for words in _commands(damaged, out):
            code, reports = _reports(words, capsys)

            assert {} == {line: n for line, n in reports.items() if n > 1}, (seed, words[0])
            assert code in (0, 1, 2, 3), (seed, words[0])
            assert before == tree_bytes(damaged), (seed, words[0])
        shutil.rmtree(damaged)
        shutil.rmtree(out, ignore_errors=True)


def _damage_at_random(bookies: Path, damaged: Path, chance: random.Random) -> None:
    shutil.copytree(bookies / chance.choice(["sorted", "db"]), damaged)
    files = [path for path in sorted(damaged.rglob("*")) if path.is_file() and path.stat().st_size]
    for path in chance.sample(files, chance.choice([1, 2])):
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data))
        how = chance.choice(["flip", "zero", "cut"])
        if how == "cut":
            del data[at:]
        else:
            stop = min(at + (1 if how == "flip" else 16), len(data))
            data[at:stop] = bytes(b ^ 0xFF if how == "flip" else 0 for b in data[at:stop])
        path.write_bytes(data)
