"""Payloads of `readledger`, `readlog` and `readjournal` without digests: the type by trial, by
metadata, or given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie
from bkstore.cli.bookie import readjournal
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, master_key
from bkstore.storage.journal import JournalWriter
from bkstore.storage.ledger_storage import LedgerStorage

Capsys = pytest.CaptureFixture[str]

LEDGERS = {7: "CRC32C", 8: "HMAC", 9: "DUMMY", 10: "CRC32"}
PAYLOADS = [b"payload %d" % entry for entry in range(6)]
UNTOLD = 11  # HMAC, of which no entry is followed by the next


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """Return a bookie with a ledger of each digest type."""
    key = master_key("pw")
    with LedgerStorage.open(tmp_path / "bookie", "sorted") as storage:
        for ledger, digest_type in LEDGERS.items():
            records = Coder(digest_type, "pw").encode_many(ledger, range(6), PAYLOADS)
            storage.add_entries(records, master_key=key)
        records = Coder("HMAC", "pw").encode_many(UNTOLD, range(6), PAYLOADS)
        storage.add_entries(records[1::2], master_key=key)
    return tmp_path / "bookie"


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def _payloads(rows: list[dict[str, Any]], ledger: int) -> list[bytes]:
    return [bytes.fromhex(row["payload"]) for row in rows if row["ledger_id"] == ledger]


def _metadata(path: Path, ledger: int) -> Path:
    segments = [{"first_entry": 0, "ensemble": ["b1"]}]
    fields = {"scope_id": 0, "ledger_id": ledger, "state": "CLOSED", "length": 100}
    sizes = {"ensemble_size": 1, "write_quorum_size": 1, "ack_quorum_size": 1, "last_entry_id": 5}
    ledgers = [{**fields, **sizes, "segments": segments, "digest_type": "HMAC"}]
    path.write_text(json.dumps({"ledgers": ledgers}))
    return path


@pytest.mark.parametrize(
    ("ledger", "verified", "note"),
    [
        (7, True, "digest type CRC32C, found by trial: digests are verified\n"),
        (8, None, "digest type HMAC, by the sizes of the records: not verified without "),
        (9, None, "digest type DUMMY, by the sizes of the records: there is nothing to verify\n"),
        (10, True, "digest type CRC32, found by trial: digests are verified\n"),
    ],
)
def test_readledger(
    bookie: Path, capsys: Capsys, ledger: int, verified: bool | None, note: str
) -> None:
    """Payloads come without digests, and a line says which type was assumed."""
    code, rows, err = _run(capsys, "readledger", bookie, ledger)

    assert (0, PAYLOADS) == (code, _payloads(rows, ledger))
    assert [verified] * 6 == [row["digest_ok"] for row in rows]
    assert err.startswith(note)


def test_a_type_that_cannot_be_told(bookie: Path, capsys: Capsys, tmp_path: Path) -> None:
    """Payloads keep what may be a digest, until the type is given, or by metadata."""
    _, rows, err = _run(capsys, "readledger", bookie, UNTOLD)

    assert [len(each) + 20 for each in PAYLOADS[1::2]] == [
        len(payload) for payload in _payloads(rows, UNTOLD)
    ]
    assert "unknown digest type: the digest is shown as the beginning of each payload" in err

    words = ("--metadata", _metadata(tmp_path / "metadata.json", UNTOLD))
    _, rows, err = _run(capsys, "readledger", bookie, UNTOLD, *words)

    assert PAYLOADS[1::2] == _payloads(rows, UNTOLD)
    assert "digest type HMAC, from the metadata: not verified" in err

    code, rows, err = _run(capsys, "readledger", bookie, UNTOLD, *words, "--password", "pw")

    assert (0, PAYLOADS[1::2], "") == (code, _payloads(rows, UNTOLD), err)
    assert [True] * 3 == [row["digest_ok"] for row in rows]

    _, rows, err = _run(capsys, "readledger", bookie, UNTOLD, "--password", "pw")

    assert PAYLOADS[1::2] == _payloads(rows, UNTOLD)
    assert "digest type HMAC, found by trial: digests are verified" in err


def test_a_changed_byte_is_damage(bookie: Path, capsys: Capsys) -> None:
    """Once some records verify, those that do not are damaged: one line for their run."""
    (log,) = (bookie / "current").glob("*.log")
    data = bytearray(log.read_bytes())
    for entry in (2, 3):
        record = Coder("CRC32", "pw").encode_many(10, range(6), PAYLOADS)[entry]
        data[data.index(record) + len(record) - 1] ^= 1
    log.write_bytes(data)
    code, rows, err = _run(capsys, "readledger", bookie, 10)
    (damage,) = [line for line in err.splitlines() if line.startswith("damage:")]

    assert 1 == code
    assert [True, True, False, False, True, True] == [row["digest_ok"] for row in rows]
    assert "entries 2-3 of ledger 10, up to offset" in damage


def test_readlog(bookie: Path, capsys: Capsys, tmp_path: Path) -> None:
    """A log has ledgers of several types; those of a type that cannot be told are named."""
    code, rows, err = _run(capsys, "readlog", bookie, "-m")
    counts = "CRC32C (1 ledger), HMAC (1 ledger), DUMMY (1 ledger) and CRC32 (1 ledger)"

    assert 0 == code
    assert dict.fromkeys(LEDGERS, PAYLOADS) == {
        ledger: _payloads(rows, ledger) for ledger in LEDGERS
    }
    assert [len(payload) + 20 for payload in PAYLOADS[1::2]] == [
        len(payload) for payload in _payloads(rows, UNTOLD)
    ]
    assert f"digest types, by trial: {counts}\n" in err
    assert (
        f"ledger {UNTOLD}: unknown digest type (pass --digest-type TYPE or --metadata METADATA)"
        in err
    )

    words = ("--metadata", _metadata(tmp_path / "metadata.json", UNTOLD))
    _, rows, err = _run(capsys, "readlog", bookie, "-m", *words)

    assert PAYLOADS[1::2] == _payloads(rows, UNTOLD)
    assert "digest types, by metadata or trial: " in err
    assert "HMAC (2 ledgers)" in err
    assert "cannot be told" not in err


def test_readlog_with_a_given_type(bookie: Path, capsys: Capsys) -> None:
    """It holds for all ledgers; "MAC" is the client's name of HMAC. No line says what was given."""
    for name in ("HMAC", "MAC"):
        words = ("--ledger-id", UNTOLD, "--digest-type", name)
        code, rows, err = _run(capsys, "readlog", bookie, "-m", *words)

        assert (0, PAYLOADS[1::2], "") == (code, _payloads(rows, UNTOLD), err)


