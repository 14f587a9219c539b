"""Libraries to compare with: given what they take fastest, and not needed. No times."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from bkstore.ids import Int64Array
from bkstore.lab.experiments import availability, blooms
from tests.paths import ROOT
from tools.bench.cli import main as bench

PEERS = ("pyroaring", "lmdb", "plyvel", "rbloom", "fastbloom_rs", "polars")


class Bitmap:
    """Stands for pyroaring's BitMap, and remembers what each was made of."""

    made_of: ClassVar[list[type]] = []

    def __init__(self, ids: Any) -> None:
        self.made_of.append(type(ids))
        self.ids = set(ids)

    def run_optimize(self) -> None:
        """Do nothing."""

    def serialize(self) -> bytes:
        """Return the ids."""
        return json.dumps(sorted(self.ids)).encode()

    @classmethod
    def deserialize(cls, data: bytes) -> Bitmap:
        """Return the bitmap of the ids."""
        found = cls.__new__(cls)
        found.ids = set(json.loads(data))
        return found

    def flip(self, first: int, end: int) -> set[int]:
        """Return the complement within a range."""
        return self.ids ^ set(range(first, end))

    def __len__(self) -> int:
        return len(self.ids)


def test_bitmaps_are_made_by_the_fast_way_in() -> None:
    """pyroaring reads an `array` of unsigned ints as a whole, and anything else id by id."""

    class Module:
        BitMap = Bitmap

    Bitmap.made_of.clear()
    form = availability.roaring_form(Module)
    held = form.decode(form.encode(np.array([1, 2, 5])))

    assert [array] == Bitmap.made_of
    assert ({0, 3, 4}, 3) == (form.missing(held, 6), form.count_missing(held, 6))
    assert [array] == Bitmap.made_of


def test_ids_are_given_before_the_clock_runs() -> None:
    """What a filter's library takes is made of the arrays once, however often sides run."""
    given: list[int] = []
    seen: list[Any] = []

    def give(ids: Int64Array) -> list[int]:
        given.append(ids.size)
        made: list[int] = ids.tolist()
        return made

    way = blooms.FilterLibrary(
        lambda ids, _: seen.append(ids), lambda _, ids: seen.append(ids) or 0, lambda _: 8, give
    )
    use = blooms.BuiltFilter.of(way, np.arange(3), np.arange(5), 0.1)
    for side in use.timed_steps * 3:
        side.run()

    assert [3, 5] == given
    assert {list} == {type(ids) for ids in seen}
    assert [3, 3, 5, 3, 5, 3, 5] == list(map(len, seen))


def test_the_benchmark_runs_without_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is compared with them is left out, they are named, and our own bytes stay."""
    for name in PEERS:
        monkeypatch.setitem(sys.modules, name, None)
    words = [word for row in ("encoding", "missing", "bloom") for word in ("--row", row)]
    target = tmp_path / "a.json"
    assert 0 == bench([*words, "--size", "0.001", "--rounds", "1", "--json", str(target)])
    document = json.loads(target.read_text())
    rows = document["rows"]

    assert ["fastbloom_rs", "pyroaring", "rbloom"] == document["absent"]
    assert [("encode and decode", 88)] == [
        (row["case"], row["value"]) for row in rows if row["row"] == "encoding"
    ]
    assert {"none lost", "none lost, mask", "6 lost", "6 lost, mask"} == {
        row["case"] for row in rows if row["row"] == "missing"
    }
    assert [] == [row["case"] for row in rows if "pyroaring" in row["case"] + str(row["what"])]


def test_commands_start_without_peers() -> None:
    """No module of the tools needs a library that is only compared with."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({PEERS!r}))\n"
        "import tools.bench.cli, tools.performance.__main__, tools.pipeline.experiment\n"
        "from bkstore.lab.catalog import QUESTIONS, load_experiment\n"
        "[load_experiment(name) for name in QUESTIONS]"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert (0, "") == (ran.returncode, ran.stderr)
