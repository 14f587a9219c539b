"""Damaged index files, and the decoders of small formats under arbitrary bytes.

Rule of the family: the right answer or one `CorruptionError` with file and offset; never
another exception, never fewer entries than there are, never "not found", nothing modified.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from bkstore import Availability, BkstoreError, CorruptionError, UnsupportedLayout, open_index
from bkstore.formats import cookie, ledgerdata
from bkstore.formats.idxfile import HEADER_SIZE, IdxHeader, decode_header, encode_header
from bkstore.index.api import EntryIndex, Finding, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex

_T = TypeVar("_T")

KEY, LAC = b"k" * 20, b"\1" * 36
FIELDS = {"signature": (0, 4), "version": (4, 4), "key length": (8, 4), "LAC length": (36, 4)}
LEDGER, LAST = 7, 2500

PATHS: dict[str, Callable[[EntryIndex], object]] = {
    "entries": lambda index: index.entries(LEDGER).tolist(),
    "availability": lambda index: index.availability(LEDGER).ranges().tolist(),
    "items": lambda index: [column.tolist() for column in index.items(LEDGER)],
    "last_entry": lambda index: index.last_entry(LEDGER),
    "get": lambda index: index.get(LEDGER, LAST),
    "get_many": lambda index: index.get_many(LEDGER, [0, LAST]).tolist(),
    "scan": lambda index: [batch.entry_id.tolist() for batch in index.scan()],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the index file of ledger 7 with 2501 entries, key and explicit LAC."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(LEDGER, range(LAST + 1), range(1028, 1029 + LAST))
        index.put_many(8, [0], [1028])
        index.set_state(LEDGER, LedgerState(KEY, True, False, LAC))
    return tmp_path / "current" / "0" / "7" / "7.idx"


def _refusal(file: Path, path: str) -> CorruptionError:
    before = file.read_bytes()
    with open_index(file.parents[3]) as index, pytest.raises(CorruptionError) as caught:
        PATHS[path](index)

    assert str(file) == caught.value.file
    assert before == file.read_bytes()
    return caught.value


def _patch(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(data)


# -- the header


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("path", PATHS)
def test_header_cut_off(file: Path, field: str, path: str) -> None:
    """A file that ends in any header field is refused at the place where it ends."""
    size = FIELDS[field][0] + 2
    os.truncate(file, size)

    assert size == _refusal(file, path).offset


@pytest.mark.parametrize("size", [0, 12, 32, 40, 1023])
def test_header_shorter_than_its_block(file: Path, size: int) -> None:
    """The header is one block of 1024 bytes: a shorter file is never taken for an empty one."""
    os.truncate(file, size)

    assert size == _refusal(file, "entries").offset


@pytest.mark.parametrize(
    ("field", "data", "offset"),
    [
        ("signature", bytes(4), 0),
        ("signature", b"BKLF", 0),
        ("signature", b"\xff" * 4, 0),
        ("version", b"\0\0\0\2", 4),
        ("version", b"\x80\0\0\1", 4),
        ("version", b"\x7f\xff\xff\xff", 4),
        ("key length", bytes(4), 16),  # the key is read as state bits and LAC length
        ("key length", b"\x80\0\0\x14", 8),
        ("key length", b"\0\0\4\0", 8),
        ("key length", b"\x7f\xff\xff\xff", 8),
        ("key length", struct.pack(">i", 1024 - 12), 1024),
        ("LAC length", b"\0\0\0\1", 36),
        ("LAC length", b"\0\0\0\x0f", 36),
        ("LAC length", b"\x80\0\0\x24", 36),
        ("LAC length", b"\0\0\3\xd9", 36),
        ("LAC length", b"\x7f\xff\xff\xff", 36),
    ],
)
def test_header_field_damaged(file: Path, field: str, data: bytes, offset: int) -> None:
    """A zeroed, flipped or oversize header field is refused at its own offset."""
    _patch(file, FIELDS[field][0], data)

    assert offset == _refusal(file, "availability").offset


def test_state_is_refused_with_the_header(file: Path) -> None:
    """A ledger whose header is damaged is not an unknown ledger."""
    _patch(file, 0, b"\0")
    with open_index(file.parents[3]) as index, pytest.raises(CorruptionError) as caught:
        index.state(LEDGER)

    assert (str(file), 0) == (caught.value.file, caught.value.offset)


def test_damage_is_refused_every_time(file: Path) -> None:
    """A second access to a damaged file fails like the first (upstream's does not)."""
    _patch(file, 4, b"\xff" * 4)
    with open_index(file.parents[3]) as index:
        for _ in range(3):
            with pytest.raises(CorruptionError, match="version"):
                index.entries(LEDGER)


# -- pages


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("extra", [1, 7])
def test_file_ends_inside_a_slot(file: Path, path: str, extra: int) -> None:
    """A file that ends inside the slot of its last entry is refused by all that reach it."""
    end = HEADER_SIZE + 8 * LAST
    os.truncate(file, end + extra)

    assert end == _refusal(file, path).offset


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [-1, -(2**63)])
def test_negative_location(file: Path, path: str, value: int) -> None:
    """A location with the sign bit set is damage, not an entry and not a gap."""
    at = HEADER_SIZE + 8 * LAST
    _patch(file, at, struct.pack(">q", value))

    assert at == _refusal(file, path).offset


