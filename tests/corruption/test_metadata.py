"""Damaged ledger metadata: serialized forms, marks, metadata files, value files, dumps.

Rule of the family: the right answer or one `CorruptionError` with the file and a reason; never
another exception, never "no such ledger", nothing modified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from bkstore.cluster import DirectoryStore, MetadataStore, open_metadata
from bkstore.cluster.store.directory_values import decode_value, encode_value
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from bkstore.formats.metadata.serialized import decode, encode
from bkstore.formats.metadata.store_paths import long_path, tree_path
from bkstore.formats.metadata.underreplication import UnderreplicatedMark, decode_mark, mark_path
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

MADE = LedgerMetadata(
    LedgerId.of(7),
    2,
    2,
    1,
    (Segment(0, ("b1:3181", "b2:3181")), Segment(5, ("b1:3181", "b\u00e4"))),
    state="CLOSED",
    last_entry_id=9,
    length=1000,
    digest_type="CRC32C",
    password=b"p\x00w",
    ctime=1_700_000_000_000,
    store_ctime=True,
    custom_metadata={"application": b"a\x08"},
)
HEAD = 30  # bytes of the header line
FORMS = {version: encode(MADE, version) for version in (1, 2, 3)}
FILE = encode_file(
    ClusterMetadata((MADE,), frozenset({"b1"}), None, {MADE.ledger: UnderreplicatedMark(1.0)})
)

versions = pytest.mark.parametrize("version", FORMS)


def _answer(read: Callable[[bytes], object], data: bytes) -> object:
    """Return what is read, or None where a `CorruptionError` with a reason comes."""
    try:
        return read(data)
    except CorruptionError as error:
        found = error

    assert found.reason
    assert found.offset is None or 0 <= found.offset <= len(data)
    return None


def _cuts(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((size, data[:size]) for size in range(len(data)))


def test_truncated_version_3() -> None:
    """Version 3 says its length: cut anywhere, it is refused."""
    for size, data in _cuts(FORMS[3]):
        assert _answer(lambda data: decode(data, 7), data) is None, size


def _parts(version: int) -> dict[int, LedgerMetadata]:
    """Return what the text forms of `MADE` say up to the end of a line or of a segment, by size.

    Told from the rules of the forms: what was not said yet has its default.
    """
    whole = FORMS[version]
    said: list[tuple[bytes, LedgerMetadata]] = []
    part = LedgerMetadata(LedgerId.of(7), 2, 2, 2, MADE.segments[:1], version=version)
    if version == 1:
        said.append((b"b2:3181\n", part))
        said.append((b"b\xc3\xa4\n", replace(part, segments=MADE.segments)))
    else:
        part = replace(part, state="CLOSED", last_entry_id=9, length=1000)
        said.append((b"firstEntryId: 0\n}\n", part))
        for end, change in (
            (b"firstEntryId: 5\n}\n", {"segments": MADE.segments}),
            (b"CRC32C\n", {"digest_type": "CRC32C"}),
            (b'w"\n', {"password": MADE.password}),
            (b"ackQuorumSize: 1\n", {"ack_quorum_size": 1}),
            (b"ctime: 1700000000000\n", {"ctime": MADE.ctime, "store_ctime": True}),
        ):
            part = replace(part, **change)  # type: ignore[arg-type]
            said.append((end, part))
    return {whole.index(end) + len(end): value for end, value in said}


def _is_kept(found: object, version: int) -> bool:
    """Whether what was read can be written, and reads back as the same.

    Version 1 cannot hold a bookie that is named as its last line is.
    """
    assert isinstance(found, LedgerMetadata)
    assert (LedgerId.of(7), version) == (found.ledger, found.version)
    if version == 1 and "CLOSED" in {name for part in found.segments for name in part.ensemble}:
        with pytest.raises(InvalidArgument, match="CLOSED"):
            encode(found, version)
        return True
    return found == decode(encode(found, version, incomplete=True), 7)


@pytest.mark.parametrize("version", [1, 2])
def test_truncated(version: int) -> None:
    """Text forms have no length: cut behind a line, they say what is before it.

    Cut elsewhere they are refused, or read as what such a text says.
    """
    parts, refused = _parts(version), 0
    for size, data in _cuts(FORMS[version]):
        found = _answer(lambda data: decode(data, 7), data)
        if size in parts:
            assert parts[size] == found, size
        elif found is None:
            refused += 1
        else:
            assert size > HEAD
            assert _is_kept(found, version)

    assert refused > HEAD


@versions
def test_flipped(version: int) -> None:
    """A flipped byte gives other metadata or a `CorruptionError`, in the header always the latter.

    The same metadata only where a line end becomes other white space, or a bit that counts for
    nothing in the form.
    """
    whole, read, same = FORMS[version], 0, list[int]()
    for at in range(len(whole)):
        for mask in (1, 0x20, 0x80, 0xFF):
            data = whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :]
            found = _answer(lambda data: decode(data, 7), data)
            if found is None:
                continue
            assert at >= HEAD - 2
            assert _is_kept(found, version)
            read += 1
            if found == decode(whole, 7):
                same.append(at)

    assert read
    assert all(whole[at : at + 1] == b"\n" for at in same) or version == 3


@versions
def test_zeroed(version: int) -> None:
    """Zeros from anywhere in the body on are refused, or leave a shorter text that still reads."""
    whole = FORMS[version]
    for at in range(len(whole)):
        data = whole[:at] + bytes(len(whole) - at)
        found = _answer(lambda data: decode(data, 7), data)

        assert found is None or data == whole or version != 3


@pytest.mark.parametrize("size", [0, 1, 90, 91 * 2, 2**28, 2**31, 2**32 - 1, 2**63])
def test_length_of_version_3(size: int) -> None:
    """A length that is not that of the bytes is refused before anything is allocated."""
    varint = bytearray()
    rest = size
    while rest > 127:
        varint.append(rest & 127 | 128)
        rest >>= 7
    data = FORMS[3][:HEAD] + bytes([*varint, rest]) + FORMS[3][HEAD + 1 :]
    with pytest.raises(CorruptionError) as caught:
        decode(data, 7)

    assert HEAD == caught.value.offset


def test_bytes_behind_version_3() -> None:
    """More bytes than the length says are refused: something has written over the value."""
    with pytest.raises(CorruptionError, match="are there"):
        decode(FORMS[3] + b"\0", 7)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"BookieMetadata", 14),
        (b"BookieMetadataFormatVersiom\t3\n", 26),
        (b"BookieMetadataFormatVersion\t", 28),
        (b"BookieMetadataFormatVersion\t3", 28),
        (b"BookieMetadataFormatVersion\t\n", 28),
        (b"BookieMetadataFormatVersion\t 3\n", 28),
        (b"BookieMetadataFormatVersion\t0000000003\n", 28),
        (b"BookieMetadataFormatVersion\t1\nx\n", 30),
        (b"BookieMetadataFormatVersion\t1\n2\n2147483648\n", 32),
        (b"BookieMetadataFormatVersion\t1\n2\n3\n9223372036854775808\n", 34),
        (b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\n", 36),
        (b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\tb\n\n", 40),
        (b"BookieMetadataFormatVersion\t1\n2\n3\n0\nx\tb\n", 36),
        (b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\t\xff\n", 38),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: x\n", 44),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: \xff\n", 42),
        (b"BookieMetadataFormatVersion\t2\npassword: '\\777'\n", 41),
        (b"BookieMetadataFormatVersion\t2\npassword: '\\\\\\.'\n", 43),
        (b"BookieMetadataFormatVersion\t3\n", 30),
        (b"BookieMetadataFormatVersion\t3\n\x01\xff", 31),
    ],
    ids=repr,
)
def test_where_it_is_wrong(data: bytes, offset: int) -> None:
    """The offset is that of the first wrong byte, or of the line or part that has it."""
    with pytest.raises(CorruptionError) as caught:
        decode(data, 7)

    assert offset == caught.value.offset


@given(st.sampled_from(sorted(FORMS)), st.binary(max_size=200))
@example(2, b"segment {" * 40)
@example(2, b'password: "\\777"')
@example(2, b"length: " + b"9" * 5000)
def test_arbitrary_bodies(version: int, body: bytes) -> None:
    """Any body is metadata or a `CorruptionError`."""
    head = FORMS[version][:HEAD]
    lead = bytes([len(body)]) if version == 3 and len(body) < 128 else b""

    _answer(lambda data: decode(data, 7), head + lead + body)


@settings(max_examples=60)
@given(st.binary(max_size=120) | st.text(max_size=60).map(str.encode))
def test_arbitrary_marks_and_files(data: bytes) -> None:
    """Any bytes are a mark or a metadata file, or a `CorruptionError`."""
    _answer(decode_mark, data)
    _answer(decode_file, data)


def _differences(found: ClusterMetadata) -> list[str]:
    """Return the fields of the file, and of its ledger, that are not as in `FILE`."""
    whole = decode_file(FILE)
    pairs = [(whole, found), (whole.ledgers[0], found.ledgers[0])]
    names = [
        name
        for one, other in pairs
        for name in (field.name for field in fields(one))
        if name != "ledgers" and getattr(one, name) != getattr(other, name)
    ]

    assert 1 == len(found.ledgers)
    return names


def test_file_cut_or_flipped() -> None:
    """A metadata file that is cut is refused; flipped, it is refused or says one thing less or
    otherwise: a key that nobody knows is skipped."""
    for size, data in _cuts(FILE.rstrip()):
        assert _answer(decode_file, data) is None, size
    refused = 0
    for at in range(0, len(FILE), 3):
        data = FILE[:at] + bytes([FILE[at] ^ 0x41]) + FILE[at + 1 :]
        found = _answer(decode_file, data)
        if found is None:
            refused += 1
        else:
            assert isinstance(found, ClusterMetadata)
            assert len(_differences(found)) <= 1

    assert refused


# -- value files


def test_every_flip_of_a_value_file() -> None:
    """Every flipped bit of a value file is found, by its checksum or before that."""
    key = tree_path(7)
    whole = encode_value(key, 3, FORMS[3])

    assert (FORMS[3], 3) == decode_value(key, whole)[:2]
    for at in range(len(whole)):
        for bit in range(8):
            data = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            try:
                found = decode_value(key, data)
            except (CorruptionError, UnsupportedLayout):
                continue
            raise AssertionError(f"bit {bit} of byte {at}: {found}")
    for size, data in _cuts(whole):
        with pytest.raises(CorruptionError):
            decode_value(key, data)
        assert size < len(whole)


def test_value_file_in_another_place() -> None:
    """A value file that was moved to another ledger's path is found out."""
    whole = encode_value(tree_path(7), 3, FORMS[3])
    with pytest.raises(CorruptionError, match="checksum of key"):
        decode_value(tree_path(8), whole)


