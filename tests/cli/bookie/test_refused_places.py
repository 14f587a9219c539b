"""What is not what a command wants is named as what it is, with what would be wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.formats.entry import Coder
from bkstore.storage.ledger_storage import LedgerStorage

Capsys = pytest.CaptureFixture[str]


def _line(capsys: Capsys, *words: object, code: int = 2) -> str:
    """Return the one line on standard error of a command that ends with `code`."""
    assert code == main(list(map(str, words)))
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"just a text\n", "names no ledgerDirectories"),
        (b"a\0b", "is not text"),
        (b"x" * (1 << 20) + b"x", "is longer"),
    ],
    ids=["text", "bytes", "long"],
)
def test_a_file_is_no_bookie(data: bytes, why: str, tmp_path: Path, capsys: Capsys) -> None:
    """A file that is no bk_server.conf is called a file, with why, and what is wanted."""
    path = tmp_path / "notes.txt"
    path.write_bytes(data)

    assert (
        f"bkstore: {path}: is a file, but not a bk_server.conf (it {why}): give a bookie's "
        "directory or its bk_server.conf"
    ) == _line(capsys, "inspect", path)


# -- ledgers that the logs do not hold


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Return a bookie with ledger 7 in its log, and ledger 8 that has no entry."""
    top = tmp_path / "logged"
    with LedgerStorage.open(top, storage="sorted") as storage:
        for ledger in (7, 8):
            storage.set_master_key(ledger, b"k" * 20)
        storage.add_entries(Coder("CRC32C", "secret").encode_many(7, range(3), [b"x"] * 3))
        storage.flush()
    return top


def test_readlog_of_an_unknown_ledger(logged: Path, capsys: Capsys) -> None:
    """A ledger that neither the logs nor the index know is exit code 1, and a line."""
    (log,) = logged.rglob("*.log")
    for place in (logged, log):
        line = _line(capsys, "readlog", place, "--ledger-id", 99, code=1)

        assert "no entry log read here has a record of ledger 99" == line
    assert 1 == main(["readlog", str(log), "--ledger-id", "8"])  # a log alone knows no more


def test_readlog_of_a_ledger_that_is_known(logged: Path, capsys: Capsys) -> None:
    """One that the index knows is 0, with the line; one of the log is 0 whatever is left of it."""
    line = _line(capsys, "readlog", logged, "--ledger-id", 8, code=0)

    assert "no entry log read here has a record of ledger 8" == line
    for more in ([], ["--entry-id", "99"], ["--end-pos", "0"]):
        assert 0 == main(["readlog", str(logged), "--ledger-id", "7", *more])
        assert ("no records\n" if more else "") == capsys.readouterr().err