@pytest.mark.parametrize("entry", [0, 1023, 1024, 1200, LAST])
def test_damage_at_any_page_border(file: Path, entry: int) -> None:
    """The first, a middle and the last slot are all looked at."""
    _patch(file, HEADER_SIZE + 8 * entry, b"\x80")

    assert HEADER_SIZE + 8 * entry == _refusal(file, "entries").offset


def test_scan_goes_on_behind_damage(file: Path) -> None:
    """A bulk read names the damaged file and still yields the other ledgers."""
    _patch(file, 0, b"\0")
    findings: list[Finding] = []
    with open_index(file.parents[3]) as index:
        found = [int(row) for batch in index.scan(10, findings) for row in batch.ledger_id]

    assert [8] == found
    assert [(str(file), 0, "damage")] == [(f.file, f.offset, f.severity) for f in findings]


def test_huge_hole_costs_nothing(file: Path) -> None:
    """An oversize sparse file is answered from its data: no memory, no walk over the hole."""
    os.truncate(file, HEADER_SIZE + 8 * 2**36)
    with open_index(file.parents[3]) as index:
        assert list(range(LAST + 1)) == index.entries(LEDGER).tolist()
        assert LAST == index.last_entry(LEDGER)
        assert index.get(LEDGER, 2**36 - 1) is None
        assert [0] == index.get_many(LEDGER, [2**35]).tolist()


# -- what is no file


def test_folder_in_the_place_of_a_file(file: Path) -> None:
    """A folder named like an index file is an error that names it."""
    file.unlink()
    file.mkdir()

    with open_index(file.parents[3]) as index, pytest.raises(CorruptionError) as caught:
        index.entries(LEDGER)

    assert str(file) == caught.value.file


def test_pipe_in_the_place_of_a_file(file: Path) -> None:
    """A named pipe does not block the reader."""
    file.unlink()
    os.mkfifo(file)

    with open_index(file.parents[3]) as index, pytest.raises(BkstoreError, match=r"7\.idx"):
        index.entries(LEDGER)


@pytest.mark.parametrize("listed", [False, True])
def test_link_to_nowhere(file: Path, listed: bool) -> None:
    """A dangling link is not "no such ledger", whether or not the tree was listed before."""
    file.unlink()
    file.symlink_to("nowhere")
    with open_index(file.parents[3]) as index:
        if listed:
            index.ledgers()
        with pytest.raises(BkstoreError, match=r"7\.idx"):
            index.entries(LEDGER)
        with pytest.raises(BkstoreError, match=r"7\.idx"):
            list(index.scan())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", CorruptionError),
        (b"BKSTORE-128\n\xff", CorruptionError),
        (b"BKSTORE-129\n1\n", CorruptionError),
        (b"BKSTORE-128\n-1\n", CorruptionError),
        (b"BKSTORE-128\n2\n", UnsupportedLayout),
        (b"BKSTORE-128\n" + b"9" * 5000 + b"\n", UnsupportedLayout),
    ],
)
def test_marker_damaged(file: Path, text: bytes, error: type[BkstoreError]) -> None:
    """A marker that does not say a version we know stops the opening."""
    (file.parents[2] / "BKSTORE-128").write_bytes(text)

    with pytest.raises(error, match="BKSTORE-128"):
        open_index(file.parents[3])


# -- arbitrary bytes


