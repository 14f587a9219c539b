"""`bkstore usage`: rows by what they are asked by, exit codes, and what is said beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerStorage
from bkstore.cli.main import main, make_parser
from bkstore.cli.maintenance import usage_tables
from bkstore.cli.maintenance.usage_tables import TABLES_BY_KIND
from bkstore.formats.entry import Coder
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.usage.cache_needs import DEFAULT_READ_AHEAD
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledgers.garbage_pass import MAJOR_THRESHOLD, MINOR_THRESHOLD
from bkstore.storage.options import JournalOptions, StorageKind

Capsys = pytest.CaptureFixture[str]
CODER = Coder("CRC32C", "pw")
RECORD = 4 + 36 + 64


def _make(top: Path, kind: StorageKind = "interleaved") -> Path:
    """Make ledger 1 with 10 and ledger 2 with 30 records, in one closed log."""
    with LedgerStorage.open(top / "ledgers", kind) as storage:
        for ledger, count in ((1, 10), (2, 30)):
            payloads = [bytes(64)] * count
            storage.add_entries(CODER.encode_many(ledger, range(count), payloads), master_key=b"k")
    return top


def _run(capsys: Capsys, *words: object, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Return (rows, what went to stderr)."""
    found = main(["usage", *map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()

    assert code == found, err
    return [json.loads(line) for line in out.splitlines()], err


def test_a_directory_that_is_none(tmp_path: Path, capsys: Capsys) -> None:
    """Of several directories one that cannot be opened is left out and told, exit 2; the others
    are answered. Of one alone it is the error."""
    for name in ("b1", "b3"):
        _make(tmp_path / name, "sorted")
    (tmp_path / "b2").mkdir()
    rows, err = _run(capsys, *(tmp_path / name for name in ("b1", "b2", "b3")), code=2)

    assert ["b1", "b3"] == [row["bookie"] for row in rows]
    assert [f"bkstore: left out: {tmp_path / 'b2'}"] == [
        line.partition(": not a")[0] for line in err.splitlines()
    ]
    rows, err = _run(capsys, tmp_path / "b2", code=2)

    assert [] == rows
    assert err.startswith(f"bkstore: {tmp_path / 'b2'}: not a bookie directory")


@pytest.mark.parametrize("kind", ["interleaved", "db"])
def test_a_bookie(tmp_path: Path, capsys: Capsys, kind: StorageKind) -> None:
    """One row a bookie: what its log files hold, and what would be given back."""
    top = _make(tmp_path / "b1", kind)
    log = (top / "ledgers/current/0.log").stat().st_size
    live = tmp_path / "live"
    live.write_text("1\n77\n")
    (row,), err = _run(capsys, top, "--live-ledgers", live)

    assert ("b1", 2, 1, 40) == tuple(
        row[name] for name in ("bookie", "ledgers", "live_ledgers", "entries")
    )
    assert (log, 40 * RECORD, 10 * RECORD, 30 * RECORD) == tuple(
        row[name] for name in ("log_file_bytes", "record_bytes", "live_bytes", "garbage_bytes")
    )
    assert (1, 10 * RECORD, log - 10 * RECORD) == tuple(
        row[name] for name in ("compactable_logs", "moved_bytes", "given_back_bytes")
    )
    assert log - 40 * RECORD == row["other_bytes"]
    assert (40 * 24 if kind == "db" else 40 * 8) == row["index_row_bytes"]
    assert row["index_row_bytes"] < row["index_file_bytes"]
    assert f"{top}: its index lacks 1 ledger of {live}\n" == err


def test_a_sum_of_which_a_part_is_not_known(tmp_path: Path, capsys: Capsys) -> None:
    """Where one directory's rows cannot be counted, the bytes of all are not known; those of the
    other directory are."""
    for number, ledger in enumerate((4, 5)):
        with HierarchicalIndex(tmp_path / f"ledgers{number}", writable=True) as index:
            index.put_many(ledger, range(10), range(1028, 1038))
    next(tmp_path.rglob("4.idx")).write_bytes(b"torn")
    (row,), _ = _run(capsys, tmp_path, code=1)
    parts, _ = _run(capsys, tmp_path, "--by", "index", code=1)

    assert (None, 10, 2) == (row["index_row_bytes"], row["entries"], row["ledgers"])
    assert [None, 80] == [part["row_bytes"] for part in parts]


def test_what_is_garbage(tmp_path: Path, capsys: Capsys) -> None:
    """A ledger that is not listed is garbage: all of its bytes, in each row that names it."""
    top = _make(tmp_path / "b1")
    live = tmp_path / "live"
    live.write_text("1")
    ledgers, scopes, pairs = (
        _run(capsys, top, "--by", by, "--live-ledgers", live)[0]
        for by in ("ledger", "scope", "log-and-ledger")
    )
    names = ("bytes", "live_bytes", "garbage_bytes")

    assert [(10, 10, 0), (30, 0, 30)] == [
        tuple(row[name] // RECORD for name in names) for row in ledgers
    ]
    assert [(40, 10, 30)] == [tuple(row[name] // RECORD for name in names) for row in scopes]
    assert [(1, True), (2, False)] == [(row["ledger_id"], row["live"]) for row in pairs]


def test_bytes_of_journals(tmp_path: Path, capsys: Capsys) -> None:
    """Journals count as long as they are."""
    with Bookie.open(tmp_path, "sorted", journal=JournalOptions(preallocate=64 << 10)) as bookie:
        bookie.add_entries(CODER.encode_many(7, range(3), [bytes(64)] * 3), b"k" * 20)
    sizes = [path.stat().st_size for path in (tmp_path / "journal").rglob("*.txn")]
    (row,), _ = _run(capsys, tmp_path)

    assert 0 < sum(sizes) == row["journal_bytes"]


def test_more_rows_than_a_table_has_at_once(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come in pieces, each once."""
    with HierarchicalIndex(tmp_path / "b1", writable=True) as index:
        for ledger in range(10):
            index.put_many(ledger, [0], [1028])
    monkeypatch.setattr(usage_tables, "_ROWS_PER_TABLE", 4)
    rows, _ = _run(capsys, tmp_path / "b1", "--by", "ledger")

    assert list(range(10)) == [row["ledger_id"] for row in rows]


def test_thresholds(tmp_path: Path, capsys: Capsys) -> None:
    """--threshold says which logs would be compacted, --pinned which count as pinned."""
    top = _make(tmp_path / "b1")
    live = tmp_path / "live"
    live.write_text("1")
    words = (top, "--by", "log", "--live-ledgers", live)

    cases = ((0.2, 0.2, "keep"), (0.25, 0.26, "keep"), (0.2, 0.25, "keep"), (0.3, 0, "compact"))
    for threshold, pinned, fate in cases:
        (row,), _ = _run(capsys, *words, "--threshold", threshold, "--pinned", pinned)

        assert (0.25, fate, pinned > 0.25) == (row["occupancy"], row["fate"], row["pinned"])


def test_by_ledger_scope_and_log(tmp_path: Path, capsys: Capsys) -> None:
    """Rows of several bookies follow each other, with their names."""
    tops = [_make(tmp_path / "b1"), _make(tmp_path / "b2", "db")]
    ledgers, _ = _run(capsys, *tops, "--by", "ledger")
    scopes, _ = _run(capsys, *tops, "--by", "scope")
    pairs, _ = _run(capsys, *tops, "--by", "log-and-ledger")
    sizes = [("b1", 1, 10), ("b1", 2, 30), ("b2", 1, 10), ("b2", 2, 30)]

    assert sizes == [(row["bookie"], row["ledger_id"], row["entries"]) for row in ledgers]
    assert [n * RECORD for _, _, n in sizes] == [row["bytes"] for row in ledgers]
    assert [(name, ledger, n * RECORD, True) for name, ledger, n in sizes] == [
        (row["bookie"], row["ledger_id"], row["bytes"], row["live"]) for row in pairs
    ]
    assert [("b1", 0, 2, 40 * RECORD), ("b2", 0, 2, 40 * RECORD)] == [
        (row["bookie"], row["scope_id"], row["ledgers"], row["bytes"]) for row in scopes
    ]


def test_by_index_and_cache(tmp_path: Path, capsys: Capsys) -> None:
    """The index by its parts, and what caches need for it, with formula and source."""
    top = _make(tmp_path / "b1", "db")
    parts, _ = _run(capsys, top, "--by", "index")
    needs, _ = _run(capsys, top, "--by", "cache", "--readers", 3, "--read-ahead", 20_000)

    assert [("locations", 40), ("ledgers", 2)] == [(row["part"], row["rows"]) for row in parts]
    assert [0, None] == [row["dead_rows"] for row in parts]
    assert -(-2 * 3 * 20_000 * 128 // 2**20) == needs[-1]["value"]
    assert ["bytes", "bytes", "MiB"] == [row["unit"] for row in needs]
    assert all(row["formula"] and row["source"] for row in needs)


@pytest.mark.parametrize("by", TABLES_BY_KIND)
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_every_answer_in_every_form(tmp_path: Path, capsys: Capsys, by: str, form: str) -> None:
    """Each table can be written in each form, and begins with the bookie."""
    top = _make(tmp_path / "b1")

    assert 0 == main(["usage", str(top), "--by", by, "--format", form])
    assert "b1" in capsys.readouterr().out


def test_defaults_are_the_librarys(tmp_path: Path) -> None:
    """What the command takes without options is what the library does, and each answer is there."""
    args = make_parser().parse_args(["usage", str(tmp_path)])

    assert (MAJOR_THRESHOLD, MINOR_THRESHOLD) == (args.threshold, args.pinned)
    assert DEFAULT_READ_AHEAD == args.read_ahead
    assert [*TABLES_BY_KIND] == [
        make_parser().parse_args(["usage", "d", "--by", by]).by for by in TABLES_BY_KIND
    ]


def test_columns_are_those_of_the_answer(tmp_path: Path, capsys: Capsys) -> None:
    """--columns takes the names of the table that --by chooses, and no others."""
    top = _make(tmp_path / "b1")
    with pytest.raises(SystemExit, match="2"):
        main(["usage", str(top), "--columns", "occupancy"])

    assert "unknown column 'occupancy'" in capsys.readouterr().err
    assert 0 == main(["usage", str(top), "--by", "log", "--columns", "log_id,occupancy"])
    assert capsys.readouterr().out.split()[:2] == ["log_id", "occupancy"]


def test_damage_is_exit_code_1(tmp_path: Path, capsys: Capsys) -> None:
    """A log that cannot be read is a line on stderr, the rows come all the same."""
    top = _make(tmp_path / "b1")
    (top / "ledgers/current/7.log").write_bytes(b"BKLO" + bytes(40))
    rows, err = _run(capsys, top, "--by", "log", code=1)

    assert [0, 7] == [row["log_id"] for row in rows]
    assert "7.log" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--threshold", "1.5"), "threshold"),
        (("--pinned", "nan"), "pinned"),
        (("--by", "cache", "--readers", "0"), "readers"),
        (("--live-ledgers", "nowhere"), "nowhere"),
    ],
    ids=lambda each: str(each[0]),
)
def test_wrong_usage(tmp_path: Path, capsys: Capsys, words: tuple[str, ...], said: str) -> None:
    """What makes no sense is exit code 2, and says what it is about."""
    top = _make(tmp_path / "b1")

    assert 2 == main(["usage", str(top), *words])
    assert said in capsys.readouterr().err


def test_output_into_the_directory_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    """Nothing is written into what is looked at."""
    top = _make(tmp_path / "b1")
    target = top / "ledgers/current/out.csv"

    assert 2 == main(["usage", str(top), "-o", str(target)])
    assert not target.exists()
