"""Dumps with the publish times of Pulsar's messages: what entries say, and nothing of others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkstore import BookieDir, LedgerStorage
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, master_key
from bkstore.offline.dump import dump
from bkstore.offline.reading.open_dump import open_dump
from bkstore.storage.options import StorageKind
from tests.pulsar.samples import NOW, field, message_entry, message_metadata

_DIGESTS = {7: "CRC32C", 8: "CRC32", 9: "HMAC", 10: "DUMMY", 11: "CRC32C"}
_CURSOR, _MIXED = 11, 7


def _entry(rng: random.Random, ledger: int, entry_id: int) -> tuple[bytes, int | None, int | None]:
    """Return an entry, and what its message says: when it was published, how many there are."""
    if ledger == _CURSOR:  # PositionInfo
        return field(1, 7) + field(2, entry_id), None, None
    if ledger == _MIXED and entry_id % 10 == 3:
        return rng.randbytes(30), None, None
    count = rng.choice([None, 1, 500])
    property_bytes = rng.choice([0, 0, 300, 460, 480, 500, 5000, 70_000])
    more = field(4, field(1, "trace") + field(2, "x" * property_bytes))
    metadata = message_metadata(entry_id, NOW + entry_id, more=more, batch=count)
    broker = rng.choice([None, (NOW, entry_id)])
    payload = rng.randbytes(rng.choice([0, 10, 2000]))
    entry = message_entry(metadata, payload, broker=broker, checksum=rng.random() < 0.8)
    return entry, NOW + entry_id, count or 1


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[Any, Any]]:
    """Return a bookie with ledgers of topics and of a subscription, and the expected columns by
    ledger and entry."""
    rng, expected = random.Random(5), {}
    storage: StorageKind = getattr(request, "param", "db")
    with LedgerStorage.open(tmp_path / "bookie", storage) as opened:
        for first in (0, 20):
            for ledger, digest_type in _DIGESTS.items():
                ids = range(first, first + 20)
                made = [_entry(rng, ledger, entry_id) for entry_id in ids]
                records = Coder(digest_type, "pw").encode_many(
                    ledger, ids, [each[0] for each in made]
                )
                opened.add_entries(records, master_key=master_key("pw"))
                expected |= {(ledger, each): values[1:] for each, values in zip(ids, made)}
    return tmp_path / "bookie", expected


def _columns(out: Path) -> dict[Any, Any]:
    rows = pq.read_table(out / "entries").to_pylist()
    assert all(row["length"] > 32 for row in rows)
    return {
        (row["ledger_id"], row["entry_id"]): (row["publish_time"], row["messages"]) for row in rows
    }


@pytest.mark.parametrize("world", ["db", "sorted", "interleaved"], indirect=True)
def test_columns(world: tuple[Path, dict[Any, Any]], tmp_path: Path) -> None:
    """Each entry of a topic has its columns, however long its header; one that has no message is
    damage in a topic's ledger, and no finding in another's."""
    bookie, expected = world
    result = dump([bookie], tmp_path / "out", pulsar=True)

    assert expected == _columns(tmp_path / "out")
    assert {7} == {finding.ledger.ledger for finding in result.findings if finding.ledger}
    assert all("no message: " in finding.detail for finding in result.findings)
    assert 4 == sum(finding.entries or 0 for finding in result.findings)
    with BookieDir(bookie) as opened:
        position = opened.locate(7, 3, 3)[2][0] & 0xFFFF_FFFF
    first = min(result.findings, key=lambda each: each.first_entry or 0)
    assert (3, position) == (first.first_entry, first.offset)


def test_other_readers(world: tuple[Path, dict[Any, Any]], tmp_path: Path) -> None:
    """Dumps with and without the columns are read alike; pieces are kept for equal options only."""
    bookie, expected = world
    dump([bookie], tmp_path / "plain", length=True)
    dump([bookie], tmp_path / "out", pulsar=True)
    again = dump([bookie], tmp_path / "again", pulsar=True, since=tmp_path / "out")
    other = dump([bookie], tmp_path / "other", pulsar=True, since=tmp_path / "plain")

    plain = open_dump(tmp_path / "plain").read("entries")
    assert plain.equals(open_dump(tmp_path / "out").read("entries"))
    assert expected == _columns(tmp_path / "again") == _columns(tmp_path / "other")
    assert (1, 1) == (again.unchanged_pieces, other.unchanged_pieces)  # the entry logs
    assert "publish_time" not in pq.read_schema(next((tmp_path / "plain/entries").iterdir())).names


def test_command(
    world: tuple[Path, dict[Any, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`bkstore dump --pulsar`; SQL has the columns."""
    bookie, expected = world
    assert main(["dump", str(bookie), str(tmp_path / "out"), "--pulsar"]) == 1  # entries of junk
    query = "select sum(messages), max(publish_time), count(*) from entries"
    assert main(["sql", str(tmp_path / "out"), query, "--format", "csv"]) == 0

    messages = sum(values[1] or 0 for values in expected.values())
    row = capsys.readouterr().out.splitlines()[-1]
    assert f"{messages},{NOW + 39},{len(expected)}" == row
