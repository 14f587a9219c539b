"""Entry logs: header, ledgers map, metadata, names: bytes by the specification and the page."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bkstore import BookieDir, CorruptionError, InvalidArgument, LedgerId, UnsupportedLayout
from bkstore.formats import entrylog
from bkstore.formats.entry import Entry, encode
from bkstore.formats.entrylog import LogHeader, LogMetadata
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import read_log_metadata, scan_log
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledger_storage import LedgerStorage
from tests.docs.format_pages import shown_bytes

PAGE = "entrylog.md"
LEDGER = LedgerId.of(0x1234)
SCOPED = LedgerId(0x550E8400E29B41D4, 0xA716446655440000)


# -- the page


def test_page_file_is_what_is_written(tmp_path: Path) -> None:
    """The page's file is, byte for byte, what the logger makes of that entry."""
    record = encode(Entry(LEDGER, 0, -1, 5, b"hello"), "CRC32C", "testPasswd")
    with EntryLogger([tmp_path]) as logger:
        location = logger.add(LEDGER, record)
        logger.roll()
        logger.flush()

    assert 1028 == location
    assert shown_bytes(PAGE, "file") == (tmp_path / "0.log").read_bytes()


def test_page_file_is_what_is_read(tmp_path: Path) -> None:
    """The page's file scans to that entry, and its map says its ledger."""
    path = tmp_path / "0.log"
    path.write_bytes(shown_bytes(PAGE, "file"))
    (batch,) = scan_log(path)
    metadata, source = read_log_metadata(path, 0)

    assert [(0x1234, 0, 1028, 41)] == list(
        zip(*(c.tolist() for c in (batch.ledger_id, batch.entry_id, batch.position, batch.size)))
    )
    assert ([-1], [5]) == tuple(column.tolist() for column in batch.lac_and_length())
    assert ("map", 45, {LEDGER: 45}) == (source, metadata.total_size, metadata.ledgers)


def test_page_map_of_version_2() -> None:
    """A map with another scope names the scope of each ledger, 0 too; both ways."""
    shown = shown_bytes(PAGE, "map-version-2")
    sizes = {LEDGER: 45, SCOPED: 54}

    assert shown == entrylog.encode_ledgers_map(sizes)
    assert sizes == dict(entrylog.decode_map_batch(shown[4:]))


def test_page_direct_header() -> None:
    """The direct-IO logger's header is 4096 bytes, the filler an entry of ledger -1."""
    shown = shown_bytes(PAGE, "direct-header")

    assert 4096 == len(shown)
    assert shown == entrylog.encode_header(LogHeader(), direct=True)


def test_page_metadata() -> None:
    """The page's metadata row encodes and decodes."""
    metadata = LogMetadata(5)
    metadata.add_all([(LEDGER, 300), (LedgerId.of(9), 100)])
    metadata.remove_ledger(LedgerId.of(9))

    assert 0.75 == metadata.usage
    assert shown_bytes(PAGE, "metadata") == metadata.to_bytes()
    assert metadata == LogMetadata.from_bytes(shown_bytes(PAGE, "metadata"))


# -- names and headers


@pytest.mark.parametrize(
    ("name", "log_id"),
    [
        ("0.log", 0),
        ("a.log", 10),
        ("7fffffff.log", 2**31 - 1),
        ("80000000.log", None),
        ("0a.log", None),
        ("A.log", None),
        (".log", None),
        ("1.log.compacting", None),
        ("x.log", None),
    ],
)
def test_names(name: str, log_id: int | None) -> None:
    """Lower-case hex without padding, 31 bits, and nothing else is an entry log's name."""
    assert log_id == entrylog.parse_log_name(name)
    if log_id is not None:
        assert name == entrylog.log_name(log_id)


