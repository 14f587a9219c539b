"""Lengths in a dump: the sizes of records in the entry logs, or null and a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import LedgerId
from bkstore.formats.entry import Entry, encode
from bkstore.formats.entrylog import LogHeader, encode_header
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump, record_lengths
from tests.worlds.dumps import rows, write_log

pytest.importorskip("pyarrow")

LEDGERS = [LedgerId.of(4), LedgerId.of(2**63 - 1), LedgerId(2**63 + 5, 2**64 - 3)]
Sizes = dict[tuple[LedgerId, int], int]


def _bookie(top: Path, layout: str, count: int, seed: int = 0) -> Sizes:
    """Write two logs of records that lie in random order, and their index; return the sizes."""
    rng = np.random.default_rng(seed)
    sizes: Sizes = {
        (ledger, entry): int(rng.integers(41, 60 if entry % 5 else 40_000))
        for ledger in LEDGERS
        for entry in range(count)
    }
    keys = list(sizes)
    rng.shuffle(keys)  # type: ignore[arg-type]
    keys = [(LedgerId(*ledger), int(entry)) for ledger, entry in keys]
    half = len(keys) // 2
    if layout == "idx":
        index: Any = HierarchicalIndex(top / "l0", writable=True)
        homes = [("l0", 3, keys[:half]), ("l1", 2**31 - 1, keys[half:])]
    else:
        index = PartitionedIndex([RocksIndex(top / f"l{n}", writable=True) for n in range(2)])
        homes = [(f"l{n}", 3, [k for k in keys if k[0].ledger % 2 == n]) for n in range(2)]
    with index:
        for folder, log_id, held in homes:
            path = top / folder / "current" / f"{log_id:x}.log"
            places = write_log(path, ((*key, sizes[key]) for key in held), 2)
            for (ledger, entry), place in places.items():
                index.put(ledger, entry, (log_id << 32) + place)
    return sizes


def _lengths(out: Path) -> dict[tuple[LedgerId, int], int | None]:
    return {(LedgerId.from_signed(*row[2:4]), row[4]): row[7] for row in rows(out, "entries")}


@pytest.mark.parametrize("layout", ["idx", "rocksdb"])
@pytest.mark.parametrize("window", [4 << 20, 50_000])
def test_lengths(tmp_path: Path, layout: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry has the size of its record, in every layout, scope and log."""
    monkeypatch.setattr(record_lengths, "_WINDOW_BYTES", window)
    sizes = _bookie(tmp_path / "b", layout, 200)
    result = dump([tmp_path / "b"], tmp_path / "out", length=True)

    assert [] == result.findings
    assert sizes == _lengths(tmp_path / "out")


@pytest.mark.parametrize("cut", [0, 1, 9])
@pytest.mark.parametrize(("key", "least"), [(LedgerId.of(4), 32), (LedgerId(7, 4), 41)])
@pytest.mark.parametrize("layout", [HierarchicalIndex, RocksIndex])
def test_shortest_record_at_the_very_end(
    tmp_path: Path, layout: Any, key: LedgerId, least: int, cut: int
) -> None:
    """An entry without digest and payload is its header alone, and its log may end with it."""
    path = tmp_path / "b/current/0.log"
    path.parent.mkdir(parents=True)
    sizes = [50, least]
    data = bytearray(encode_header(LogHeader(2 if key.scope else 1)))
    places = []
    for entry, size in enumerate(sizes):
        places.append(len(data) + 4)
        payload = bytes(size - least)
        data += size.to_bytes(4, "big") + encode(Entry(key, entry, -1, 0, payload), "DUMMY")
    path.write_bytes(data[: len(data) - cut])
    with layout(tmp_path / "b", writable=True) as index:
        index.set_state(key, LedgerState(b"k"))
        index.put_many(key, [0, 1], places)
    result = dump([tmp_path / "b"], tmp_path / "out", length=True)

    assert [50, None if cut else least] == list(_lengths(tmp_path / "out").values())
    assert bool(cut) == bool(result.findings)


def test_without_asking(tmp_path: Path) -> None:
    """Lengths are null unless asked for."""
    _bookie(tmp_path / "b", "idx", 5)
    dump([tmp_path / "b"], tmp_path / "out")

    assert {None} == set(_lengths(tmp_path / "out").values())


