"""JournalWriter: its bytes against an oracle built from the rules on `docs/formats/journal.md`."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.errors import BkstoreError, InvalidArgument, WriteFailed
from bkstore.files.disk_changes import Files
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import encode_record
from bkstore.storage.journal import (
    JournalWriter,
    LogMark,
    list_journal_files,
    scan_journal,
)
from bkstore.testing.faults import FaultPlan
from tests.storage.journal.journal_disk import record_of, records_in

HEADERS = {
    4: bytes.fromhex("424b4c47 00000004"),
    5: bytes.fromhex("424b4c47 00000005") + bytes(504),
    6: bytes.fromhex("424b4c47 00000006") + bytes(504),
}


def _batch(records: Sequence[bytes], between: bytes = b"") -> RecordBatch:
    """Return records as a batch, with other bytes before each if any are given."""
    sizes = np.array([len(record) for record in records], np.int64)
    offsets = np.cumsum(sizes + len(between)) - sizes
    buffer = b"".join(between + record for record in records)
    return RecordBatch(np.arange(len(records)), buffer, offsets, sizes)


def _framed(records: Sequence[bytes]) -> RecordBatch:
    """Return records as a batch that is framed already."""
    batch = _batch(records, bytes(4))
    return replace(batch, buffer=b"".join(map(encode_record, records)))


def _one_by_one(writer: JournalWriter, records: Sequence[bytes], _: bytes = b"") -> LogMark:
    place = writer.position
    for record in records:
        place = writer.append(record)
    return place


WAYS: dict[str, Callable[..., LogMark]] = {
    "append": _one_by_one,
    "append_many": lambda writer, records, _=b"": writer.append_many(records),
    "append_batch": lambda writer, records, between=b"": writer.append_batch(
        _batch(records, between)
    ),
}
"""How records get into a journal; the last argument may stand between those of a batch."""


class Oracle:
    """The files that a journal of such records and flushes has, by the rules of the format."""

    def __init__(self, version: int, step: int, max_size: int, alignment: int) -> None:
        self.version, self.step, self.max_size = version, step, max_size
        self.alignment = alignment
        self.files = [HEADERS[version]]

    def append(self, record: bytes) -> tuple[int, int]:
        """Return (file number from 0, position behind the record)."""
        self.files[-1] += struct.pack(">i", len(record)) + record
        return len(self.files) - 1, len(self.files[-1])

    def flush(self, roll: bool = True) -> None:
        """Pad as far as the version does, then go on in another file if this one is too large."""
        gap = -len(self.files[-1]) % self.alignment
        if self.version >= 5 and gap:
            gap += self.alignment if gap < 8 else 0
            self.files[-1] += b"\xff\xff\xff\x00" + struct.pack(">i", gap - 8) + bytes(gap - 8)
        if roll and len(self.files[-1]) > self.max_size:
            self.files.append(HEADERS[self.version])

    def on_disk(self) -> list[bytes]:
        """Return the files with the zeros of whole preallocation steps behind their data."""
        if not self.step:
            return self.files
        return [data.ljust(-(-len(data) // self.step) * self.step, b"\0") for data in self.files]


# -- bytes


@given(
    steps=st.lists(st.none() | st.integers(16, 700) | st.integers(2000, 5000), max_size=40),
    version=st.sampled_from([4, 5, 6]),
    preallocate=st.sampled_from([0, 1, 2, 7]),
    alignment=st.sampled_from([512, 1024]),
    max_size=st.integers(512, 12000),
    write_buffer=st.integers(0, 4000),
    way=st.sampled_from(sorted(WAYS)),
)
def test_bytes_are_those_of_the_format(
    steps: list[int | None],
    version: int,
    preallocate: int,
    alignment: int,
    max_size: int,
    write_buffer: int,
    way: str,
) -> None:
    """Header, records, padding, rolls and zeros are the oracle's; a scan gives the records."""
    append = WAYS[way]
    oracle = Oracle(version, preallocate * alignment, max_size, alignment)
    written = []
    with tempfile.TemporaryDirectory() as name:
        with JournalWriter(
            Path(name),
            version=version,
            preallocate=preallocate * alignment,
            alignment=alignment,
            max_size=max_size,
            write_buffer=write_buffer,
            first_id=1,
        ) as writer:
            for number, size in enumerate(steps):
                if size is None:
                    writer.flush(sync=bool(number % 2))
                    oracle.flush()
                else:
                    written.append(record_of(number, size))
                    place = append(writer, written[-1:])
                    file, position = oracle.append(written[-1])

                    assert LogMark(file + 1, position) == place == writer.position
        oracle.flush(roll=False)

        assert list(range(1, len(oracle.files) + 1)) == [
            n for n, _ in list_journal_files(Path(name))
        ]
        assert oracle.on_disk() == [path.read_bytes() for _, path in list_journal_files(Path(name))]
        assert written == records_in(Path(name))