@pytest.fixture(params=["store", "dump", "file"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Return (what is opened, a file of it whose last half is zeros)."""
    top, kind = tmp_path / "m", request.param
    if kind == "store":
        store = DirectoryStore(top)
        store.create(MADE)
        store.create(replace(MADE, ledger=LedgerId.of(8)))
        file = Path(f"{top}{tree_path(7)}")
    elif kind == "dump":
        for name in (7, 8):
            file = Path(f"{top}{long_path(name)}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(FORMS[3])
        file = Path(f"{top}{long_path(7)}")
    else:
        file = top
        file.write_bytes(FILE)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    return top, file


def test_damaged_file_is_named(damaged: tuple[Path, Path]) -> None:
    """The error names the file; a damaged ledger is listed, and others are read as ever."""
    path, file = damaged
    if path == file:
        with pytest.raises(CorruptionError) as caught:
            open_metadata(path)

        assert str(file) == caught.value.file
        return
    store = open_metadata(path)

    assert [7, 8] == [name.ledger for name in store.ledgers()]
    assert 1000 == store.read(8).metadata.length
    with pytest.raises(CorruptionError) as caught:
        store.read(7)
    assert str(file) == caught.value.file
    assert caught.value.offset is not None


def test_offset_counts_from_the_file(tmp_path: Path) -> None:
    """In a value file the offset of what is wrong counts the line before the value too."""
    store = DirectoryStore(tmp_path / "s")
    store._values.put(tree_path(7), b"BookieMetadataFormatVersion\tx\n", None)
    file = Path(f"{tmp_path}/s{tree_path(7)}")
    with pytest.raises(CorruptionError) as caught:
        store.read(7)

    assert file.read_bytes().index(b"x\n") == caught.value.offset
    assert str(file) == caught.value.file


def test_damaged_marks_counters_and_times(tmp_path: Path) -> None:
    """A mark, counter or time that is none is an error with its file, not "no mark"."""
    store = DirectoryStore(tmp_path / "s")
    keys = {
        mark_path(7): lambda: store.mark_of(7),
        "/idgen/0000000000000000": store.next_id,
        "/underreplication/replicascheckctime": store.checked_at,
    }
    for key, call in keys.items():
        store._values.put(key, b"replica: x", None)
        with pytest.raises(CorruptionError) as caught:
            call()

        assert f"{tmp_path}/s{key}" == caught.value.file
    with pytest.raises(CorruptionError):
        store.underreplicated()


def test_folder_in_a_file_s_place(tmp_path: Path) -> None:
    """A folder where a ledger's file belongs is an error, not "no such ledger"."""
    store: MetadataStore = DirectoryStore(tmp_path / "s")
    Path(f"{tmp_path}/s{tree_path(7)}").mkdir(parents=True)
    with pytest.raises(BkstoreError, match="cannot be read"):
        store.read(7)


def test_numbers_that_no_store_keeps(tmp_path: Path) -> None:
    """A file with a number beyond what metadata can hold is refused with its name."""
    path = tmp_path / "metadata.json"
    path.write_bytes(encode_file(ClusterMetadata((replace(MADE, ensemble_size=2**40),))))
    with pytest.raises(CorruptionError, match=r"metadata\.json: ledger 7: "):
        open_metadata(path)