def test_log_that_is_gone(tmp_path: Path) -> None:
    """Entries whose log is missing have no length; one finding a ledger counts them."""
    sizes = _bookie(tmp_path / "b", "idx", 50)
    (tmp_path / "b/l1/current/7fffffff.log").unlink()
    result = dump([tmp_path / "b"], tmp_path / "out", length=True)
    found = _lengths(tmp_path / "out")
    here = {key: size for key, size in found.items() if size is not None}
    lost = {ledger: [e for name, e in sizes if name == ledger] for ledger in LEDGERS}
    lost = {ledger: [e for e in own if (ledger, e) not in here] for ledger, own in lost.items()}

    assert len(sizes) - len(sizes) // 2 == len(sizes) - len(here)
    assert {key: sizes[key] for key in here} == here
    assert [("damage", "7fffffff.log")] * 3 == [(f.severity, f.file) for f in result.findings]
    assert [(ledger, own[0], own[-1], len(own)) for ledger, own in lost.items()] == [
        (f.ledger, f.first_entry, f.last_entry, f.entries) for f in result.findings
    ]
    assert all(found.detail.endswith(": no length: no such entry log") for found in result.findings)


def test_log_that_is_cut(tmp_path: Path) -> None:
    """Records behind the end of a cut log, and the one that is cut, have no length."""
    sizes = _bookie(tmp_path / "b", "idx", 50)
    path = tmp_path / "b/l0/current/3.log"
    cut = path.stat().st_size * 2 // 3
    path.write_bytes(path.read_bytes()[:cut])
    result = dump([tmp_path / "b"], tmp_path / "out", length=True)
    lost = {
        (LedgerId.from_signed(*row[2:4]), row[4])
        for row in rows(tmp_path / "out", "entries")
        if row[5] == 3 and row[6] + sizes[LedgerId.from_signed(*row[2:4]), row[4]] > cut
    }
    found = _lengths(tmp_path / "out")

    assert lost
    assert lost == {key for key, size in found.items() if size is None}
    assert {key: size for key, size in sizes.items() if key not in lost} == {
        key: size for key, size in found.items() if key not in lost
    }
    assert str(path) in {finding.file for finding in result.findings}


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, b"\x00\x00\x00\x05"), (0, b"\x7f\xff\xff\xff"), (5, b"\x01"), (15, b"\x7f")],
)
def test_record_of_another(tmp_path: Path, at: int, value: bytes) -> None:
    """A size that cannot be, another ledger or another entry at a location: no length."""
    key = LedgerId.of(4)
    places = write_log(tmp_path / "b/current/0.log", ((key, entry, 64) for entry in range(3)))
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(key, [0, 1, 2], [places[key, entry] for entry in range(3)])
    path = tmp_path / "b/current/0.log"
    data = bytearray(path.read_bytes())
    start = places[key, 1] - 4 + at
    data[start : start + len(value)] = value
    path.write_bytes(data)
    result = dump([tmp_path / "b"], tmp_path / "out", length=True)
    told = [found for found in result.findings if "no length" in found.detail]

    assert [64, None, 64] == list(_lengths(tmp_path / "out").values())
    assert [(str(path), places[key, 1], key)] == [(f.file, f.offset, f.ledger) for f in told]
    assert [(1, 1, 1)] == [(f.first_entry, f.last_entry, f.entries) for f in told]


@pytest.mark.parametrize(("position", "is_in_header"), [(0, True), (1027, True), (1028, False)])
def test_location_in_the_log_header(tmp_path: Path, position: int, is_in_header: bool) -> None:
    """The first record's size stands behind the 1,024 bytes of the header: no location is lower.
    A higher one where no record fits points past the end."""
    path = tmp_path / "b/current/1.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_header(LogHeader(1)) + bytes(4))
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put(4, 0, (1 << 32) + position)
    findings = dump([tmp_path / "b"], tmp_path / "out", length=True).findings
    (finding,) = (each for each in findings if each.ledger == LedgerId.of(4))

    assert {(LedgerId.of(4), 0): None} == _lengths(tmp_path / "out")
    expected = "into the log header" if is_in_header else "past the end of the log (1028 bytes)"
    assert f"location points {expected}" in finding.detail
    assert (position, str(path)) == (finding.offset, finding.file)