@given(
    st.builds(LogHeader, st.integers(0, 2), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
    st.booleans(),
)
def test_headers(header: LogHeader, direct: bool) -> None:
    """Signature, version, map offset, ledgers; zeros up to 1024; both ways."""
    data = entrylog.encode_header(header, direct)
    fields = struct.pack(">4siqi", b"BKLO", header.version, header.map_offset, header.ledger_count)

    assert fields == data[:20]
    assert bytes(1004) == data[20:1024]
    assert (4096 if direct else 1024) == len(data)
    assert header == entrylog.decode_header(data)
    assert data[8:20] == entrylog.encode_map_fields(header.map_offset, header.ledger_count)


def test_headers_that_are_none() -> None:
    """Short ones, other signatures and unknown versions are refused."""
    data = entrylog.encode_header(LogHeader())
    with pytest.raises(CorruptionError, match="needs 1024"):
        entrylog.decode_header(data[:19])
    with pytest.raises(CorruptionError, match="signature is 424b4c47"):
        entrylog.decode_header(b"BKLG" + data[4:])
    for version in (3, -1):
        with pytest.raises(UnsupportedLayout, match=f"version {version}"):
            entrylog.decode_header(data[:4] + version.to_bytes(4, "big", signed=True) + data[8:])


# -- ledgers maps and metadata


def _batches(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 25_000])
@pytest.mark.parametrize("scope", [0, 3])
def test_ledgers_map(count: int, scope: int) -> None:
    """At most 10000 ledgers a batch, ids (-1, -2) or (-1, -3), 16 or 24 bytes a ledger."""
    sizes = {LedgerId(scope, 7 * n): 100 + n for n in range(count)}
    batches = _batches(entrylog.encode_ledgers_map(sizes))
    width = 24 if scope else 16

    assert [min(10_000, count - at) for at in range(0, count, 10_000)] == [
        struct.unpack_from(">i", batch, 16)[0] for batch in batches
    ]
    for batch in batches:
        assert (-1, -3 if scope else -2) == struct.unpack_from(">qq", batch)
        assert 20 + width * struct.unpack_from(">i", batch, 16)[0] == len(batch)
    assert sizes == {k: v for batch in batches for k, v in entrylog.decode_map_batch(batch)}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (struct.pack(">qq", -1, -2), "16 bytes"),
        (struct.pack(">qqi", 1, -2, 0), "not those of a ledgers map"),
        (struct.pack(">qqi", -1, -4, 0), "not those of a ledgers map"),
        (struct.pack(">qqi", -1, -2, -1), "-1 ledgers"),
        (struct.pack(">qqiqq", -1, -2, 2, 7, 1), "2 ledgers has 36 bytes"),
        (struct.pack(">qqiqqq", -1, -2, 1, 7, 1, 0), "1 ledgers has 44 bytes"),
        (struct.pack(">qqiqq", -1, -2, 1, -7, 1), "names ledger or size"),
        (struct.pack(">qqiqq", -1, -2, 1, 7, -1), "names ledger or size"),
        (struct.pack(">qqiqqq", -1, -3, 1, 0, -7, 1), "names ledger or size"),
        (struct.pack(">qqiqqq", -1, -3, 1, 1, -7, -1), "names ledger or size"),
    ],
)
def test_batches_that_are_none(fields: bytes, reason: str) -> None:
    """Ids, counts, lengths, ledgers and sizes that cannot be are `CorruptionError`."""
    with pytest.raises(CorruptionError, match=reason):
        entrylog.decode_map_batch(fields)


def test_metadata_that_is_none() -> None:
    """Rows of another version, length or with negative numbers are refused, and so are scopes."""
    row = LogMetadata(1, 10, 10, {LEDGER: 10}).to_bytes()
    bad = [row[:33], row[:-1], row + b"\0", b"\0\1" + row[2:]]
    bad += [row[:at] + b"\xff" + row[at + 1 :] for at in (2, 10, 18, 26, 34, 42)]
    for data in bad:
        with pytest.raises(CorruptionError):
            LogMetadata.from_bytes(data)
    with pytest.raises(UnsupportedLayout, match="scope"):
        LogMetadata(1, 10, 10, {SCOPED: 10}).to_bytes()


@given(st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**40), max_size=20))
def test_metadata_round_trip(sizes: dict[int, int]) -> None:
    """Any metadata come back from their bytes."""
    metadata = LogMetadata(77)
    metadata.add_all((LedgerId.of(ledger), size) for ledger, size in sizes.items())

    assert sum(sizes.values()) == metadata.total_size == metadata.remaining_size
    assert metadata == LogMetadata.from_bytes(metadata.to_bytes())


# -- scanning what is written


@pytest.mark.parametrize("names", [[LEDGER], [SCOPED], [LEDGER, SCOPED, LedgerId(1, 0)]])
@pytest.mark.parametrize("closed", [False, True])
def test_scan_of_what_is_written(tmp_path: Path, names: list[LedgerId], closed: bool) -> None:
    """A log scans to the records that were added, at their locations, closed or not."""
    added: dict[int, bytes] = {}
    with EntryLogger([tmp_path]) as logger:
        for entry in range(300):
            name = names[entry % len(names)]
            record = encode(Entry(name, entry, entry - 1, 0, b"p" * (entry % 90)), "CRC32C")
            added[logger.add(name, record)] = record
        if closed:
            logger.roll()
        logger.write_buffered()
    path, findings = tmp_path / "0.log", list[Finding]()
    found = {
        int(batch.position[at]): batch.record(at)
        for batch in scan_log(path, findings)
        for at in range(len(batch))
    }
    metadata, source = read_log_metadata(path, 0, findings)
    sizes = {
        name: sum(4 + len(r) for r in list(added.values())[at :: len(names)])
        for at, name in enumerate(names)
    }

    assert added == found
    assert ("map" if closed else "scan") == source
    assert sizes == metadata.ledgers
    assert [] == findings


