"""What contradicts itself in a ledger's stored state is a finding, and is given as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir, LedgerId
from bkstore.cli.main import main
from bkstore.formats import journal, ledgerdata
from bkstore.formats.entry import encode_explicit_lac
from bkstore.formats.idxfile import decode_header, header_oddities
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import ledger_key

KEY = b"\xaa" * 20
WIDE = LedgerId(5, 7)


def _lac(ledger: int, lac: int, digest: int = 4) -> bytes:
    return ledger.to_bytes(8, "big") + lac.to_bytes(8, "big", signed=True) + b"\x5a" * digest


def _header(lac: bytes = b"", bits: int = 0, version: int = 1, key: bytes = KEY) -> bytes:
    data = b"BKLE" + version.to_bytes(4, "big") + len(key).to_bytes(4, "big") + key
    data += bits.to_bytes(4, "big")
    if version:
        data += len(lac).to_bytes(4, "big") + lac
    return data.ljust(1024, b"\0")


def _with(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


ODD_LACS = [
    (_lac(8, 2), "is of ledger 8, not of ledger 7"),
    (_lac(7, -2), "is -2, outside -1..9223372036854775806"),
    (_lac(7, 2**63 - 1), "is 9223372036854775807, outside"),
    (_lac(7, 2, digest=5), "has 5 bytes of digest, which fits no digest type"),
    (b"\xa1" + bytes(19), "cannot be read: explicit LAC of 20 bytes, 25 needed"),
    (encode_explicit_lac(WIDE, 2, "CRC32C"), f"is of ledger {WIDE}, not of ledger 7"),
]
ODD_HEADERS = [
    *((_header(lac), 40, reason) for lac, reason in ODD_LACS),
    (_header(bits=6), 32, "unknown state bits 0x6"),
    (_with(_header(), 8, b"\0\0\0\x10"), 28, "is the master key truncated, its length says 16?"),
    (_with(_header(version=0), 8, b"\0\0\0\x0c"), 24, "is the master key truncated"),
    (_with(_header(), 60, b"\1"), 60, "nonzero bytes after an explicit LAC of length zero"),
    (_with(_header(_lac(7, 2)), 1000, b"\1"), 1000, "nonzero bytes after the explicit LAC"),
    (_with(_header(version=0), 1023, b"\1"), 1023, "nonzero bytes after the state bits"),
    (_header(key=b"k" * 24), 8, "master key of 24 bytes: clients use 20"),
]
SOUND = [
    _header(),
    _header(version=0, bits=1),
    _header(key=b""),
    _header(key=b"short one"),  # not a SHA-1, but nothing is left of a longer one
    *(_header(_lac(7, lac, digest)) for digest in (0, 4, 8, 20) for lac in (-1, 0, 2**63 - 2)),
]


@pytest.mark.parametrize(("data", "at", "reason"), ODD_HEADERS)
def test_odd_header(tmp_path: Path, data: bytes, at: int, reason: str, capsys: Any) -> None:
    """A header that contradicts itself is an oddity, at the field; its state is given as it is."""
    path = tmp_path / "b" / "current" / "0" / "7" / "7.idx"
    path.parent.mkdir(parents=True)
    path.write_bytes(data + bytes(8192))
    with BookieDir(tmp_path / "b") as bookie:
        state, findings = bookie.index.checked_state(7)

        assert state == bookie.index.state(7)
        header = decode_header(data)
        assert (header.master_key, header.explicit_lac) == (state.master_key, state.explicit_lac)
    first = findings[0]
    assert ("oddity", str(path), at, LedgerId.of(7)) == (
        first.severity,
        first.file,
        first.offset,
        first.ledger,
    )
    assert reason in first.detail
    for command in ("inspect", "ledgers"):
        code = main([command, str(tmp_path / "b")])

        assert (1, True) == (code, reason in capsys.readouterr().err)
    pytest.importorskip("pyarrow")
    from bkstore.offline.dump import dump

    assert findings == dump([tmp_path / "b"], tmp_path / "out").findings


@pytest.mark.parametrize("data", SOUND)
def test_sound_header(data: bytes) -> None:
    """What clients send, and a key that is not known, are no findings."""
    assert [] == list(header_oddities(data, decode_header(data), LedgerId.of(7)))


@pytest.mark.parametrize("kind", [HierarchicalIndex, RocksIndex])
@pytest.mark.parametrize("digest", ["CRC32", "HMAC", "CRC32C", "DUMMY"])
def test_sound_states(tmp_path: Path, kind: Callable[..., Any], digest: str) -> None:
    """No state with the explicit LAC of its own ledger is odd, of whatever digest and scope."""
    for ledger in (LedgerId.of(7), WIDE):
        state = LedgerState(KEY, True, False, encode_explicit_lac(ledger, 5, digest, "secret"))
        with kind(tmp_path / str(ledger.scope), writable=True) as index:
            index.set_state(ledger, state)

            assert (state, []) == index.checked_state(ledger)


@pytest.mark.parametrize(("lac", "reason"), ODD_LACS)
def test_odd_row(tmp_path: Path, lac: bytes, reason: str) -> None:
    """A row of `ledgers` with an explicit LAC that cannot be is an oddity, and read as it is."""
    state = LedgerState(KEY, explicit_lac=lac)
    with RocksIndex(tmp_path, writable=True) as index:
        index.set_state(7, state)
    with BookieDir(tmp_path) as bookie:
        found, (finding,) = bookie.index.checked_state(7)

    assert state == found
    assert ("oddity", str(tmp_path / "current" / "ledgers")) == (finding.severity, finding.file)
    assert finding.detail.startswith("row of ledger 7: ")
    assert reason in finding.detail


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (ledgerdata.encode(ledgerdata.LedgerData(KEY)) + b"\x30\x01", "unknown fields: 6"),
        (ledgerdata.encode(ledgerdata.LedgerData(KEY, exists=False)), "does not exist"),
        (ledgerdata.encode(ledgerdata.LedgerData(KEY * 2)), "master key of 40 bytes"),
    ],
)
def test_odd_message(tmp_path: Path, value: bytes, reason: str) -> None:
    """Fields that nobody knows, `exists` false, a long key: oddities of a row; parts pass them."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.set_state(7, LedgerState(KEY))
        index._database("ledgers", False).put(ledger_key(LedgerId.of(7)), value)
    with RocksIndex(tmp_path) as index:
        for asked in (index, PartitionedIndex([index])):
            _, (finding,) = asked.checked_state(7)

            assert ("oddity", True) == (finding.severity, reason in finding.detail)


def test_odd_journal_records(tmp_path: Path, capsys: Any) -> None:
    """`readjournal` gives such special records, with a finding for each run of them."""
    lac = encode_explicit_lac(7, 4, "CRC32C")
    special = [
        ("master_key", 7, KEY),
        ("explicit_lac", 7, lac),
        ("explicit_lac", 9, lac),
        ("explicit_lac", 9, lac),
        ("fence", 7, b""),
        ("master_key", 7, KEY * 2),
    ]
    data = journal.encode_header(6)
    for kind, ledger, body in special:
        data += journal.encode_record(journal.encode_special(kind, ledger, body))
    path = tmp_path / "1.txn"
    path.write_bytes(data)
    code = main(["readjournal", str(path), "--format", "jsonl"])
    out = capsys.readouterr()

    assert (1, len(special)) == (code, len(out.out.splitlines()))
    first, second = out.err.splitlines()
    assert first.startswith(f"oddity: {path}: offset ")
    assert "2 records, up to offset" in first
    assert first.endswith(": the explicit LAC is of ledger 7, not of ledger 9")
    assert second.endswith("master key of 40 bytes: clients use 20")
