"""Records of which a crash left only some sectors: found out, and never put over good ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.errors import CorruptionError
from bkstore.formats.entry import Entry, encode, encode_explicit_lac
from bkstore.formats.journal import decode_record, encode_special
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.journal import list_journal_files, scan_journal
from bkstore.storage.journal.torn_records import find_blank_sectors
from bkstore.storage.options import JournalOptions, StorageOptions
from tests.worlds.torn_journals import KEY, SECTOR, first_record, torn_inside

DIGESTS = ["CRC32", "CRC32C", "HMAC", "DUMMY"]


def _record(entry: int, digest: str, payload: bytes, ledger: int | LedgerId = 7) -> bytes:
    return encode(Entry(ledger, entry, entry - 1, 1000, payload), digest, "pw")


def _open(top: Path, storage: str = "sorted", compat: Any = None) -> Bookie:
    return Bookie.open(
        top,
        storage,  # type: ignore[arg-type]
        options=StorageOptions(compat=compat),
        journal=JournalOptions(preallocate=0),
    )


def _torn_at_sector(top: Path, cut: int) -> None:
    """Zero the last record of the newest journal from sector `cut` behind its start on."""
    _, path = list_journal_files(top / "journal" / "current")[-1]
    offset = max(offset for offset, _ in scan_journal(path))
    data = bytearray(path.read_bytes())
    start = (offset // SECTOR + cut) * SECTOR
    data[start:] = bytes(len(data) - start)
    path.write_bytes(data)


def _crashed(top: Path, storage: str, digest: str, ledger: int | LedgerId = 7) -> None:
    """Leave a bookie with entry 0 checkpointed, and entry 5 torn: not closed, no mark moved."""
    bookie = _open(top, storage)
    bookie.add_entries([_record(0, digest, b"first", ledger)], KEY)
    bookie.checkpoint()
    bookie.add_entry(_record(5, digest, b"x" * 2000, ledger), KEY)
    bookie.close(checkpoint=False)
    _torn_at_sector(top, 2)


@pytest.mark.parametrize("ledger", [7, LedgerId(5, 7)])
@pytest.mark.parametrize("digest", ["CRC32", "CRC32C"])
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_torn_entry(storage: str, digest: str, ledger: Any, tmp_path: Path) -> None:
    """An entry whose CRC does not fit, and that ends in zeros, is skipped with a finding."""
    _crashed(tmp_path, storage, digest, ledger)
    with _open(tmp_path, storage) as bookie:
        assert [0] == bookie.entries(ledger).tolist()
        assert ["damage"] == [found.severity for found in bookie.findings]
        assert "torn" in bookie.findings[0].detail


def test_real_bookies_replay_torn_entries(tmp_path: Path) -> None:
    """In compat mode the torn entry is replayed as it is, as a real bookie would."""
    _crashed(tmp_path, "sorted", "CRC32C")
    with _open(tmp_path, "sorted", "bookkeeper") as bookie:
        assert [0, 5] == bookie.entries(7).tolist()
        assert bookie.read_entry(7, 5).endswith(bytes(1000))


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_payloads_of_zeros(storage: str, digest: str, tmp_path: Path) -> None:
    """Acknowledged entries of nothing but zeros come back, whatever their digest is."""
    records = [_record(entry, digest, bytes(600 + 700 * entry)) for entry in range(8)]
    bookie = _open(tmp_path, storage)
    bookie.add_entries(records, KEY)
    bookie.close(checkpoint=False)
    with _open(tmp_path, storage, "bookkeeper") as bookie:  # lets the replay decide again
        bookie.close(checkpoint=False)
    with _open(tmp_path, storage) as bookie:
        assert records == [bookie.read_entry(7, entry) for entry in range(8)]


@pytest.mark.parametrize("storage", ["interleaved", "db"])
def test_nothing_good_is_overwritten(storage: str, tmp_path: Path) -> None:
    """Where no CRC helps, a record that ends in zeros does not replace an entry that is there."""
    good = _record(5, "HMAC", b"good")
    bookie = _open(tmp_path, storage)
    bookie.add_entry(good, KEY)
    bookie.checkpoint()
    bookie.add_entry(_record(5, "HMAC", b"x" * 2000), KEY)
    bookie.close(checkpoint=False)
    _torn_at_sector(tmp_path, 2)
    bookie = _open(tmp_path, storage)
    with bookie:
        assert good == bookie.read_entry(7, 5)
        assert 1 == len(bookie.findings)


def test_suspicion_is_by_sectors() -> None:
    """Only zeros that fill what a later sector has of a record make it suspicious."""
    whole = decode_record(_record(0, "CRC32C", b"x" * 700))
    zeros = decode_record(_record(0, "CRC32C", b"x" * 476 + bytes(224)))

    assert not find_blank_sectors(512, whole)
    assert find_blank_sectors(512 - 4, zeros)  # 36 + 476 bytes fill the sector, zeros the next
    assert not find_blank_sectors(520, zeros)  # the next has some of the x
    assert not find_blank_sectors(1024 - 4 - 20, decode_record(encode_special("fence", 7)))


def test_torn_keys_and_explicit_lacs() -> None:
    """A key that ends in zeros at a sector's end is suspicious, a LAC body likewise."""
    key = decode_record(encode_special("master_key", 7, b"k" * 12 + bytes(8)))
    body = encode_explicit_lac(7, 3, "CRC32C", "pw")[:16] + bytes(4)
    lac = decode_record(encode_special("explicit_lac", 7, body))

    assert find_blank_sectors(1024 - 4 - 20 - 12, key)
    assert not find_blank_sectors(1024 - 4 - 20 - 11, key)
    assert find_blank_sectors(1024 - 4 - 20 - 16, lac)


