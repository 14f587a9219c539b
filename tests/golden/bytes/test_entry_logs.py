"""Entry logs and records of the real BookKeeper: read back, scanned, summed up."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, DataUnknown, LedgerId, NoSuchEntry, NoSuchLedger
from bkstore.errors import CorruptionError
from bkstore.formats.entry import Coder, Entry, decode_explicit_lac, encode_explicit_lac, master_key
from bkstore.formats.entrylog import LogMetadata
from bkstore.index.api import Finding
from bkstore.storage.entry_log.metadata_cache import METADATA_CACHE, read_metadata_cache
from bkstore.storage.entry_log.scan import LogBatch, scan_log


def _vectors(golden: Path, name: str) -> list[dict[str, Any]]:
    found = [v for path in golden.rglob(f"{name}.json") for v in json.loads(path.read_bytes())]
    if not found:
        pytest.skip(f"no {name} below {golden}")
    return found


def _sum_of(batches: list[LogBatch]) -> tuple[int, int]:
    """Return (records, crc32 over all of them in order)."""
    crc = 0
    for batch in batches:
        for at in range(len(batch)):
            crc = zlib.crc32(batch.record(at), crc)
    return sum(map(len, batches)), crc


# -- entries by the index


def test_every_entry_reads_back(tree: Any) -> None:
    """Each entry of which the golden data has length and CRC is read with these."""
    with BookieDir(tree.root) as bookie:
        for answer in tree.known:
            for entry, _, size, crc in answer["locations"]:
                record = bookie.read_entry(answer["ledger"], entry)

                assert [size, crc] == [len(record), zlib.crc32(record)]


def test_every_entry_is_verified(tree: Any, reader: Any) -> None:
    """All listed entries scan in order, without a finding, and their digests match."""
    coder = Coder("CRC32C", "golden")
    findings: list[Finding] = []
    with BookieDir(tree.root) as bookie:
        for answer in tree.known:
            records = [
                coder.decode(record, answer["ledger"])
                for batch in bookie.scan_ledger(answer["ledger"], findings=findings)
                for record in batch
            ]

            assert reader.expand_runs(answer["entries"]) == [record.entry_id for record in records]

    assert [] == findings


def test_batches_are_runs(tree: Any) -> None:
    """A batch read from the first entry of a run gives that run, with lengths and CRCs."""
    with BookieDir(tree.root) as bookie:
        for answer in tree.known:
            known = {row[0]: row[2:] for row in answer["locations"]}
            for first, last in answer["entries"][:20]:
                batch = bookie.read_entries(answer["ledger"], first)

                assert list(range(first, last + 1)) == batch.entries.tolist()
                for entry, record in zip(batch.entries.tolist(), batch.records()):
                    if entry in known:
                        assert known[entry] == [len(record), zlib.crc32(record)]


def test_last_entry(tree: Any, reader: Any) -> None:
    """Entry -1 is the entry that the real storage returned for it; what it threw is an error."""
    with BookieDir(tree.root) as bookie:
        for answer in tree.known:
            if answer["num_entries"] == 0 or answer.get("limbo"):
                absent = DataUnknown if answer.get("limbo") else NoSuchEntry
                with pytest.raises(absent):
                    bookie.read_entry(answer["ledger"])
            else:
                last = reader.expand_runs(answer["entries"])[-1]
                (record,) = bookie.read_entries(answer["ledger"], -1)

                assert bookie.read_entry(answer["ledger"], last) == bytes(record)
                assert bytes(record) == bookie.read_entry(answer["ledger"])


def test_missing(tree: Any) -> None:
    """What is not there is said so: unknown ledgers, entries behind the last."""
    done = 0
    with BookieDir(tree.root) as bookie:
        for ledger in tree.unknown:
            for read in (bookie.read_entry, bookie.read_entries):
                with pytest.raises(NoSuchLedger):
                    read(ledger, 0)

            assert [] == list(bookie.scan_ledger(ledger))
            done += 1
        for answer in tree.known:
            if "missing_probe" in answer:
                absent = DataUnknown if answer.get("limbo") else NoSuchEntry
                for read in (bookie.read_entry, bookie.read_entries):
                    with pytest.raises(absent):
                        read(answer["ledger"], answer["missing_probe"][0])
                done += 1
    assert done


# -- logs


def test_logs_scan(tree: Any) -> None:
    """Each log scans to the count and CRC that the real scanner found, without a finding."""
    findings: list[Finding] = []
    with BookieDir(tree.root) as bookie:
        for log in tree.last["entry_logs"]:
            batches = list(bookie.scan_log(log["log_id"], log.get("dir_index"), findings))

            assert (log["scan_entries"], log["scan_crc32"]) == _sum_of(batches), log["file"]
    assert [] == findings


def test_log_metadata(tree: Any) -> None:
    """Ledgers, sizes, and whether they are from a map are what the real logger said."""
    findings: list[Finding] = []
    with BookieDir(tree.root) as bookie:
        for log in tree.last["entry_logs"]:
            metadata, source = bookie.log_metadata(log["log_id"], log.get("dir_index"), findings)
            ledgers = [[name.ledger, size] for name, size in sorted(metadata.ledgers.items())]

            if log["has_ledgers_map"] is not None:  # not told of direct-IO logs
                assert ("map" if log["has_ledgers_map"] else "scan") == source
            assert sorted(log["ledgers_map"]) == ledgers
            assert log["total_size"] == metadata.total_size
            assert log["remaining_size"] == metadata.remaining_size
            assert log["usage"] == pytest.approx(metadata.usage)
            assert log["file_size"] == bookie.log_file(log["log_id"], log.get("dir_index")).bytes
    assert [] == findings


def test_locations_point_at_scanned_records(tree: Any) -> None:
    """Every location of the index is the position of that entry in the scan of its log."""
    with BookieDir(tree.root) as bookie:
        scanned = {
            (log.dir_index, ledger, entry, log.log_id << 32 | position)
            for log in bookie.entry_logs
            for batch in bookie.scan_log(log.log_id, log.dir_index)
            for ledger, entry, position in zip(
                batch.ledger_id.tolist(), batch.entry_id.tolist(), batch.position.tolist()
            )
        }
        indexed = {
            (number, answer["ledger"], entry, location)
            for answer in tree.known
            for entry, number, location in zip(
                *(column.tolist() for column in bookie.locate(answer["ledger"]))
            )
        }

        assert indexed
        assert set() == indexed - scanned


def _scan_all(root: Path) -> int:
    """Scan all logs below a folder, and return how many records they have."""
    found = 0
    for path in sorted(root.rglob("*.log")):
        if path.parent.name == "current":
            found += sum(map(len, scan_log(path)))
    return found


def test_logs_beside_journals(journal: Any) -> None:
    """The logs of a bookie that was copied while it ran scan without damage."""
    assert 0 < _scan_all(journal[0])


def test_logs_of_clusters(cluster: Any) -> None:
    """Logs of what the real client wrote scan, and every located entry is verified."""
    root, document = cluster
    coder, verified = Coder("CRC32C", "golden"), 0

    assert 0 < _scan_all(root)
    for number in document["bookies"]:
        with BookieDir(root / number) as bookie:
            for name in bookie.index.ledgers():
                for batch in bookie.scan_ledger(name):
                    verified += len([coder.decode(record, name) for record in batch])

    assert 1000 < verified


def test_direct_io_logs(tree: Any) -> None:
    """Logs of the direct-IO logger begin at 4100 and have padding between records."""
    if "direct_io" not in tree.document["tree"]:
        pytest.skip("not of the direct-IO logger")
    padded = 0
    with BookieDir(tree.root) as bookie:
        for log in tree.last["entry_logs"]:
            places, sizes = (
                np.concatenate([getattr(batch, name) for batch in bookie.scan_log(log["log_id"])])
                for name in ("position", "size")
            )

            assert 4100 == places[0]
            assert log["scan_entries"] == places.size
            padded += int((np.diff(places) - sizes[:-1] > 4).sum())

    assert 0 < padded


# -- what garbage collection keeps


def test_metadata_cache(tree: Any) -> None:
    """The rows of `metadata-cache` are what the real map answered at the end."""
    answers = [o for o in tree.document["operations"] if o["op"] == "gc_metadata_map"]
    if not answers:
        pytest.skip("keeps no metadata")
    expected = {
        log["log_id"]: (
            log["total_size"],
            log["remaining_size"],
            {LedgerId.of(ledger): size for ledger, size in log["ledgers_map"]},
        )
        for log in answers[-1]["logs"]
    }
    with BookieDir(tree.root) as bookie:
        kept = bookie.metadata_cache()

    assert expected
    assert expected == {
        log_id: (metadata.total_size, metadata.remaining_size, metadata.ledgers)
        for log_id, metadata in kept.items()
    }


def test_metadata_cache_that_is_none(tmp_path: Path) -> None:
    """No database is no rows; a row that is none, or under another key, names the database."""
    from rocksdict import Options, Rdict

    row = LogMetadata(3, 10, 10, {LedgerId.of(1): 10}).to_bytes()

    assert {} == read_metadata_cache(tmp_path)
    for key, value in ((bytes(7) + b"\4", row), (bytes(7) + b"\3", row[:-1]), (b"\3", row)):
        current = tmp_path / str(len(list(tmp_path.iterdir())))
        current.mkdir()
        database = Rdict(str(current / METADATA_CACHE), Options(raw_mode=True))
        database[key] = value
        database.close()
        with pytest.raises(CorruptionError, match=f"{METADATA_CACHE}: row of key"):
            read_metadata_cache(current)


# -- vectors


def test_metadata_vectors(golden: Path) -> None:
    """Added and removed sizes give the real object's totals and bytes, both ways."""
    for vector in _vectors(golden, "entry_log_metadata_vectors"):
        metadata = LogMetadata(vector["log_id"])
        for ledger, size in vector["add_ledger_size"]:
            metadata.add(LedgerId.of(ledger), size)
        before = (metadata.total_size, metadata.remaining_size, metadata.usage)
        metadata.remove_ledger(LedgerId.of(vector["remove_ledger"]))
        after = (metadata.total_size, metadata.remaining_size, metadata.usage)
        ledgers = {str(name): size for name, size in metadata.ledgers.items()}
        data = bytes.fromhex(vector["serialized_hex"])

        assert tuple(vector[f"{n}_before"] for n in ("total", "remaining", "usage")) == before
        assert tuple(vector[n] for n in ("total", "remaining", "usage")) == after
        assert vector["ledgers"] == ledgers
        assert metadata == LogMetadata.from_bytes(data)
        assert data[:34] == metadata.to_bytes()[:34]
        assert _items(data) == _items(metadata.to_bytes())  # a hash map's order, upstream


