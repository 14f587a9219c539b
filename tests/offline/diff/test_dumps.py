"""Dumps as sides of a comparison: the same answers as the directories they are of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bkstore import BookieDir, InvalidArgument, LedgerId
from bkstore.errors import CorruptionError
from bkstore.index.api import Finding, LedgerState
from bkstore.offline.diff import ComparedLedger, DirectorySide, DumpSide, diff, dump_side, is_dump
from bkstore.offline.dump import dump
from tests.worlds.dumps import CONTENT, KEY, LAYOUTS, three_bookies

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bookie of each layout, and `out`, their dump in many small pieces."""
    top = tmp_path_factory.mktemp("dumped")
    dump(three_bookies(top), top / "out", piece_rows=700)
    return top


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dump_is_as_its_directory(dumped: Path, layout: str) -> None:
    """Each ledger, its entries and its state are those of the directory, in its order."""
    with BookieDir(dumped / layout) as bookie:
        expected = list(DirectorySide(bookie).ledgers())
        side = DumpSide(dumped / "out", layout)

        assert expected == list(side.ledgers())
        assert [] == list(diff(side, DirectorySide(bookie), []))
    assert len(CONTENT) == len(expected)


def test_a_ledger_cut_by_blocks(dumped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of a ledger that come in several blocks of rows are put together."""
    monkeypatch.setattr(dump_side, "_BATCH_ROWS", 1)
    with BookieDir(dumped / "idx") as bookie:
        expected = list(DirectorySide(bookie).ledgers())

    assert expected == list(DumpSide(dumped / "out", "idx").ledgers())


def test_two_bookies_of_a_dump(dumped: Path) -> None:
    """Both sides may be of one dump; one ledger alone may be asked for."""
    a, b = DumpSide(dumped / "out", "idx"), DumpSide(dumped / "out", "rocks3")
    (held,) = a.ledgers({LedgerId.of(2)})

    assert [] == list(diff(a, b, []))
    assert (LedgerId.of(2), 6000) == (held.ledger, len(held.entries))  # type: ignore[arg-type]


def test_which_bookie_is_meant(dumped: Path) -> None:
    """Of several bookies one must be named, by a name that the dump has."""
    for name in (None, "nobody"):
        with pytest.raises(InvalidArgument, match="idx, rocks, rocks3"):
            DumpSide(dumped / "out", name)


def test_a_bookie_that_was_not_read(tmp_path: Path) -> None:
    """A bookie that the dump could not read is refused with the reason, not taken as empty."""
    with LAYOUTS["idx"](tmp_path / "one") as index:
        index.put(7, 0, 1028)
    (tmp_path / "two").mkdir()
    dump([tmp_path / "one", tmp_path / "two"], tmp_path / "out")

    with pytest.raises(InvalidArgument, match="two"):
        DumpSide(tmp_path / "out", "two")
    assert "one" == DumpSide(tmp_path / "out").bookie


def test_what_a_dump_could_not_read_is_not_compared(tmp_path: Path) -> None:
    """A ledger with nulls in the dump is a finding; it does not count as lost."""
    for name in "ab":
        with LAYOUTS["idx"](tmp_path / name) as index:
            for ledger in (1, 2):
                index.set_state(ledger, LedgerState(KEY))
                index.put_many(ledger, range(5), range(1028, 1033))
    path = tmp_path / "b/ledgers/current/0/1/1.idx"
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    dump([tmp_path / "b"], tmp_path / "out")
    findings: list[Finding] = []
    with BookieDir(tmp_path / "a") as bookie:
        found = list(diff(DirectorySide(bookie), DumpSide(tmp_path / "out"), findings))

    assert [] == found
    assert {LedgerId.of(1)} == {told.ledger for told in findings}
    assert any("its entries are not compared" in told.detail for told in findings)


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    """A file whose ledgers are not in order would be merged wrongly: it is named instead."""
    import pyarrow.parquet as pq

    with LAYOUTS["idx"](tmp_path / "b") as index:
        for ledger in (1, 2):
            index.put_many(ledger, range(5), range(1028, 1033))
    dump([tmp_path / "b"], tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_bytes())
    (file,) = manifest["tables"]["groups"]["files"]
    path = tmp_path / "out" / file["path"]
    table = pq.read_table(path)
    pq.write_table(table.take([1, 0]), path)

    with pytest.raises(CorruptionError, match="ledger 1 comes after ledger 2"):
        list(DumpSide(tmp_path / "out").ledgers())


def test_rows_of_no_known_ledger(tmp_path: Path) -> None:
    """Groups of a ledger that is in no row of `ledgers` are skipped, as an index does."""
    import pyarrow.parquet as pq

    with LAYOUTS["rocks"](tmp_path / "b") as index:
        for ledger in (1, 2, 3):
            index.put_many(ledger, range(ledger), range(1028, 1028 + ledger))
    dump([tmp_path / "b"], tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_bytes())
    (file,) = manifest["tables"]["ledgers"]["files"]
    path = tmp_path / "out" / file["path"]
    pq.write_table(pq.read_table(path).take([0, 2]), path)
    text = json.dumps(manifest).replace(json.dumps(file), json.dumps({**file, "rows": 2}))
    (tmp_path / "out/manifest.json").write_text(text)

    def told(held: ComparedLedger) -> tuple[int, int]:
        return held.ledger.ledger, len(held.entries)  # type: ignore[arg-type]

    assert [(1, 1), (3, 3)] == list(map(told, DumpSide(tmp_path / "out").ledgers()))


def test_what_is_a_dump(dumped: Path) -> None:
    """A dump is told by its manifest; a bookie's directory is none."""
    assert is_dump(dumped / "out")
    assert not is_dump(dumped / "idx")