def test_torn_key(tmp_path: Path) -> None:
    """A torn key does not lock out the writer who has the whole one."""
    bookie = _open(tmp_path)
    bookie.add_entry(_record(0, "CRC32C", b"x"), KEY)
    bookie.close(checkpoint=False)
    _, path = list_journal_files(tmp_path / "journal" / "current")[-1]
    data = bytearray(path.read_bytes())
    torn = encode_special("master_key", 8, b"q" * 20)
    place = max(offset + 4 + len(record) for offset, record in scan_journal(path))
    gap = (place // SECTOR + 1) * SECTOR - 28 - place  # the key's last 16 bytes are behind it
    padding = struct.pack(">ii", -0x100, gap - 8) + bytes(gap - 8)
    data[place:] = padding + len(torn).to_bytes(4, "big") + torn[:24] + bytes(20) + bytes(600)
    path.write_bytes(data)
    with _open(tmp_path) as again:
        assert [LedgerId(0, 7)] == again.ledgers()
        assert 1 == len(again.findings)
        again.add_entry(_record(0, "CRC32C", b"y", 8), b"q" * 20)

        assert [0] == again.entries(8).tolist()


@pytest.mark.parametrize("version", [5, 6])
def test_key_that_ends_in_zeros(version: int, tmp_path: Path) -> None:
    """A whole key whose end a sector has as zeros: what follows shows that it was written."""
    key = b"secret".ljust(20, b"\0")
    bookie = Bookie.open(tmp_path, journal=JournalOptions(preallocate=0, version=version))
    size = 1024 - 10 - 24 - 40 - 556  # the key's last 10 bytes begin the sector at 1024
    bookie.add_entries([_record(0, "CRC32C", b"x" * size)], KEY, sync=False)
    bookie.add_entry(_record(0, "HMAC", b"y", 8), key)
    bookie.close(checkpoint=False)
    with Bookie.open(tmp_path) as again:
        assert [] == again.findings
        assert key == again.master_key(8)
        assert [0] == again.entries(8).tolist()


@pytest.mark.parametrize("scope", [0, 5])
def test_overhead_of_a_scope(scope: int, tmp_path: Path) -> None:
    """Another scope than 0 costs nine bytes an entry in the journal and in the entry log."""
    sizes = {}
    for number in (0, scope):
        top = tmp_path / str(number)
        bookie = _open(top)
        for entry in range(10):
            bookie.add_entry(_record(entry, "CRC32C", b"payload", LedgerId(number, 7)), KEY)
        bookie.close()
        _, path = list_journal_files(top / "journal" / "current")[-1]
        journal = [len(data) for _, data in scan_journal(path)][1:]
        log, _ = read_log_metadata(top / "ledgers" / "current" / "0.log", 0)
        sizes[number] = (journal, log.total_size)

    assert [size + 9 * (scope > 0) for size in sizes[0][0]] == sizes[scope][0]
    assert sizes[0][1] + 90 * (scope > 0) == sizes[scope][1]


# -- torn inside their ids

KINDS = ["add", "master_key", "fence", "explicit_lac"]


def _of_kind(kind: Any, ledger: LedgerId) -> bytes:
    bodies = {"master_key": KEY, "explicit_lac": encode_explicit_lac(ledger, 0, "CRC32C")}
    if kind == "add":
        return _record(1, "CRC32C", b"x" * 1100, ledger)
    return encode_special(kind, ledger, bodies.get(kind, b""))


@pytest.mark.parametrize("there", range(1, SIZE_FIELD_BYTES + 30))
@pytest.mark.parametrize("scope", [0, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_torn_inside_the_ids(kind: str, scope: int, there: int, tmp_path: Path) -> None:
    """However few bytes a crash left of a record, the bookie starts, with all that is before it;
    what is left does nothing to any ledger."""
    record = _of_kind(kind, LedgerId(scope, 258 << 40 | 7))
    torn_inside(tmp_path, record, there)
    whole = not any(record[there - SIZE_FIELD_BYTES :]) and there > SIZE_FIELD_BYTES
    with _open(tmp_path) as bookie:
        assert first_record() == bookie.read_entry(7, 0)
        assert KEY == bookie.master_key(7)
        if not whole:
            assert [LedgerId(0, 7)] == bookie.ledgers()
            assert not bookie.is_fenced(7)
        assert all(found.file is not None for found in bookie.findings)
        assert 1 == bookie.add_entry(_record(1, "CRC32C", b"second"), KEY)


def test_no_ids_is_told(tmp_path: Path) -> None:
    """A record of which only the flags were written is a finding with its offset; to a scan that
    is not told to pass it over, and to a real bookie, it is an error."""
    offset = torn_inside(tmp_path, _of_kind("fence", LedgerId(5, 7)), SIZE_FIELD_BYTES + 4)
    _, path = list_journal_files(tmp_path / "journal" / "current")[-1]
    scan = scan_journal(path, skip_torn=True)

    assert ["master_key", "add"] == [record.kind for _, record in scan.records()]
    (found,) = scan.findings
    assert ("damage", str(path), offset) == (found.severity, found.file, found.offset)
    assert "record is torn, its ids end in zeros (version 2 record of scope 0" in found.detail
    assert [found] == _findings_of_batches(path)
    with pytest.raises(
        CorruptionError, match=f"offset {offset + SIZE_FIELD_BYTES + 1}: version 2 record"
    ):
        list(scan_journal(path).records())
    with pytest.raises(CorruptionError, match="version 2 record of scope 0"):
        _open(tmp_path, compat="bookkeeper")


def _findings_of_batches(path: Path) -> list[Finding]:
    scan = scan_journal(path, skip_torn=True)
    for _ in scan.batches():
        pass
    return scan.findings


def test_a_sector_that_was_written(tmp_path: Path) -> None:
    """What cannot be read though its next sector was written is damage: the bookie does not
    start."""
    record = _of_kind("fence", LedgerId(5, 7))
    torn_inside(
        tmp_path, record, SIZE_FIELD_BYTES + 4, bytes(SECTOR - 1) + b"x" + bytes(3 * SECTOR)
    )
    with pytest.raises(CorruptionError, match="version 2 record of scope 0"):
        _open(tmp_path)


def test_ids_that_were_written(tmp_path: Path) -> None:
    """What cannot be read though all of its ids were written is damage, whatever is blank behind
    them."""
    record = encode_special("fence", LedgerId(5, 7))[:1] + bytes(28) + b"x" * 700
    offset = torn_inside(tmp_path, record, SIZE_FIELD_BYTES + 200)
    with pytest.raises(
        CorruptionError, match=f"offset {offset + SIZE_FIELD_BYTES + 1}: version 2 record"
    ):
        _open(tmp_path)
