"""Listing many ledgers where some are damaged: each answer is the single call's, error or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from rocksdict import Options, Rdict

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.disk_changes import OS_FILES
from bkstore.formats.idxfile import IdxHeader, encode_header, index_path
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex, EntrySource, LedgerLike
from bkstore.index.bulk_listing import iterate_results
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.layered import LayeredSource
from bkstore.index.memtable import MemtableIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.scope_marker import write_marker

HEADER = encode_header(IdxHeader(b"k" * 20, 1, b"l" * 24))


def slots(*entries: int, count: int = 1024) -> bytes:
    """Return slots of which `entries` hold a location."""
    words = np.zeros(count, ">i8")
    words[list(entries)] = 1028
    return words.tobytes()


def patched(at: int, data: bytes) -> bytes:
    """Return a file of which some bytes are others."""
    whole = bytearray(HEADER + slots(1, 2, 9))
    whole[at : at + len(data)] = data
    return bytes(whole)


FILES = {
    "good": HEADER + slots(0, 1, 2, 1023),
    "no slots": HEADER,
    "half a page": HEADER + slots(0, 5, count=500),
    "no entries": HEADER + slots(),
    "version 0": encode_header(IdxHeader(b"k" * 20, 0, None, 0)) + slots(3),
    "no key": encode_header(IdxHeader()) + slots(4),
    "longest key": encode_header(IdxHeader(b"k" * 1004)) + slots(4),
    "longest key, version 0": encode_header(IdxHeader(b"k" * 1008, 0, None, 0)) + slots(4),
    "longest explicit LAC": encode_header(IdxHeader(b"", 0, b"l" * 1004)) + slots(4),
    "key of version 0 in version 1": b"BKLE" + bytes([0, 0, 0, 1, 0, 0, 3, 240]) + bytes(9204),
    "empty": b"",
    "torn header": HEADER[:1000],
    "header only begun": HEADER[:3],
    "torn slot": HEADER + slots(1, 2)[:-3],
    "one more byte": HEADER + slots(1, 2) + b"\1",
    "another signature": patched(0, b"BKLF"),
    "version 2": patched(4, b"\0\0\0\2"),
    "version -1": patched(4, b"\xff\xff\xff\xff"),
    "negative key length": patched(8, b"\xff\xff\xff\xff"),
    "key past the header": patched(8, b"\0\0\4\0"),
    "key up to the end": patched(8, b"\0\0\3\364"),
    "huge key": patched(8, b"\x7f\xff\xff\xff"),
    "short explicit LAC": patched(36, b"\0\0\0\5"),
    "negative explicit LAC": patched(36, b"\x80\0\0\0"),
    "explicit LAC past the header": patched(36, b"\0\0\3\355"),
    "explicit LAC up to the end": patched(36, b"\0\0\3\354"),
    "negative location": patched(1024 + 8 * 5, b"\x80"),
    "longest that is read with others": HEADER + slots(0, 16383, count=16384),
    "longer": HEADER + slots(0, 16384, count=16385),
    "long and torn": HEADER + slots(0, 20000, count=30000) + b"\0" * 4,
}


def tree(top: Path) -> list[LedgerId]:
    """Write a file of each kind, good ones between them; return the ledgers that have a name."""
    for number, data in enumerate(FILES.values()):
        for ledger in (LedgerId(0, 2 * number), LedgerId(3, 2 * number)):
            put(top, ledger, data)
        put(top, LedgerId(0, 2 * number + 1), FILES["good"])
    os.mkfifo(place(top, LedgerId(0, 1000)))
    place(top, LedgerId(0, 1001)).mkdir()
    place(top, LedgerId(0, 1002)).symlink_to("nowhere")
    place(top, LedgerId(0, 1003)).symlink_to(place(top, LedgerId(0, 1)))
    place(top, LedgerId(0, 1004)).with_suffix(".idx.rloc").write_bytes(FILES["good"])
    with open(place(top, LedgerId(0, 1005)), "wb") as file:
        file.write(HEADER + slots(7))
        file.truncate(1024 + 8 * 10_000_000)
    return [LedgerId(0, number) for number in (*range(2 * len(FILES)), *range(998, 1008))] + [
        LedgerId(3, number) for number in range(2 * len(FILES))
    ]


def place(top: Path, ledger: LedgerId) -> Path:
    """Return where a ledger's file lies; its folder is there."""
    path = top / "current" / index_path(ledger)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def put(top: Path, ledger: LedgerId, data: bytes) -> None:
    """Write a ledger's file."""
    place(top, ledger).write_bytes(data)


def alone(source: EntrySource, ledger: LedgerId) -> object:
    """Return what a single call says: the availability, or the error's kind and text."""
    try:
        return source.availability(ledger)
    except BkstoreError as error:
        return type(error), str(error)


def same_as_alone(opened: Callable[[], EntryIndex], names: list[LedgerId]) -> int:
    """Check all answers, of indexes that have been asked nothing before; return the errors."""
    errors: dict[LedgerId, BkstoreError] = {}
    with opened() as index, opened() as other:
        found: dict[LedgerId, object] = dict(index.availability_many(names, errors))

        assert not found.keys() & errors.keys()
        assert list(found) == sorted(found)
        found |= {name: (type(error), str(error)) for name, error in errors.items()}

        assert {name: alone(other, name) for name in names} == found
        all_errors: dict[LedgerId, BkstoreError] = {}
        known: dict[LedgerId, object] = dict(other.availability_many(errors=all_errors))
        known |= {name: (type(error), str(error)) for name, error in all_errors.items()}

        assert {name: alone(index, name) for name in index.ledgers()} == known
    return len(errors)