@pytest.mark.parametrize("version", [4, 5, 6])
def test_every_small_gap(tmp_path: Path, version: int) -> None:
    """Whatever gap a record leaves before the boundary, the next one is found behind it."""
    written = [record_of(size, size) for size in range(480, 512) for _ in range(2)]
    with JournalWriter(tmp_path, version=version, preallocate=0) as writer:
        for record in written:
            writer.append(record)
            position = writer.flush(sync=False).position

            assert version == 4 or position % 512 == 0

    assert written == records_in(tmp_path)


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5])
def test_space_left_without_padding(tmp_path: Path, left: int) -> None:
    """In version 4 a record may end any few bytes before the preallocated space does."""
    with JournalWriter(tmp_path, version=4, preallocate=1024, first_id=1) as writer:
        writer.append(record_of(1, 1024 - 8 - 4 - left))

    assert 1024 == (tmp_path / "1.txn").stat().st_size
    assert [record_of(1, 1012 - left)] == records_in(tmp_path)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_special_records(tmp_path: Path, version: int) -> None:
    """Master keys and fences are in every version; explicit LACs leave no trace below 6."""
    with JournalWriter(tmp_path, version=version, preallocate=0, first_id=1) as writer:
        header = len(HEADERS[version])

        assert LogMark(1, header + 27) == writer.append_special("master_key", 7, b"key")
        lac = writer.append_special("explicit_lac", 7, bytes(16))
        assert (None if version < 6 else LogMark(1, header + 67)) == lac
        writer.append_special("fence", 7)
    ((_, path),) = list_journal_files(tmp_path)
    kinds = [record.kind for _, record in scan_journal(path).records()]

    assert ["master_key", *["explicit_lac"] * (version == 6), "fence"] == kinds


@pytest.mark.parametrize("way", ["append_many", "append_batch"])
@pytest.mark.parametrize("write_buffer", [0, 64, 1000])
def test_all_or_nothing(tmp_path: Path, way: str, write_buffer: int) -> None:
    """One record that cannot be written keeps the others out too; none is nothing."""
    append = WAYS[way]
    with JournalWriter(tmp_path, preallocate=0, write_buffer=write_buffer) as writer:
        append(writer, [record_of(1)])
        before = writer.position
        for records in ([record_of(2), bytes(15)], [b"", record_of(2)]):
            with pytest.raises(InvalidArgument, match=r"(15|0) bytes"):
                append(writer, records)

        assert before == writer.position == append(writer, [])
    assert [record_of(1)] == records_in(tmp_path)


def test_a_record_longer_than_any_length(tmp_path: Path) -> None:
    """A size that no length field can say is refused before the batch is looked at further."""
    sizes = np.array([16, 1 << 31])
    batch = RecordBatch(np.arange(2), b"", np.zeros(2, np.int64), sizes)
    with JournalWriter(tmp_path, preallocate=0) as writer:
        with pytest.raises(InvalidArgument, match="2147483648 bytes"):
            writer.append_batch(batch)

        assert writer.mark == writer.position


@given(
    padded=st.booleans(),
    preallocate=st.sampled_from([0, 512, 4096]),
    groups=st.lists(st.lists(st.integers(16, 700), max_size=30), max_size=6),
    write_buffer=st.sampled_from([0, 100, 3000, 1 << 16]),
)
def test_a_batch_is_its_records_one_by_one(
    padded: bool, preallocate: int, groups: list[list[int]], write_buffer: int
) -> None:
    """A batch leaves the bytes of as many appends; with other bytes between its records too."""
    files = []
    for way in ("append", "append_batch"):
        with tempfile.TemporaryDirectory() as name:
            with JournalWriter(
                Path(name), preallocate=preallocate, write_buffer=write_buffer, first_id=1
            ) as writer:
                writer.append(record_of(99, 40))
                for number, sizes in enumerate(groups):
                    records = [record_of(number, size) for size in sizes]
                    WAYS[way](writer, records, b"?" * padded)
                    writer.sync() if number % 2 else None
            files.append((Path(name) / "1.txn").read_bytes())

    assert files[0] == files[1]