@pytest.mark.parametrize("scope", [0, 5])
@pytest.mark.parametrize("more", [0, 1, 2**40])
def test_map_that_counts_more_than_there_is(tmp_path: Path, scope: int, more: int) -> None:
    """A ledgers map with more bytes than lie before it is broken: the records are counted."""
    name = LedgerId(scope, 7)
    records = [encode(Entry(name, entry, -1, 0, b"x" * 40), "DUMMY") for entry in range(3)]
    body = b"".join(struct.pack(">i", len(record)) + record for record in records)
    header = LogHeader(2 if scope else 1, 1024 + len(body), 1)
    ledgers_map = entrylog.encode_ledgers_map({name: len(body) + more})
    path = tmp_path / "0.log"
    path.write_bytes(entrylog.encode_header(header) + body + ledgers_map)
    findings: list[Finding] = []
    metadata, source = read_log_metadata(path, 0, findings)

    assert ({name: len(body)}, "scan" if more else "map") == (metadata.ledgers, source)
    assert [("oddity", str(path), 1024 + len(body))] * bool(more) == [
        (found.severity, found.file, found.offset) for found in findings
    ]
    assert all(
        f"counts {len(body) + more} bytes, {len(body)} precede it" in f.detail for f in findings
    )


def test_accept(tmp_path: Path) -> None:
    """Only accepted ledgers come, and each is asked for once."""
    names, asked = [LEDGER, SCOPED, LedgerId(1, 0)], list[LedgerId]()
    with EntryLogger([tmp_path]) as logger:
        for entry in range(300):
            name = names[entry % 3]
            logger.add(name, encode(Entry(name, entry, -1, 0, b""), "DUMMY"))
        logger.write_buffered()

    def accept(name: LedgerId) -> bool:
        asked.append(name)
        return name == SCOPED

    batches = list(scan_log(tmp_path / "0.log", None, accept))

    assert set(names) == set(asked)
    assert 3 == len(asked)
    assert list(range(1, 300, 3)) == [e for batch in batches for e in batch.entry_id.tolist()]
    assert {SCOPED} == {name for batch in batches for name, _ in batch.ledgers()}


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_bookie_dir_reads(tmp_path: Path, storage: str) -> None:
    """`BookieDir` reads what a storage wrote: one by one, in batches, by log; scopes too."""
    records: dict[LedgerId, list[bytes]] = {}
    with LedgerStorage.open(tmp_path, storage) as written:  # type: ignore[arg-type]
        for name in (LEDGER, SCOPED):
            records[name] = [
                encode(Entry(name, n, n - 1, 0, b"p" * n), "CRC32C") for n in range(400)
            ]
            written.add_entries(records[name], master_key=b"k" * 20)
    with BookieDir(tmp_path) as bookie:
        for name, expected in records.items():
            assert expected == [bookie.read_entry(name, n) for n in range(400)]
            assert expected[-1] == bookie.read_entry(name)
            assert expected == bookie.read_entries(name, 0).records()
            assert expected[300:310] == bookie.read_entries(name, 300, 10).records()
            assert expected[5:6] == bookie.read_entries(name, 5, 0, 1).records()
            assert expected[-1:] == bookie.read_entries(name, -1).records()
            assert expected[7:9] == [
                r for batch in bookie.scan_ledger(name, 7, 8) for r in batch.records()
            ]
        assert 800 == sum(
            len(batch) for log in bookie.entry_logs for batch in bookie.scan_log(log.log_id)
        )
        metadata = [bookie.log_metadata(log.log_id)[0] for log in bookie.entry_logs]

        assert {n: sum(4 + len(r) for r in records[n]) for n in records} == {
            n: sum(m.ledgers.get(n, 0) for m in metadata) for n in records
        }
        assert {} == bookie.metadata_cache()
        for wrong in (lambda: bookie.log_file(99), lambda: bookie.metadata_cache(1)):
            with pytest.raises(InvalidArgument):
                wrong()
