"""Passwords and master keys: given without showing them, shown to nobody who did not ask."""

from __future__ import annotations

import getpass
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.errors import CorruptionError
from bkstore.formats.entry import Coder, master_key
from bkstore.formats.idxfile import IdxHeader
from bkstore.formats.journal import JournalRecord, decode_record, encode_special
from bkstore.formats.ledgerdata import LedgerData
from bkstore.formats.metadata.json_file import decode_file
from bkstore.formats.metadata.serialized import decode
from bkstore.index.api import LedgerState
from bkstore.offline.dump import dump
from bkstore.storage.bookie import Bookie

PASSWORD = "pass wörd"
KEY = master_key(PASSWORD)


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """Return a bookie of one ledger with two entries, whose digests need the password."""
    top = tmp_path / "bookie-1"
    with Bookie.open(top) as made:
        for record in Coder("HMAC", PASSWORD).encode_many(7, [0, 1], [b"a", b"b"]):
            made.add_entry(record, KEY)
    return top


def _good(capsys: pytest.CaptureFixture[str], bookie: Path, *words: str) -> list[bool]:
    first = ["readledger", str(bookie), "--ledger-id", "7", "--digest-type", "HMAC"]
    code = main([*first, *words, "--format", "jsonl"])
    out, err = capsys.readouterr()
    good = [json.loads(line)["digest_ok"] for line in out.splitlines()]

    assert (0 if all(good) else 1) == code
    assert PASSWORD not in out + err
    return good


def test_ways_to_give_a_password(
    bookie: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A file, the environment, a prompt, the command line; what is given wins over the variable."""
    file = tmp_path / "password"
    file.write_bytes(PASSWORD.encode() + b"\n")
    other = tmp_path / "other"
    other.write_bytes(b"another")
    monkeypatch.setattr(getpass, "getpass", lambda prompt: PASSWORD)

    assert [True, True] == _good(capsys, bookie, "--password-file", str(file))
    assert [False, False] == _good(capsys, bookie, "--password-file", str(other))
    assert [True, True] == _good(capsys, bookie, "--ask-password")
    assert [True, True] == _good(capsys, bookie, "--password", PASSWORD)
    monkeypatch.setenv("BKSTORE_PASSWORD", PASSWORD)
    assert [True, True] == _good(capsys, bookie)
    assert [False, False] == _good(capsys, bookie, "--password", "another")


def test_password_refused(
    bookie: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """No answer, no file, a file that is no password: one line each, exit code 2. The variable
    alone verifies nothing, and is no error."""
    long = tmp_path / "long"
    long.write_bytes(b"x" * 70_000)
    words = ["readledger", str(bookie), "--ledger-id", "7", "--digest-type", "HMAC"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr(os, "open", _no_terminal(os.open))
    for more, reason in (
        (["--ask-password"], "no password was given"),
        (["--password-file", str(tmp_path / "none")], "No such file"),
        (["--password-file", str(long)], "longer than a secret"),
        ([], "password"),
    ):
        assert 2 == main([*words, *more])
        assert reason in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setenv("BKSTORE_PASSWORD", PASSWORD)
    assert 0 == main(words[:-2])


def _no_terminal(real: Any) -> Any:
    def opened(path: Any, *arguments: Any, **named: Any) -> int:
        if path == "/dev/tty":
            raise OSError
        return int(real(path, *arguments, **named))

    return opened


def test_help_says_who_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of --password says that others can see it."""
    with pytest.raises(SystemExit):
        main(["readledger", "--help"])

    assert "other users of the machine can see" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv"])
def test_keys_only_if_asked(bookie: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """No command prints a master key in any format unless --show-keys is given."""
    for command in ("inspect", "ledgers", "readjournal", "listfiles", "lastmark", "readlog"):
        main([command, str(bookie), "--format", form])
        out, err = capsys.readouterr()

        assert out
        assert KEY.hex() not in out + err
    for command in ("ledgers", "readjournal"):
        main([command, str(bookie), "--format", form, "--show-keys"])
        assert KEY.hex() in capsys.readouterr().out


def test_values_keep_keys_to_themselves() -> None:
    """What holds a key does not print it; states that differ in it are still not equal."""
    record = decode_record(encode_special("master_key", 7, KEY))
    holders = [LedgerState(KEY), IdxHeader(KEY), LedgerData(KEY), record]

    assert isinstance(record, JournalRecord)
    for holder in holders:
        assert repr(KEY)[2:-1] not in f"{holder} {holder!r}"
    assert LedgerState(KEY) != LedgerState(KEY[::-1])


@pytest.mark.parametrize(
    "body",
    [
        b'password: "topsecret\nstate: OPEN',
        b"password: topsecret\n",
        b'password: "top" "secret" topsecret: 4',
        b'password "topsecret"',
    ],
)
def test_damaged_metadata_do_not_tell_passwords(body: bytes) -> None:
    """An error about metadata that hold a password quotes nothing of them."""
    with pytest.raises(CorruptionError, match="line 1") as caught:
        decode(b"BookieMetadataFormatVersion\t2\n" + body, 7)
    document = {"ledgers": [{"ledger_id": 7, "password_hex": "topsecret", "segments": []}]}
    for name in ("ensemble_size", "write_quorum_size"):
        document["ledgers"][0][name] = 1
    with pytest.raises(CorruptionError, match="password_hex is not a valid hex text") as told:
        decode_file(json.dumps(document).encode())

    assert "topsecret" not in str(caught.value) + str(told.value)


def test_dumped_keys_are_for_their_user(bookie: Path, tmp_path: Path) -> None:
    """A dump holds keys, which a load needs: the files that do are for their user only."""
    pytest.importorskip("pyarrow")
    before = os.umask(0o022)
    try:
        dump([bookie], tmp_path / "out")
    finally:
        os.umask(before)
    modes = {
        path.parent.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").glob("*/*")
    }

    assert 0o600 == modes.pop("ledgers")
    assert {0o644} == set(modes.values())


@pytest.mark.parametrize("command", ["ledgers", "readjournal"])
def test_written_keys_are_for_their_user(bookie: Path, tmp_path: Path, command: str) -> None:
    """A file that is written with keys is for its owner alone; one without is not."""
    before = os.umask(0o022)
    try:
        main([command, str(bookie), "-o", str(tmp_path / "keys"), "--show-keys"])
        main([command, str(bookie), "-o", str(tmp_path / "none")])
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("keys", "none")]

    assert [0o600, 0o644] == modes


def test_asking_does_not_show(bookie: Path) -> None:
    """From a pipe, without a terminal, the password is read from standard input, and not shown."""
    code = "import sys; from bkstore.cli.main import main; sys.exit(main())"
    words = ["readledger", str(bookie), "--ledger-id", "7", "--digest-type", "HMAC"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--ask-password", "--format", "csv"],
        input=f"{PASSWORD}\n".encode(),
        capture_output=True,
        check=True,
        start_new_session=True,
    )

    assert 2 == done.stdout.count(b"true")
    assert PASSWORD.encode() not in done.stdout + done.stderr
