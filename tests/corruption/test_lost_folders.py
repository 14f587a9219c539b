"""A file in the place of a folder of index files hides the ledgers below it, and nothing else: they
are never taken for deleted, and each command names the folder once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir, LedgerId, LedgerStorage, open_index
from bkstore.cli.main import main
from bkstore.formats.entry import Coder
from bkstore.formats.idxfile import index_path
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical.lost_folders import ledgers_below

Capsys = pytest.CaptureFixture[str]

KEY = b"k" * 20
SCOPE = 0xF00D
LEDGERS = [
    *(LedgerId(0, number) for number in (0x46, 0x47, 0x146, 0x10046, 0x10147)),
    *(LedgerId(SCOPE, number) for number in (0x46, 0x8000000000000001)),
]
FOLDERS = ["0/46", "0", "00000000", "00000000/0000f00d/80000000"]
ENTRIES = 3


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bookie whose ledgers are not fenced."""
    top = tmp_path_factory.mktemp("bookie") / "sound"
    coder = Coder("CRC32C", "secret")
    with LedgerStorage.open(top, storage="sorted") as storage:
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            for record in coder.encode_many(ledger, range(ENTRIES), [b"x" * 30] * ENTRIES):
                storage.add_entry(bytes(record))
    return top


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> str:
    """Return the path of a folder of index files below ``current/``."""
    return str(request.param)


@pytest.fixture
def damaged(sound: Path, tmp_path: Path, folder: str) -> Path:
    """Return a copy of the bookie with an empty file in the place of the folder."""
    copy = tmp_path / "damaged"
    shutil.copytree(sound, copy)
    shutil.rmtree(copy / "current" / folder)
    (copy / "current" / folder).touch()
    return copy


def _hidden(folder: str) -> list[LedgerId]:
    return [ledger for ledger in LEDGERS if index_path(ledger).startswith(f"{folder}/")]


def _listed(folder: str) -> list[LedgerId]:
    return [ledger for ledger in LEDGERS if ledger not in _hidden(folder)]


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def _damage_lines(damaged: Path, folder: str) -> str:
    file = damaged / "current" / folder
    return f"damage: {file}: is not a directory: its index files cannot be read\n"


@pytest.mark.parametrize(
    "parts",
    [
        *(tuple(folder.split("/")) for folder in FOLDERS),
        ("1",),
        ("00000000", "0000f00d"),
        ("ff",),
        ("ff", "ff"),
        ("0f",),
        ("0", "0f"),
        ("0", "0000f00d"),
        ("00000000", "00000000"),
        ("00000000", "00000000", "00000000"),
        ("00000000", "46"),
        ("ffffffff",),
        ("ffffffff", "ffffffff", "ffffffff"),
    ],
)
def test_ledgers_below_a_folder(parts: tuple[str, ...]) -> None:
    """They are those with a path that begins with the folder's."""
    numbers = [0, 1, 0x46, 0xFF, 0x100, 0xF00, 0xFEFF, 0xFFFF, 0x10000, 0x10046, (1 << 63) - 1]
    scopes = [0, 1, SCOPE, (1 << 32) - 1, 1 << 32, (1 << 64) - 1]
    ledgers = [*LEDGERS, *(LedgerId(scope, number) for scope in scopes for number in numbers)]
    ledgers += [LedgerId(scope, number) for scope in scopes[1:] for number in (1 << 63, 2**64 - 1)]
    below = ledgers_below(parts)

    for ledger in ledgers:
        is_below = index_path(ledger).startswith("/".join(parts) + "/")
        assert is_below == below.includes(ledger), ledger


def test_listings(damaged: Path, folder: str) -> None:
    """Those that are hidden may be in the index, of one scope too; all others are listed."""
    with open_index(damaged) as index:
        for scope in (None, 0, SCOPE, 1 << 40):
            listing = index.list_readable_ledgers(scope)
            wanted = [ledger for ledger in LEDGERS if scope in (None, ledger.scope)]
            listed = [ledger for ledger in wanted if ledger in _listed(folder)]
            hidden = [ledger for ledger in wanted if ledger in _hidden(folder)]

            assert listed == listing.ledgers
            assert hidden == [ledger for ledger in wanted if listing.may_include(ledger)]
            assert bool(listing.unknown) == (len(listing.findings) == 1)
        assert [] == index.list_readable_ledgers(SCOPE if folder in ("0", "0/46") else 0).findings


def test_reading(damaged: Path, folder: str, capsys: Capsys) -> None:
    """`ledgers` and `usage` name the folder, and no record counts as garbage."""
    code, rows, err = _run(capsys, "ledgers", damaged, "--all-scopes")

    assert (1, _damage_lines(damaged, folder)) == (code, err)
    assert [each.qualified_name for each in _listed(folder)] == [
        row["qualified_name"] for row in rows
    ]

    code, (row,), err = _run(capsys, "usage", damaged)

    assert (1, _damage_lines(damaged, folder)) == (code, err)
    assert 0 == row["garbage_bytes"]
    assert ENTRIES * len(_listed(folder)) == row["entries"]

    code, rows, err = _run(capsys, "check", damaged)

    assert (1, ["index"]) == (code, [row["kind"] for row in rows])
    assert "ledgers that cannot be listed, in 1 unknown range of ids" in err


def test_one_ledger(damaged: Path, folder: str, capsys: Capsys) -> None:
    """The damage that hides it ends the command, and is told once."""
    ledger = _hidden(folder)[0].qualified_name
    for command in ("ledger", "availability", "readledger"):
        code, rows, err = _run(capsys, command, damaged, ledger)

        assert (2, []) == (code, rows)
        assert "bkstore" + _damage_lines(damaged, folder)[len("damage") :] == err


def test_differences(sound: Path, damaged: Path, folder: str, capsys: Capsys) -> None:
    """The hidden ledgers are not compared; they are no differences."""
    code, rows, err = _run(capsys, "diff", sound, damaged)

    assert (1, []) == (code, rows)
    assert err.startswith(_damage_lines(damaged, folder))


@pytest.mark.parametrize("layout", ["idx", "rocksdb"])
def test_rebuilt_index(
    damaged: Path, tmp_path: Path, folder: str, layout: str, capsys: Capsys
) -> None:
    """It has every ledger; a hidden one is fenced, as its fence may be lost. The file that took the
    place of the folder is not copied."""
    code, _, err = _run(capsys, "rebuild-index", damaged, tmp_path / "new", "--to", layout)

    assert 1 == code
    assert err.startswith(_damage_lines(damaged, folder))
    with BookieDir(tmp_path / "new") as bookie:
        assert LEDGERS == bookie.index.ledgers()
        for ledger in LEDGERS:
            assert list(range(ENTRIES)) == bookie.index.entries(ledger).tolist()
            state = LedgerState(b"", True) if ledger in _hidden(folder) else LedgerState(KEY)
            assert state == bookie.index.state(ledger)
    assert layout == "idx" or not (tmp_path / "new" / "current" / folder).exists()


def test_conversion(damaged: Path, tmp_path: Path, folder: str, capsys: Capsys) -> None:
    """It ends with the damage, and then says what to do."""
    code, _, err = _run(capsys, "convert", damaged, tmp_path / "new", "--to", "rocksdb")
    reason, advice = err.splitlines()

    assert 2 == code
    assert reason.startswith(f"bkstore: {damaged / 'current' / folder}: is not a directory")
    assert advice.startswith("bkstore rebuild-index makes an index")
