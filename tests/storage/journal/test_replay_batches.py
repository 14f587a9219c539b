"""Replay in batches: what a replay record by record leaves, says and raises."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.errors import BkstoreError, CorruptionError, TooManyRequests
from bkstore.formats.entry import Entry, RecordBatch, encode, encode_explicit_lac
from bkstore.formats.journal import (
    decode_record,
    encode_header,
    encode_record,
    encode_special,
    padding_record as pad,
)
from bkstore.ids import LedgerId
from bkstore.storage.journal import replay, scan, scan_journal
from bkstore.storage.journal.replay import Replay
from bkstore.storage.journal.torn_records import (
    find_blank_sectors,
    find_suspicious_rows,
    has_unwritten_sector,
)
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind, StorageOptions
from bkstore.testing.suites.storage.base import KEY, OTHER_KEY
from tests.models.journal_replay import PlainReplay

LEDGERS = [LedgerId(0, 7), LedgerId(0, 8), LedgerId(5, 7), LedgerId(0, 12), LedgerId(9, 1)]
KINDS: list[StorageKind] = ["sorted", "interleaved", "sorted", "db", "sorted"]
DIGESTS = ["CRC32C", "CRC32", "HMAC", "DUMMY"]
SECTOR = 512
FIRST = 512
"""Where the first record of a file of version 6 stands."""


def _payload(rnd: random.Random, longest: int) -> bytes:
    """Return random bytes, often ending in zeros, seldom too many of them to be taken."""
    size = rnd.choice((10, 100, 100, 100, 700, 1500) + (longest,) * (rnd.random() < 0.02))
    return rnd.randbytes(size if rnd.random() < 0.7 else rnd.randrange(size)).ljust(size, b"\0")


def _other(rnd: random.Random, name: LedgerId) -> bytes:
    body = encode_explicit_lac(name, rnd.randrange(9), "CRC32C", "pw")
    unknown = struct.pack(">qq", 7, -0x3000)
    key = KEY if rnd.random() < 0.98 else OTHER_KEY
    kinds = ["master_key", "fence", "explicit_lac", ""]
    kind = rnd.choices(kinds, (6, 1, 2, 2))[0]
    if not kind:
        return unknown
    return encode_special(kind, name, {"master_key": key, "fence": b"", "explicit_lac": body}[kind])


def _journal(rnd: random.Random, padded: float, special: float, again: float = 0.3) -> bytes:
    """Return a file of stretches of entries of several ledgers, known and unknown.

    `again` is the share of entries whose id was there before, perhaps.
    """
    data = encode_header(6)
    for name in LEDGERS[: rnd.randrange(1, len(LEDGERS))]:
        data += encode_record(encode_special("master_key", name, KEY))
    digest = rnd.choice(DIGESTS)
    for entry in range(rnd.choice((5, 60, 300))):
        name = rnd.choice(LEDGERS[: rnd.choice((1, 5))])
        number = rnd.randrange(40) if rnd.random() < again else entry
        record = encode(Entry(name, number, -1, 5, _payload(rnd, 4000)), digest, "pw")
        data += encode_record(_other(rnd, name) if rnd.random() < special else record)
        if rnd.random() < padded:
            data += pad(len(data))
    for _ in range(rnd.choice((0, 0, 2))):  # sectors that a crash took
        at = rnd.randrange(1, len(data) // SECTOR + 1) * SECTOR
        data = (data[:at] + bytes(SECTOR) + data[at + SECTOR :])[: len(data)]
    return data + bytes(rnd.choice((0, 100)))


class Outcome:
    """What a replay left, said and raised."""

    def __init__(
        self, top: Path, path: Path, way: str, kind: StorageKind, options: dict[str, Any]
    ) -> None:
        tops = [top / name for name in ("a", "b")[: 1 + (kind == "interleaved")]]
        with LedgerStorage.open(tops, kind, options=StorageOptions(**options)) as storage:
            found: Any = PlainReplay(storage) if way == "plain" else Replay(storage)
            try:
                stop = found.run(path) if way == "plain" else found._replay_file(path, 0)
                self.end: object = (stop, found.record_count, found.skipped_count)
            except BkstoreError as error:
                self.end = (type(error), str(error))
            self.findings = found.findings
            names = storage.ledgers()
            self.states = {name: storage.state(name) for name in names}
            self.entries = {
                (name, entry): storage.read_entry(name, entry)
                for name in names
                for entry in storage.entries(name).tolist()
            }


@pytest.mark.parametrize(
    "options",
    [{}, {"auto_flush": False, "write_cache": 6000}, {"write_cache": 3000}],
    ids=["", "full cache", "small cache"],
)
@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_as_record_by_record(
    tmp_path: Path, piece: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries, states, findings, counts, the end and the error are those of single records."""
    monkeypatch.setattr(scan, "CHUNK_BYTES", piece)
    ends = set()
    for seed in range(15):
        rnd = random.Random(f"{seed} {piece} {options}")
        path = tmp_path / f"{seed}.txn"
        # Which of two entries of one id is kept depends on when the cache is flushed, and a
        # refused record may ask for that too: so with a small cache there are none.
        shares = rnd.choice((0, 0.1, 0.9)), rnd.choice((0, 0.02, 0.3)), 0 if options else 0.3
        path.write_bytes(_journal(rnd, *shares))
        tops = [tmp_path / f"{seed}-{way}" for way in ("plain", "batches")]
        limits = {"max_entry_size": 3000, **options}
        kind = KINDS[seed % len(KINDS)]
        plain, batches = (Outcome(top, path, top.name.split("-")[1], kind, limits) for top in tops)
        ends.add(type(plain.end[0]))  # type: ignore[index]

        assert plain.end == batches.end
        assert plain.findings == batches.findings
        assert plain.states == batches.states
        assert plain.entries == batches.entries
    assert {int, type} == ends  # some ended, some were refused