def _items(data: bytes) -> list[bytes]:
    return sorted(data[at : at + 16] for at in range(34, len(data), 16))


def test_digest_vectors(golden: Path) -> None:
    """Records, master keys and explicit LACs are the real ones, both ways, all digest types."""
    vectors = _vectors(golden, "digest_vectors")

    assert {"CRC32", "CRC32C", "HMAC", "DUMMY"} <= {v["digest_type"] for v in vectors}
    for vector in vectors:
        kind, password = vector["digest_type"], vector["password"]
        coder, record = Coder(kind, password), bytes.fromhex(vector["entry_hex"])
        payload = bytes.fromhex(vector["payload_hex"])
        numbers = (vector["ledger"], vector["entry"], vector["lac"], vector["length"])
        body = bytes.fromhex(vector["explicit_lac_hex"])

        assert record == coder.encode(Entry(*numbers, payload))
        assert numbers == _plain(coder.decode(record, vector["ledger"], vector["entry"]))
        assert vector["digest_len"] == coder.digest.size
        assert vector["digest_hex"] == record[32 : 32 + coder.digest.size].hex()
        assert vector["master_key_hex"] == master_key(password).hex()
        assert body == encode_explicit_lac(vector["ledger"], vector["lac"], kind, password)
        assert (LedgerId.of(vector["ledger"]), vector["lac"]) == decode_explicit_lac(
            body, kind, password
        )


def _plain(entry: Entry) -> tuple[int, int, int, int]:
    name = LedgerId.of(entry.ledger)
    return name.ledger, entry.entry_id, entry.lac, entry.length