def test_a_large_batch_is_one_write_from_where_it_lies(tmp_path: Path) -> None:
    """What is buffered, then the batch's own buffer; a small batch waits in the buffer."""
    seen: list[object] = []

    class Watched(Files):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
            seen.append(data if len(data) > 5000 else len(data))
            super().pwrite(fd, data, offset)

    small, large = _batch([record_of(1, 96)] * 3), _framed([record_of(2, 996)] * 20)
    with JournalWriter(tmp_path, files=Watched(), preallocate=0, write_buffer=5000) as writer:
        seen.clear()
        writer.append_batch(small)
        writer.append_batch(large)

        assert 300 == seen[0]
        assert seen[1] is large.buffer
        assert 2 == len(seen)


@pytest.mark.parametrize(
    "options",
    [
        {"version": 3},
        {"version": 7},
        {"alignment": 0},
        {"alignment": 700},
        {"preallocate": -512},
        {"preallocate": 700},
        {"preallocate": 512, "alignment": 1024},
        {"first_id": -1},
    ],
    ids=str,
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, int]) -> None:
    """What no format has is refused before a file is made."""
    with pytest.raises(InvalidArgument):
        JournalWriter(tmp_path, **options)  # type: ignore[arg-type]

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("preallocate", [0, 4096])
@pytest.mark.parametrize("kept", [1, 4, 5, 500, 1003])
@pytest.mark.parametrize("way", ["append", "append_batch"])
@pytest.mark.parametrize("write_buffer", [900, 5000], ids=["at once", "buffered"])
def test_half_a_record_is_none(
    tmp_path: Path, version: int, preallocate: int, kept: int, way: str, write_buffer: int
) -> None:
    """A write that fails halfway leaves no record: zeros behind half of one would complete it."""
    plan = FaultPlan()
    options = {"version": version, "preallocate": preallocate, "files": plan}
    options["write_buffer"] = write_buffer
    writer = JournalWriter(tmp_path, **options)  # type: ignore[arg-type]
    writer.append(record_of(1, 300))
    writer.sync()
    plan.tear_write(1, kept)
    with pytest.raises(WriteFailed):
        writer.sync(WAYS[way](writer, [record_of(2, 1000)]))
    writer.close()
    with JournalWriter(tmp_path, **options) as again:  # type: ignore[arg-type]
        again.append(record_of(3, 300))

    assert [record_of(1, 300), record_of(3, 300)] == records_in(tmp_path)


def test_missing_directory(tmp_path: Path) -> None:
    """The directory must be there; its name is in the error."""
    with pytest.raises(BkstoreError, match="gone: cannot be read"):
        JournalWriter(tmp_path / "gone")


# -- ids


def test_first_id_is_the_clock_and_one(tmp_path: Path) -> None:
    """In an empty directory the first id is the clock's milliseconds plus 1."""
    with JournalWriter(tmp_path, preallocate=0, clock=lambda: 1795244360.5) as writer:
        assert LogMark(1795244360501, 512) == writer.mark == writer.position
    assert [tmp_path / "1a1fce70335.txn"] == [path for _, path in list_journal_files(tmp_path)]


def test_ids_go_up_by_one(tmp_path: Path) -> None:
    """Each roll and each start takes the next id, whatever the clock or the caller says."""
    for start in range(3):
        with JournalWriter(tmp_path, preallocate=0, max_size=600, first_id=9 - start) as writer:
            writer.append(record_of(start, 500))
            writer.sync()

    assert [9, 10, 11, 12, 13, 14] == [number for number, _ in list_journal_files(tmp_path)]
    assert [record_of(start, 500) for start in range(3)] == records_in(tmp_path)


def test_a_torn_file_is_left_alone(tmp_path: Path) -> None:
    """A start behind a crash begins a file of its own: nothing goes behind half a record."""
    torn = HEADERS[6] + struct.pack(">i", 100) + bytes(50)
    (tmp_path / "3.txn").write_bytes(torn)
    with JournalWriter(tmp_path, preallocate=0) as writer:
        writer.append(record_of(1))

    assert torn == (tmp_path / "3.txn").read_bytes()
    assert [record_of(1)] == [data for _, data in scan_journal(tmp_path / "4.txn")]