def _written(path: Path, *records: bytes) -> list[int]:
    """Write a journal of these records; return the offsets of their lengths."""
    data, offsets = encode_header(6), []
    for record in records:
        offsets.append(len(data))
        data += encode_record(record)
    path.write_bytes(data)
    return offsets


def _entry(name: LedgerId | int, entry: int, size: int = 100) -> bytes:
    return encode(Entry(name, entry, -1, 5, b"x" * size), "CRC32C", "pw")


@pytest.fixture
def storage(tmp_path: Path) -> Any:
    """Yield a storage that knows ledger 7."""
    options = StorageOptions(max_entry_size=1000)
    with LedgerStorage.open(tmp_path / "ledgers", "sorted", options=options) as storage:
        storage.set_master_key(7, KEY)
        yield storage


def test_unknown_ledgers_among_known_ones(tmp_path: Path, storage: LedgerStorage) -> None:
    """Records of ledgers that are gone are counted; those between and behind them are there."""
    path = tmp_path / "1.txn"
    _written(path, *(_entry((7, 8, 7, 9)[at % 4], at) for at in range(400)))
    done = Replay(storage)
    done._replay_file(path, 0)

    assert (400, 200) == (done.record_count, done.skipped_count)
    assert list(range(0, 400, 2)) == storage.entries(7).tolist()
    assert [LedgerId(0, 7)] == storage.ledgers()


@pytest.mark.parametrize("name", [7, 8])
def test_a_record_that_no_ledger_takes(tmp_path: Path, storage: LedgerStorage, name: int) -> None:
    """It is damage at its own place, its ledger known or not; what was before it is there."""
    path = tmp_path / "1.txn"
    records = [_entry(7, 0), _entry(8, 0), _entry(name, 1, 2000), _entry(7, 2), _entry(8, 1)]
    offsets = _written(path, *records)
    with pytest.raises(CorruptionError, match=r"cannot be replayed: .*the limit is 1000") as raised:
        Replay(storage)._replay_file(path, 0)

    assert (str(path), offsets[2] + 4) == (raised.value.file, raised.value.offset)
    assert [0] == storage.entries(7).tolist()