@pytest.mark.parametrize("compat", [None, "bookkeeper"])
@pytest.mark.parametrize("page_size", [8192, 64])
def test_index_files(tmp_path: Path, compat: Literal["bookkeeper"] | None, page_size: int) -> None:
    """Files that are torn, odd, long, sparse or no files are told as a single call tells them,
    and do not touch the answers about their neighbours; with compat as real classes list."""
    names = tree(tmp_path)
    write_marker(tmp_path / "current", OS_FILES)
    errors = same_as_alone(
        lambda: HierarchicalIndex(tmp_path, page_size=page_size, compat=compat), names
    )

    assert errors > len(FILES)


def test_files_of_two_directories(tmp_path: Path) -> None:
    """The first directory that has a ledger's file answers, damaged or not."""
    for top, first in ((tmp_path / "a", 0), (tmp_path / "b", 1)):
        for number in range(first, 12, 1 + first):
            put(top, LedgerId(0, number), FILES["torn slot" if number % 4 == first else "good"])
    names = [LedgerId(0, number) for number in range(14)]
    both = [tmp_path / "a", tmp_path / "b"]

    assert same_as_alone(lambda: HierarchicalIndex(both), names)
    assert same_as_alone(lambda: HierarchicalIndex(both[::-1]), names)


def test_files_of_a_writer(tmp_path: Path) -> None:
    """What a writer has not flushed is listed, a file it removed is not."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(7, [0, 1], [5, 6])
        index.put_many(8, [0], [5])
        index.flush()
        index.put_many(9, [2], [5])
        index.put_many(7, [5], [5])
        before = index.availability_many()
        index.delete(8)
        expected = {7: [0, 1, 5], 8: [], 9: [2]}

        assert expected == {n.ledger: here.entries().tolist() for n, here in before}


def test_raises_in_its_turn(tmp_path: Path) -> None:
    """Without `errors` the first damaged ledger's error is raised, behind the answers before."""
    for number in range(10):
        put(tmp_path, LedgerId(0, number), FILES["good" if number != 6 else "torn slot"])
    with HierarchicalIndex(tmp_path) as index:
        listed = index.availability_many()

        assert list(range(6)) == [name.ledger for name, _ in islice(listed, 6)]
        with pytest.raises(CorruptionError, match="ends inside a slot"):
            next(listed)


def corrupted(top: Path, part: float) -> None:
    """Write a bookie's databases, and flip a byte of the table of locations."""
    with RocksIndex(top, writable=True) as index:
        for number in range(3000):
            ids = np.arange(number % 90)
            index.put_many(LedgerId(0, 3 * number), ids, 1000 + 7919 * (ids + number) % 10**9)
    table = max((top / "current" / "locations").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[int(part * len(data))] ^= 0x55
    table.write_bytes(data)


@pytest.mark.parametrize("part", [0.1, 0.3, 0.6])
def test_damaged_blocks(tmp_path: Path, part: float) -> None:
    """Ledgers with entries in a damaged block of RocksDB have its error; all others, before and
    behind it, are listed."""
    corrupted(tmp_path, part)
    names = [LedgerId(0, number) for number in range(8990, 0, -2)]

    assert 0 < same_as_alone(lambda: RocksIndex(tmp_path), sorted(names)) < 2900


def test_rows_that_are_no_bookies(tmp_path: Path) -> None:
    """A key of another size is the error of its own ledger; entries no bookie numbers, and rows
    of ledgers that are not listed, are in no answer."""
    with RocksIndex(tmp_path, writable=True) as index:
        for number in range(400):
            index.put_many(number, range(5), [9] * 5)
    path = str(tmp_path / "current" / "locations")
    options = Options(raw_mode=True)
    database = Rdict(path, options, column_families={"default": options})
    for ledger, entry in ((3, 2**63 - 1), (4, 2**64 - 1), (900, 5), (2**63 + 9, 1)):
        database[ledger.to_bytes(8, "big") + entry.to_bytes(8, "big")] = bytes(7) + b"\5"
    database[(200).to_bytes(8, "big") + b"\0\0\1"] = bytes(7) + b"\5"
    database.close()
    (tmp_path / "current" / "locations" / "rocksdict-config.json").unlink(missing_ok=True)
    names = [LedgerId(0, number) for number in range(0, 1000, 2)]

    assert 1 == same_as_alone(lambda: RocksIndex(tmp_path), names)


class Failing(MemtableIndex):
    """A source that cannot list some ledgers."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__()
        self.bad = bad

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return what is here, or raise."""
        if LedgerId.of(ledger).ledger in self.bad:
            raise CorruptionError("a file", 5, f"ledger {ledger} is damaged")
        return super().entries(ledger, first, last)

    availability = EntrySource.availability
    availability_many = EntrySource.availability_many


@pytest.mark.parametrize("kind", ["layered", "partitioned"])
def test_errors_of_parts(kind: str) -> None:
    """Errors of what an index is made of come out under their ledgers, or in their turn."""
    one, two = Failing({2, 5, 11}), Failing({4, 5, 12})
    for number in range(14):
        one.put(number, 1, 5)
        two.put(number, 2, 5)
    source = LayeredSource(one, two) if kind == "layered" else PartitionedIndex([one, two])
    names = [LedgerId(0, number) for number in range(15)]
    expected = {name: alone(source, name) for name in names}
    found = dict(iterate_results(source, names))
    good = [name for name in names if isinstance(expected[name], Availability)]
    first = min(set(names) - set(good))
    listed = source.availability_many()

    assert names == list(found)
    assert [expected[name] for name in good] == [found[name] for name in good]
    for name in set(names) - set(good):
        assert expected[name] == (type(found[name]), str(found[name]))
    assert names[: first.ledger] == [name for name, _ in islice(listed, first.ledger)]
    with pytest.raises(CorruptionError, match=f"ledger {first.ledger} is damaged"):
        next(listed)
