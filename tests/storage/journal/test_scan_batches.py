"""Scanning in pieces and batches: the same as record by record, wherever pieces and runs end."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from bkstore.errors import CorruptionError, DirectoryInUse
from bkstore.formats.entry import Entry, RecordBatch, encode, encode_explicit_lac
from bkstore.formats.journal import (
    decode_record,
    encode_header,
    encode_record,
    encode_special,
    entry_ids_of_records,
    padding_record,
)
from bkstore.ids import LedgerId
from bkstore.storage.journal import scan, scan_journal
from tests.models.journal_scan import assert_as_a_plain_loop

WIDE = LedgerId(5, 1 << 63 | 7)


def _entry(rnd: random.Random, size: int, wide: bool = False) -> bytes:
    ledger = WIDE if wide else 7
    return encode(Entry(ledger, rnd.randrange(1 << 40), -1, 5, rnd.randbytes(size)), "CRC32C", "")


def _other(rnd: random.Random) -> bytes:
    """Return a record that is no entry: a special one, or none that can be."""
    ledger = rnd.choice((7, WIDE))
    body = encode_explicit_lac(ledger, 3, "CRC32C", "pw")
    unknown = struct.pack(">qq", 7, -0x3000) + b"?"
    return rnd.choice(
        (
            encode_special("master_key", ledger, b"k" * 20),
            encode_special("fence", ledger),
            encode_special("explicit_lac", ledger, body),
            unknown,
        )
        * 8
        + (b"short", bytes(20), b"\xa5" + bytes(60), b"\xa1" + bytes(60), b"\xa0" + bytes(24))
    )


def _journal(rnd: random.Random, version: int) -> bytes:
    """Return a journal of stretches of equal and unequal sizes, padded now and then."""
    data = encode_header(max(version, 4))
    data = data[:7] + bytes([version]) + data[8:]
    for _ in range(rnd.randrange(1, 12)):
        size, wide = rnd.randrange(200), rnd.random() < 0.3
        equal = rnd.random() < 0.6
        for _ in range(rnd.choice((1, 2, 63, 64, 65, 130))):
            record = _entry(rnd, size if equal else rnd.randrange(200), wide)
            if rnd.random() < 0.01:
                record = _other(rnd)
            data += encode_record(record) if len(record) > 15 else b"\0\0\0\5" + record
            if rnd.random() < (0.03, 0.9)[rnd.random() < 0.2] and version >= 5:
                data += padding_record(len(data))
    return data + bytes(rnd.choice((0, 3, 600)))


def _damaged(rnd: random.Random, data: bytes) -> bytes:
    """Return a journal cut, or with some bytes changed."""
    where, how = rnd.randrange(8, len(data)), rnd.randrange(4)
    if how == 0:
        return data[:where]
    changed = rnd.randbytes(4) if how == 1 else bytes(rnd.randrange(1, 700))
    if how == 3:
        changed = bytes([data[where] ^ 1 << rnd.randrange(8)])
    return data[:where] + changed[: len(data) - where] + data[where + len(changed) :]


@pytest.mark.parametrize("version", [2, 4, 5, 6])
@pytest.mark.parametrize("piece", [16, 700, 5000, 1 << 20])
def test_pieces_of_any_size(
    tmp_path: Path, piece: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a piece ends makes no difference, in sound and in damaged files."""
    monkeypatch.setattr(scan, "CHUNK_BYTES", piece)
    path = tmp_path / "1.txn"
    for seed in range(3 if piece == 16 else 6):
        rnd = random.Random(f"{piece} {version} {seed}")
        data = _journal(rnd, version)
        for damaged in (data, *(_damaged(rnd, data) for _ in range(4))):
            path.write_bytes(damaged)
            for start in (0, 0, rnd.randrange(len(data))):
                assert_as_a_plain_loop(scan_journal(path, start, skip_invalid=rnd.random() < 0.5))


def test_what_follows_each_other_is_one_batch(tmp_path: Path) -> None:
    """Padding does not end a batch; a special record does, and the end of a piece."""
    rnd = random.Random(1)
    groups = [[_entry(rnd, 100 + n) for n in range(3)] for _ in range(3)]
    data = encode_header(6)
    for group in groups[:2]:
        data += b"".join(map(encode_record, group))
        data += padding_record(len(data))
    fence = len(data)
    data += encode_record(encode_special("fence", 7)) + b"".join(map(encode_record, groups[2]))
    path = tmp_path / "1.txn"
    path.write_bytes(data)
    first, special, last = list(scan_journal(path).batches())

    assert isinstance(first[1], RecordBatch)
    assert isinstance(last[1], RecordBatch)
    assert groups[0] + groups[1] == first[1].records()
    assert groups[2] == last[1].records()
    assert [fence] == special[0].tolist()
    assert first[1].buffer is last[1].buffer  # nothing is copied


def test_a_file_that_becomes_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is cut while it is read is in use: no end of its data is made up."""
    monkeypatch.setattr(scan, "CHUNK_BYTES", 1000)
    path = tmp_path / "1.txn"
    path.write_bytes(encode_header(6) + encode_record(bytes(900)) * 3)
    found = scan_journal(path).batches()
    next(found)
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(DirectoryInUse, match="was truncated"):
        list(found)


RECORD = st.one_of(
    st.binary(min_size=1, max_size=60),
    st.tuples(
        st.sampled_from([b"\0", b"\x7f", b"\x80", b"\xa0", b"\xa1", b"\xa4", b"\xa5", b"\xff"]),
        st.binary(min_size=15, max_size=60),
        st.sampled_from([b"\0", b"\x80", b"\xff", b"x"]),
    ).map(lambda parts: parts[0] + parts[2] * 7 + parts[2] + parts[1]),
    st.integers(15, 60).map(bytes),
)


@given(st.lists(RECORD, min_size=1, max_size=20))
@example([b"\xa1" + bytes(8) + bytes(32), b"\xa1" + b"\1" * 8 + bytes(32)])
@example([bytes(31), bytes(32), bytes(8) + b"\xff" * 24, b"\xa4" + b"\1" * 39])
def test_entry_ids_among(records: list[bytes]) -> None:
    """Exactly those have ids that decoding calls entries, and the ids are the same."""
    ends = np.cumsum([len(record) for record in records])
    data = np.frombuffer(b"".join(records), np.uint8)
    sizes = np.array([len(record) for record in records], np.int64)
    found = entry_ids_of_records(data, ends - sizes, sizes)

    assert [_entry_id(record) for record in records] == found.tolist()


def _entry_id(record: bytes) -> int:
    try:
        decoded = decode_record(record)
    except CorruptionError:
        return -1
    return decoded.entry_id if decoded.kind == "add" else -1
