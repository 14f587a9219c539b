"""`bkstore lab workload`: rows, refusals, two runs in one picture. No times."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.lab import main
from bkstore.lab.experiments.workload import ALL, EXPERIMENT
from bkstore.lab.load_generator.clients import SLICES
from bkstore.lab.load_generator.latencies import PERCENTILES
from bkstore.lab.number_format import as_text

SHORT = ("--scale", "0.001", "--duration", "0.05", "--rounds", "1")


def _rows(folder: Path, *words: str) -> list[dict[str, Any]]:
    target = folder / f"{len(list(folder.glob('*.json')))}.json"
    assert 0 == main(EXPERIMENT, [*SHORT, "--json", str(target), *words])
    rows: list[dict[str, Any]] = json.loads(target.read_text())["rows"]
    return rows


def test_rows_of_a_run(tmp_path: Path) -> None:
    """The total is the sum of the operations and of the slices; each operation has latencies."""
    words = ["--index", "idx files", "--ops", "read,write", "--mix", "3:1", "--threads", "2"]
    rows = _rows(tmp_path, *words)
    (total,) = (row for row in rows if row["operation"] == ALL and not row["point"])
    operations = {
        row["operation"]: row for row in rows if row["histogram"] and row["operation"] != "flush"
    }
    slices = [row for row in rows if row["rate_then"] is not None]

    assert {"idx files"} == {row["side"] for row in rows}
    assert operations.keys() <= {"read", "write"}
    assert total["operations"] == sum(row["operations"] for row in operations.values())
    assert total["operations"] == pytest.approx(
        sum(row["rate_then"] * 0.05 / SLICES for row in slices)
    )
    assert 0.05 == pytest.approx(slices[-1]["second"])
    for operation, row in operations.items():
        points = [r["point"] for r in rows if r["operation"] == operation and r["latency"]]
        known = [name for name, one_in in PERCENTILES.items() if one_in <= row["operations"]]
        assert [*known, "max"] == points


def test_sides_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of the package, of yours, RocksDB with options, storages and bookies, in one run."""
    (tmp_path / "own_index.py").write_text(
        "from bkstore.index.hierarchical import HierarchicalIndex\n"
        "class OwnIndex(HierarchicalIndex):\n"
        "    def __init__(self, path, *, writable=False):\n"
        "        super().__init__(path, writable=writable)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["--side", "own_index:OwnIndex", "--rocks", "compression=none"]
    rows = _rows(tmp_path, *words, "--storage", "sorted", "--storage", "db", "--journal")

    assert {
        "OwnIndex",
        "rocksdb compression=none",
        "sorted storage, journal",
        "db storage, journal",
    } == {row["side"] for row in rows}


def test_space_of_what_is_read_only(tmp_path: Path) -> None:
    """Where nothing is written, live entries are those that were filled, and the space of index
    files is their pages: 100 ledgers of 20 entries have a header and a page of 8 KiB each."""
    rows = _rows(tmp_path, "--index", "idx files", "--ops", "read")
    (total,) = (row for row in rows if row["live"] is not None)

    assert 2_000 == total["live"]
    # Blocks: a file of 9 KiB has 12 KiB, or less where holes take none.
    kib = total["amplification"] * 2_000 * 24 / 1024
    assert 100 * 4 <= kib <= 100 * 16


def test_two_runs_in_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --compare the picture has the curves of both, and the lines say what moved."""
    words = ["--index", "rocksdb", "--ops", "read"]
    _rows(tmp_path, *words)
    picture = tmp_path / "both.svg"
    earlier = str(tmp_path / "0.json")
    assert 0 == main(EXPERIMENT, [*SHORT, *words, "--compare", earlier, "--report", str(picture)])
    text = picture.read_text()

    assert "rocksdb, before" in text
    assert "rocksdb<" in text
    assert "against bkstore lab workload" in capsys.readouterr().out
    alone = tmp_path / "alone.svg"
    assert 0 == main(EXPERIMENT, ["--from", earlier, "--picture", str(alone)])
    assert "before" not in alone.read_text()


def test_findings_compare_sides(tmp_path: Path) -> None:
    """A sentence for each side, and one for each operation with the latencies of all sides."""
    rows = _rows(tmp_path, "--ops", "read,batch")
    sentences = EXPERIMENT.summarize(rows)

    sides = ["idx files", "rocksdb"]
    assert sides == [sentence.partition(":")[0] for sentence in sentences[:2]]
    assert ["Latency of read", "Latency of batch"] == [
        sentence.partition(":")[0] for sentence in sentences[2:]
    ]
    for operation, sentence in zip(("read", "batch"), sentences[2:]):
        for point in ("p50", "max"):
            latencies = [
                f"{as_text(row['latency'])} us ({row['side']})"
                for row in rows
                if (operation, point) == (row["operation"], row["point"])
            ]
            assert 2 == len(latencies)
            assert f" {point} {', '.join(latencies)}" in sentence


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--index", "nothing"], "no entry point of bkstore.index"),
        (["--storage", "nothing"], "invalid choice: 'nothing'"),
        (["--index", "nothing"], "; the package has 'idx files', 'rocksdb'"),
        (["--ops", "reed"], "--ops reed: no operation 'reed'; there are read, write"),
        (["--ops", "read,read"], "--ops read,read: an operation is given twice"),
        (["--mix", "1"], "--mix 1: 1 share for 2 operations (read,write)"),
        (["--duration", "0"], "0: not a number of seconds above 0"),
        (["--duration", "nan"], "nan: not a number of seconds above 0"),
        (["--threads", "0"], "0: not a whole number above 0"),
        (["--value-size", "1.5"], "1.5: not a whole number above 0"),
        (["--keys", "all"], "invalid choice: 'all'"),
    ],
)
def test_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, exit code 2, before anything is written."""
    try:
        code: Any = main(EXPERIMENT, [*SHORT, *words])
    except SystemExit as exit_:
        code = exit_.code
    lines = capsys.readouterr().err.splitlines()

    assert (2, True) == (code, message in lines[-1])


def test_without_hdrhistogram(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package is named, before anything is written."""
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    monkeypatch.setattr(HierarchicalIndex, "__init__", None)

    assert 2 == main(EXPERIMENT, list(SHORT))
    assert "a load test needs hdrhistogram: pip install" in capsys.readouterr().err
