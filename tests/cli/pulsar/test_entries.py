"""`bkstore readledger --as pulsar`: the headers of a topic's entries, not their payloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerStorage
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, master_key
from tests.pulsar.samples import NOW, field, message_entry, message_metadata

Capsys = pytest.CaptureFixture[str]

_BATCH = message_metadata(
    1,
    NOW + 1000,
    batch=50,
    more=field(4, field(1, "trace") + field(2, "1"))
    + field(8, 4)
    + field(9, 4096)
    + field(13, field(1, "key-1") + field(2, b"\0")),
)
_TORN = bytearray(message_entry(message_metadata(5)))
_TORN[-1] ^= 1  # its checksum does not match
ENTRIES = [
    message_entry(message_metadata(0)),
    message_entry(_BATCH, b"encrypted", broker=(NOW + 1001, 50)),
    b"hello, this is another application",
    message_entry(message_metadata(3), checksum=False),
    b"",
    bytes(_TORN),
]


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """Return a bookie with the same entries in a ledger of each digest type."""
    with LedgerStorage.open(tmp_path / "bookie", "sorted") as storage:
        for ledger, digest_type in ((7, "CRC32C"), (8, "HMAC"), (9, "DUMMY"), (10, "CRC32")):
            records = Coder(digest_type, "pw").encode_many(ledger, range(6), ENTRIES)
            storage.add_entries(records, master_key=master_key("pw"))
        records = Coder("HMAC", "pw").encode_many(11, range(6), ENTRIES)
        storage.add_entries([records[1], records[3]], master_key=master_key("pw"))
    return tmp_path / "bookie"


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    code = main(["readledger", *map(str, words), "--as", "pulsar", "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("ledger", [7, 8, 9, 10])
def test_headers(bookie: Path, capsys: Capsys, ledger: int) -> None:
    """Every entry has a row; what is no topic's is a finding with its offset, and has no values."""
    code, rows, err = _run(capsys, bookie, ledger)

    assert (1, list(range(6))) == (code, [row["entry_id"] for row in rows])
    assert [NOW, NOW + 1000, None, NOW, None, NOW] == [row["publish_time"] for row in rows]
    assert [1, 50, None, 1, None, 1] == [row["messages"] for row in rows]
    assert [True, True, None, None, None, False] == [row["checksum_ok"] for row in rows]
    assert [6, 9, None, 6, None, 6] == [row["payload_bytes"] for row in rows]
    assert {None} == {row["payload"] for row in rows}
    batch = {
        "published": "2026-09-21T14:13:21.000Z",
        "producer": "producer-1",
        "sequence_id": 1,
        "properties": "trace",
        "compression": "SNAPPY",
        "uncompressed_bytes": 4096,
        "encryption_keys": "key-1",
        "metadata_bytes": len(_BATCH),
        "broker_time": NOW + 1001,
        "broker_index": 50,
        "compacted_ledger_id": None,
        "marker_type": None,
    }
    assert batch == {name: rows[1][name] for name in batch}
    assert ("none", None) == (rows[0]["compression"], rows[0]["uncompressed_bytes"])
    other, short, torn = (line for line in err.splitlines() if line.startswith("damage: "))
    header = 32 + {7: 4, 8: 20, 9: 0, 10: 8}[ledger]
    size_offset = rows[2]["position"] + header
    assert (
        f"0.log: offset {size_offset}: entry 2 of ledger {ledger}: no entry of a topic: " in other
    )
    assert f"entry 4 of ledger {ledger}: no entry of a topic: it ends in" in short
    assert f"entry 5 of ledger {ledger}: the producer's checksum" in torn


def test_times_beyond_text(tmp_path: Path, capsys: Capsys) -> None:
    """Times that producers may state, as unsigned numbers: the one that has no text has none."""
    times = (2**63 - 1, 2**63, 2**64 - 1)
    entries = [message_entry(message_metadata(1, each)) for each in times]
    with LedgerStorage.open(tmp_path / "bookie", "sorted") as storage:
        records = Coder("CRC32C", "pw").encode_many(7, range(3), entries)
        storage.add_entries(records, master_key=master_key("pw"))
    code, rows, _ = _run(capsys, tmp_path / "bookie", 7)

    assert (0, [2**63 - 1, -(2**63), -1]) == (code, [row["publish_time"] for row in rows])
    assert ["292278994-08-17T07:12:55.807Z", None, "1969-12-31T23:59:59.999Z"] == [
        row["published"] for row in rows
    ]


def test_payloads_on_request(bookie: Path, capsys: Capsys) -> None:
    """With --payload they are shown as stored, and only with --as."""
    _, rows, _ = _run(capsys, bookie, 7, "--payload", "--last", 1)
    assert [b"secret".hex(), b"encrypted".hex()] == [row["payload"] for row in rows]

    with pytest.raises(SystemExit):
        main(["readledger", str(bookie), "7", "--payload"])
    assert "--payload: is for --as pulsar" in capsys.readouterr().err


def test_digests_that_cannot_be_told(bookie: Path, capsys: Capsys) -> None:
    """If nothing else tells the digest type, the entries themselves tell its size."""
    code, rows, _ = _run(capsys, bookie, 11)

    assert 0 == code
    assert [NOW + 1000, NOW] == [row["publish_time"] for row in rows]


def test_columns(bookie: Path, capsys: Capsys) -> None:
    """Columns can be chosen; those of the other table are unknown."""
    words = ["readledger", str(bookie), "7", "--as", "pulsar", "--last", "1"]
    assert main([*words, "--columns", "entry_id,published,messages"]) == 0
    out = capsys.readouterr().out
    assert ["1", "2026-09-21T14:13:21.000Z", "50"] == out.splitlines()[-1].split()
    assert "secret" not in out

    with pytest.raises(SystemExit):
        main([*words, "--columns", "lac"])
    assert "unknown column 'lac'" in capsys.readouterr().err
