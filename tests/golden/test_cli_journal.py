"""`readjournal` and `lastmark` give every data item that the real shell prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main

Shell = dict[tuple[str, str], bytes]
Unpack = Callable[[str], tuple[Path, Any]]

_RECORD = re.compile(
    rb"--------- Lid=(-?\d+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+) ---------\n"
    rb"Type: +(META|DATA)\n(?:MasterKey: +(\w*)\n|(Fenced)\n|LastConfirmed: +(-?\d+)\n)"
    rb"(?:Data:\n\n(.*?)\n)?(?=\n---------|\n?\Z)",
    re.DOTALL,
)


def _rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    code = main([*words, "--format", "jsonl"])
    out, err = capsys.readouterr()

    assert (0, "") == (code, err)
    return [json.loads(line) for line in out.splitlines()]


def _journals(shell: Shell) -> list[tuple[str, str, bytes]]:
    """Return (tree, journal argument, text) of the `readjournal` commands, payloads or not."""
    return [
        (tree, command.split()[-1], text)
        for (tree, command), text in shell.items()
        if command.startswith("readjournal")
    ]


def _lac_as_shown(row: dict[str, Any]) -> int:
    """Return the number that the shell shows for an explicit LAC record.

    It reads the body's length and the upper half of its ledger id as one number.
    """
    body = bytes.fromhex(row["explicit_lac"])
    return len(body) << 32 | int.from_bytes(body[:4], "big")


def _check(shown: tuple[bytes, ...], row: dict[str, Any]) -> None:
    ledger, entry, offset, size, kind, key, fenced, lac, _ = shown

    assert [int(ledger), int(entry), int(offset), int(size)] == [
        row[name] for name in ("ledger_id", "entry_id", "offset", "bytes")
    ]
    if row["kind"] == "explicit_lac":
        assert int(lac) == _lac_as_shown(row)
    elif kind == b"DATA":
        assert ("add", int(lac)) == (row["kind"], row["lac"])
    elif fenced:
        assert "fence" == row["kind"]
    else:
        assert ("master_key", key.decode()) == (row["kind"], row["master_key"])


def test_readjournal(
    shell_output: Shell, unpack: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids, offsets, sizes, kinds, LACs, keys and the version of each record agree."""
    journals = _journals(shell_output)

    assert journals
    for tree, argument, text in journals:
        root, document = unpack(f"bookkeeper/{tree}")
        place = str(root / document["tree"])
        rows = _rows(capsys, "readjournal", place, argument, "--show-keys")
        shown = _RECORD.findall(text)
        head = re.match(rb"Scan journal (\d+) \((\w+\.txn)\)\nJournal Version : (\d+)\n", text)

        assert head is not None
        assert {(int(head[1]), head[2].decode(), int(head[3]))} == {
            (row["journal_id"], row["file"], row["version"]) for row in rows
        }
        assert text.count(b"Lid=") == len(shown) == len(rows)
        for record, row in zip(shown, rows):
            _check(record, row)


def test_readjournal_payloads(
    shell_output: Shell, unpack: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    """With -m, the shell shows the digest and the payload, read as text: as with DUMMY digests."""
    compared, all_bytes = 0, ("--digest-type", "DUMMY")
    for tree, argument, text in _journals(shell_output):
        root, document = unpack(f"bookkeeper/{tree}")
        rows = _rows(
            capsys, "readjournal", str(root / document["tree"]), argument, "--msg", *all_bytes
        )
        for record, row in zip(_RECORD.findall(text), rows):
            if row["kind"] == "add" and record[8]:
                data = bytes.fromhex(row["payload"])
                compared += 1

                assert _printable(record[8].decode()) == _printable(data.decode(errors="replace"))

    assert 50 <= compared


def _printable(text: str) -> list[str]:
    """Return the characters that both languages' lenient UTF-8 decoders agree on."""
    return [character for character in text if character.isascii() and character != "\r"]


def test_lastmark(shell_output: Shell, unpack: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    """Journal id in both forms and the position agree, where there is no mark too."""
    shown = {
        t: text.decode() for (t, command), text in shell_output.items() if command == "lastmark"
    }

    assert shown
    for tree, text in shown.items():
        root, document = unpack(f"bookkeeper/{tree}")
        (row,) = _rows(capsys, "lastmark", str(root / document["tree"]))

        assert text.strip() == (
            f"LastLogMark : Journal Id - {row['journal_id']}({row['journal']}), "
            f"Pos - {row['position']}"
        )