def _mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """Bytes near a valid encoding: some replaced, then cut."""
    places = st.dictionaries(st.integers(0, len(valid) - 1), st.integers(0, 255), max_size=6)

    def mutate(changes: dict[int, int], size: int) -> bytes:
        data = bytearray(valid)
        for at, value in changes.items():
            data[at] = value
        return bytes(data[:size])

    return st.builds(mutate, places, st.integers(0, len(valid)) | st.just(len(valid)))


VALID_HEADER = encode_header(IdxHeader(KEY, 1, LAC))
VALID_AVAILABILITY = Availability.from_entries([0, 1, 3, 4, 6, 7, 100, 200, 201]).to_bytes()
VALID_ROW = ledgerdata.encode(ledgerdata.LedgerData(KEY, True, LAC, True))
VALID_COOKIE = (
    b'4\nbookieHost: "b:1"\njournalDir: "/j"\nledgerDirs: "2\\t/a\\t/b"\nindexDirs: "1\\t/a"\n'
)


def _tried(act: Callable[[], _T]) -> tuple[_T | None, CorruptionError | None]:
    """Return (result, None) or (None, the refusal); any other exception is a failure."""
    try:
        return act(), None
    except CorruptionError as error:
        return None, error


@given(st.binary(max_size=1100) | _mutated(VALID_HEADER))
def test_any_bytes_as_header(data: bytes) -> None:
    """Arbitrary bytes are a header, or a `CorruptionError` with an offset inside the block."""
    header, error = _tried(lambda: decode_header(data))

    assert header is None or header == decode_header(encode_header(header))
    assert error is None or (error.offset is not None and 0 <= error.offset <= HEADER_SIZE)


@given(st.binary(max_size=300) | _mutated(VALID_AVAILABILITY))
def test_any_bytes_as_availability(data: bytes) -> None:
    """Arbitrary bytes are an availability, or a `CorruptionError` inside the bytes."""
    found, error = _tried(lambda: Availability.from_bytes(data))

    assert found is None or found == Availability.from_bytes(found.to_bytes())
    assert error is None or (error.offset is not None and 0 <= error.offset <= len(data))


@given(st.binary(max_size=120) | _mutated(VALID_ROW))
def test_any_bytes_as_ledger_row(data: bytes) -> None:
    """Arbitrary bytes are a ledger row, or a `CorruptionError`; fields that are not known, a
    known number of another wire type among them, are told and not written again."""
    row, error = _tried(lambda: ledgerdata.decode(data))

    if row is not None:
        assert replace(row, unknown_fields=()) == ledgerdata.decode(ledgerdata.encode(row))
    assert error is None or "LedgerData" in error.reason


@given(st.binary(max_size=120) | _mutated(VALID_COOKIE))
@example(b"9" * 5000 + b"\n")
@example(b"3\nb\n/j\n" + b"9" * 5000 + b"\t/a\n")
@example("\u0664\nbookieHost: 'b'\n".encode())
@example(b'4\nbookieHost: "\\xff\\xfe"\njournalDir: "/j"\nledgerDirs: "1\\t/a"\n')
@example(b'4\nledgerDirs: "1\\t/a"\n')
@example(b"4\n" + b"a {" * 500)
@example(b'4\nbookieHost: "\\q"\n')
@example(b'4\nbookieHost: "\\ud800"\n')
@example(b"4\nbookieHost: '\\\xc3\xa4'\n")
def test_any_bytes_as_cookie(data: bytes) -> None:
    """Arbitrary bytes are a cookie with directories, or a `CorruptionError`."""
    found, error = _tried(lambda: cookie.decode(data))

    assert found is None or found.version in (3, 4, 5)
    assert error is None or "cookie" in error.reason


@given(_mutated(VALID_HEADER + np.arange(1028, 1128, dtype=">i8").tobytes()))
def test_any_bytes_as_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """All paths agree about a damaged file: the same entries, or a refusal."""
    top = tmp_path_factory.mktemp("file")
    file = top / "current" / "0" / "7" / "7.idx"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    with open_index(top) as index:
        entries, error = _tried(lambda: index.entries(LEDGER).tolist())
        available, _ = _tried(lambda: index.availability(LEDGER).entries().tolist())
        items, _ = _tried(lambda: index.items(LEDGER)[0].tolist())
        scanned, _ = _tried(lambda: [e for part in index.scan() for e in part.entry_id.tolist()])
        last, _ = _tried(lambda: index.last_entry(LEDGER))

    assert [entries] * 3 == [available, items, scanned]
    assert error is not None or (entries or [None])[-1] == last
    assert data == file.read_bytes()
