"""`bkstore availability` of sets with more ranges than a cell should hold."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.availability import Availability, sequence_groups
from bkstore.cli.main import main
from bkstore.index.hierarchical import HierarchicalIndex

STRIPE = [[0, 29_997, 1, 3]]
REST = [[1, 29_998, 2, 3]]


@pytest.fixture
def bookie(tmp_path: Path) -> str:
    """A ledger of 10,000 ranges, one of 10,001, both one stripe."""
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        for ledger, count in ((1, 10_000), (2, 10_001)):
            index.put_many(ledger, np.arange(count) * 3, np.full(count, 1028))
    return str(tmp_path / "b")


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(["availability", *words])
    out, err = capsys.readouterr()
    assert (0, "") == (code, err)
    return out


def test_ranges_up_to_the_bound(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to 10,000 ranges stand in the row, all of them; so do those that are missing."""
    asked = ("--missing-from", "0:29999", "--format", "json")
    (row,) = json.loads(_said(capsys, bookie, "--ledger-id", "1", *asked))

    assert [[at, at] for at in range(0, 30_000, 3)] == row["ranges"]
    assert [[at + 1, at + 2] for at in range(0, 30_000, 3)] == row["missing"]
    assert (STRIPE, 20_000, REST) == (row["groups"], row["missing_entries"], row["missing_groups"])


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "parquet"])
def test_ranges_above_the_bound(
    form: str, bookie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Above 10,000 ranges are null in every format that programs read; groups say it all."""
    words = (bookie, "--ledger-id", "2", "--missing-from", f"0:{2**62}", "--format", form)
    target = tmp_path / "answer"
    _said(capsys, *words, "-o", str(target))
    if form == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        (row,) = parquet.read_table(target).to_pylist()
    elif form == "csv":
        (row,) = csv.DictReader(io.StringIO(target.read_text()))
        named = ("entries", "groups", "ranges", "missing", "missing_entries", "missing_groups")
        row = {name: json.loads(row[name] or "null") for name in named}
    else:
        lines = json.loads(target.read_text()) if form == "json" else None
        row = lines[0] if lines else json.loads(target.read_text())

    assert (10_001, [[0, 30_000, 1, 3]]) == (row["entries"], row["groups"])
    assert row["ranges"] is None
    assert [[1, 29_998, 2, 3], [30_001, 30_001, 2**62 - 30_000, 0]] == row["missing_groups"]
    assert row["missing"] is None
    assert 2**62 + 1 - 10_001 == row["missing_entries"]


def test_first_ranges_on_a_screen(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A table shows a stripe by its first runs and its last, and how many entries there are."""
    said = _said(capsys, bookie, "--ledger-id", "2", "--missing-from", "0:30001")
    lines = said.replace("\n" + " " * 18, " ").splitlines()  # values go on below themselves
    fields = dict(line.split(maxsplit=1) for line in lines[2:])

    assert "0, 3, 6, ..., 30000 (10,001 entries)" == fields["ranges"]
    assert "1-2, 4-5, 7-8, ..., 29998-29999, 30001 (20,001 entries)" == fields["missing"]


@pytest.mark.parametrize("form", ["table", "json"])
def test_memory_is_of_groups(
    form: str, bookie: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command takes no stripe apart to show its runs, nor to leave them out."""
    limits: list[int | None] = []
    real = Availability.ranges

    def ranges(self: Availability, limit: int | None = None) -> np.ndarray:
        limits.append(limit)
        return real(self, limit)

    monkeypatch.setattr(Availability, "ranges", ranges)
    _said(capsys, bookie, "--ledger-id", "2", "--format", form)

    assert [] == limits


def test_unlike_stripe_without_end(
    bookie: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would have to be written range by range, above the bound, is one line, exit code 2."""
    monkeypatch.setattr(sequence_groups, "MAX_SEQUENCES", 1000)
    words = ("--missing-from", "0:30000", "--stripe", "5:2:0")
    code = main(["availability", bookie, "--ledger-id", "2", *words])
    out, err = capsys.readouterr()

    assert (2, "", 1) == (code, out, err.count("\n"))
    assert "sequences are too many to list one by one, the limit is 1000" in err


def test_folders_of_other_ledgers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of index files the ledger's own is looked at alone: others may be in unreadable folders.

    The ledger's own folder must be readable; then it is not taken for unknown.
    """
    with HierarchicalIndex(tmp_path / "current", writable=True) as index:
        index.put_many(7, [0, 1], [1, 2])
        index.put_many(0x1234567, [0], [3])
    (other,) = (tmp_path / "current").rglob("1234567.idx")
    (own,) = (tmp_path / "current").rglob("7.idx")
    words = ["availability", str(tmp_path), "--ledger-id", "7"]
    refused: list[Path] = [other.parent]

    def refuse(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(path: Any = ".", *more: Any, **options: Any) -> Any:
            places = [Path(os.fspath(path)), *Path(os.fspath(path)).parents]
            if any(place in refused for place in places):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *more, **options)

        return act

    for name in ("scandir", "listdir", "lstat", "open"):
        monkeypatch.setattr(os, name, refuse(getattr(os, name)))
    assert 0 == main(words)
    assert "0..0/2/0" in capsys.readouterr().out

    refused[:] = [own.parent]

    assert 2 == main(words)
    assert "Permission denied" in capsys.readouterr().err