def _journal(path: Path) -> Path:
    """Write a bookie with ledgers of all types in turns, the untold one last; return its path."""
    records = {
        ledger: Coder(digest_type, "pw").encode_many(ledger, range(6), PAYLOADS)
        for ledger, digest_type in LEDGERS.items()
    }
    with Bookie.open(path, "sorted") as bookie:
        for entry in range(6):
            for ledger in LEDGERS:
                bookie.add_entry(records[ledger][entry], master_key("pw"))
        for record in Coder("HMAC", "pw").encode_many(UNTOLD, range(6), PAYLOADS)[1::2]:
            bookie.add_entry(record, master_key("pw"))
    return path


def test_readjournal(tmp_path: Path, capsys: Capsys) -> None:
    """Ledgers whose records alternate have each their own type; records that add no entry have no
    payload."""
    bookie = _journal(tmp_path / "bookie")
    code, rows, err = _run(capsys, "readjournal", bookie, "-m")
    adds = [row for row in rows if row["kind"] == "add"]

    assert 0 == code
    assert dict.fromkeys(LEDGERS, PAYLOADS) == {
        ledger: _payloads(adds, ledger) for ledger in LEDGERS
    }
    assert [len(payload) + 20 for payload in PAYLOADS[1::2]] == [
        len(payload) for payload in _payloads(adds, UNTOLD)
    ]
    assert len(rows) > len(adds)
    assert {None} == {row["payload"] for row in rows if row["kind"] != "add"}
    counts = "CRC32C (1 ledger), HMAC (1 ledger), DUMMY (1 ledger) and CRC32 (1 ledger)"
    assert f"digest types, by trial: {counts}\n" in err
    assert f"ledger {UNTOLD}: unknown digest type" in err


def test_readjournal_with_a_known_type(tmp_path: Path, capsys: Capsys) -> None:
    """By metadata, or given; not both. Without -m there are no payloads and no such lines."""
    bookie = _journal(tmp_path / "bookie")
    metadata = ("--metadata", _metadata(tmp_path / "metadata.json", UNTOLD))
    _, rows, err = _run(capsys, "readjournal", bookie, "-m", *metadata)
    adds = [row for row in rows if row["kind"] == "add"]

    assert PAYLOADS[1::2] == _payloads(adds, UNTOLD)
    assert PAYLOADS == _payloads(adds, 7)
    assert "unknown digest type" not in err

    _, rows, err = _run(capsys, "readjournal", bookie, "-m", "--digest-type", "MAC")
    adds = [row for row in rows if row["kind"] == "add"]

    assert ("", PAYLOADS[1::2]) == (err, _payloads(adds, UNTOLD))

    code, _, err = _run(capsys, "readjournal", bookie, "--digest-type", "MAC", *metadata)
    assert (2, True) == (code, "--digest-type and --metadata exclude each other" in err)

    _, rows, err = _run(capsys, "readjournal", bookie)
    assert ("", {None}) == (err, {row["payload"] for row in rows})


def test_readjournal_of_other_records(tmp_path: Path, capsys: Capsys) -> None:
    """A fence has no payload; a record of a kind that is not known is shown as it is."""
    with JournalWriter(tmp_path, first_id=7) as writer:
        writer.append_special("fence", 7)
        writer.append((7).to_bytes(8, "big") + (-0x7000).to_bytes(8, "big", signed=True) + b"new")
    _, rows, _ = _run(capsys, "readjournal", tmp_path / "7.txn", "-m")

    assert [("fence", None), ("unknown", b"new".hex())] == [
        (row["kind"], row["payload"]) for row in rows
    ]


def test_readjournal_finds_types_across_batches(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A type that was found holds for later batches of rows, in which no trial could tell it."""
    monkeypatch.setattr(readjournal, "_ROWS_PER_TABLE", 7)
    bookie = _journal(tmp_path / "bookie")
    _, rows, _ = _run(capsys, "readjournal", bookie, "-m")
    adds = [row for row in rows if row["kind"] == "add"]

    assert dict.fromkeys(LEDGERS, PAYLOADS) == {
        ledger: _payloads(adds, ledger) for ledger in LEDGERS
    }


def test_readlog_without_payloads_says_nothing(bookie: Path, capsys: Capsys) -> None:
    """Without -m no payload is shown, and no type is assumed."""
    code, rows, err = _run(capsys, "readlog", bookie)

    assert (0, "", {None}) == (code, err, {row["payload"] for row in rows})