def test_a_cache_that_stays_full(
    tmp_path: Path, storage: LedgerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is refused after a flush as before it ends the replay, and does not spin."""
    path = tmp_path / "1.txn"
    _written(path, *(_entry(7, at) for at in range(10)))
    take, flushes = storage.add_batch, []

    def full(batch: RecordBatch, **options: Any) -> Any:
        fits = batch.between(0, 3) if batch.entries[0] == 0 else batch.between(0, 0)
        take(fits, **options)
        error = TooManyRequests("full")
        error.stored = len(fits)
        raise error

    monkeypatch.setattr(storage, "add_batch", full)
    monkeypatch.setattr(storage, "flush", lambda: flushes.append(1))
    with pytest.raises(TooManyRequests):
        Replay(storage)._replay_file(path, 0)

    assert 1 == len(flushes)
    assert [0, 1, 2] == storage.entries(7).tolist()


def test_few_calls_for_many_entries(
    tmp_path: Path, storage: LedgerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that follow each other go to the storage at once, with unknown ledgers or not."""
    path = tmp_path / "1.txn"
    _written(path, *(_entry(7 if at % 3 else 8, at) for at in range(3000)))
    take, calls = storage.add_batch, []

    def counted(batch: RecordBatch, **options: Any) -> Any:
        calls.append(len(batch))
        return take(batch, **options)

    monkeypatch.setattr(storage, "add_batch", counted)
    Replay(storage)._replay_file(path, 0)

    assert 2 == len(calls)
    assert 2000 == storage.entries(7).size


# -- suspicion


def _doubtful(path: Path) -> tuple[list[int], list[int]]:
    """Return offsets of entries: those that may be torn, one by one, and those by arrays."""
    slow, quick = [], []
    for offset, record in scan_journal(path).records():
        blank = find_blank_sectors(offset, record)
        if record.kind == "add" and blank and has_unwritten_sector(path, blank):
            slow.append(offset)
    for offsets, found in scan_journal(path).batches():
        if isinstance(found, RecordBatch):
            rows = find_suspicious_rows(offsets, found)
            quick += offsets[rows].tolist()
    return slow, quick


@pytest.mark.parametrize("piece", [700, 3000, 1 << 20])
def test_suspicion_by_arrays(tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry with an unwritten sector is passed by; in one piece, none is named besides."""
    monkeypatch.setattr(scan, "CHUNK_BYTES", piece)
    path, named = tmp_path / "1.txn", 0
    for seed in range(60):
        path.write_bytes(_journal(random.Random(f"{seed} {piece}"), 0.1, 0.02))
        try:
            slow, quick = _doubtful(path)
        except CorruptionError:  # a sector that is gone may leave anything of lengths and ids
            continue
        named += len(slow)

        assert set(slow) <= set(quick), seed
        assert piece < 1 << 20 or slow == quick, seed
    assert named > 20


def test_whole_entries_cost_no_call_of_their_own(
    tmp_path: Path, storage: LedgerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros in entries whose CRC fits: nothing is asked of file or storage for them."""
    asked: list[object] = []
    look: Callable[..., bool] = lambda *told: bool(asked.append(told))  # noqa: E731
    monkeypatch.setattr(replay, "has_unwritten_sector", look)
    path = tmp_path / "1.txn"
    zeros = [encode(Entry(7, at, -1, 5, bytes(900)), "CRC32C", "") for at in range(50)]
    offsets = np.array(_written(path, *zeros))
    assert find_suspicious_rows(offsets, next(scan_journal(path).batches())[1]).size  # type: ignore[arg-type]
    Replay(storage)._replay_file(path, 0)

    assert zeros == [storage.read_entry(7, at) for at in range(50)]
    assert [] == asked
    assert decode_record(zeros[0]).kind == "add"
